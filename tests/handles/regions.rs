//! Regions: access to their bytes, and the end of a registration.

use std::sync::atomic::{AtomicBool, Ordering};

use fabric::{Access, Error, Memory, Op, Status};

use crate::null::FILL;
use crate::rig::{Rig, domain, invalid, rounds};

#[test]
fn bytes_go_in_and_come_out() {
    let (domain, _) = domain();
    let region = domain.alloc(100, Access::empty()).unwrap();
    assert_eq!(region.to_vec(..).unwrap(), [0; 100]);
    region.write_at(10, b"hello").unwrap();
    let mut bytes = [0; 7];
    region.read_at(9, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0hello\0");
    region.put(20, &0x0123_4567_89ab_cdefu64).unwrap();
    assert_eq!(region.get::<u64>(20).unwrap(), 0x0123_4567_89ab_cdef);
    region.fill(7).unwrap();
    assert_eq!(region.to_vec(..).unwrap(), [7; 100]);
}

#[test]
fn access_beyond_the_end_is_refused_and_changes_nothing() {
    let (domain, _) = domain();
    let region = domain.alloc(16, Access::ALL).unwrap();
    assert!(invalid(region.write_at(9, &[1; 8])).contains("8 bytes at offset 9 do not fit"));
    invalid(region.read_at(17, &mut []));
    invalid(region.read_at(usize::MAX, &mut [0; 2]));
    invalid(region.get::<u64>(9));
    invalid(region.put(13, &0u32));
    invalid(region.to_vec(4..17));
    invalid(region.atomic::<u64>(16));
    assert_eq!(region.to_vec(..).unwrap(), [0; 16]);
    region.write_at(16, &[]).unwrap();
}

#[test]
fn elements_are_aligned_and_atomic() {
    let (domain, _) = domain();
    let region = domain.alloc(64, Access::ALL).unwrap();
    assert!(invalid(region.atomic::<u64>(4)).contains("not aligned to 8"));
    let word = region.atomic::<u64>(8).unwrap();
    assert_eq!(word.fetch_add(5), 0);
    assert_eq!(word.compare_swap(5, 9), 5);
    assert_eq!(word.compare_swap(5, 1), 9);
    assert_eq!(word.swap(u64::MAX), 9);
    assert_eq!(word.fetch_add(2), u64::MAX);
    assert_eq!((word.load(), region.get::<u64>(8).unwrap()), (1, 1));
}

#[test]
fn elements_are_counted_right_from_many_threads() {
    let (domain, _) = domain();
    let region = domain.alloc(64, Access::ALL).unwrap();
    let each = rounds(10_000) as u32;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let word = region.atomic::<u32>(4).unwrap();
                for _ in 0..each {
                    word.fetch_add(1);
                }
            });
        }
    });
    assert_eq!(region.get::<u32>(4).unwrap(), 3 * each);
    assert_eq!((region.get::<u32>(0).unwrap(), region.get::<u32>(8).unwrap()), (0, 0));
}

#[test]
fn several_regions_share_one_memory() {
    let (domain, control) = domain();
    let memory = Memory::zeroed(4096).unwrap();
    let whole = domain.register(&memory, Access::ALL).unwrap();
    let part = domain.register_part(&memory, 1024..2048, Access::REMOTE_READ).unwrap();
    assert_eq!(control.registrations(), 2);
    whole.write_at(1030, b"seen").unwrap();
    assert_eq!(part.to_vec(6..10).unwrap(), b"seen");
    assert_ne!(whole.remote().key(), part.remote().key());
    drop((memory, whole));
    assert_eq!(control.registrations(), 1);
    assert_eq!(part.to_vec(6..10).unwrap(), b"seen");
    let again = domain.register(part.memory().unwrap(), Access::ALL).unwrap();
    assert_eq!(again.to_vec(1030..1034).unwrap(), b"seen");
}

#[test]
fn foreign_memory_is_registered_in_place() {
    let mut words = [0u64; 8];
    let (addr, len) = (words.as_mut_ptr().cast::<u8>(), size_of_val(&words));
    let (domain, control) = domain();
    {
        // SAFETY: the array outlives both regions, and is not looked at while they live.
        let region = unsafe { domain.register_raw(addr, len, Access::ALL) }.unwrap();
        // SAFETY: as above.
        let fixed = unsafe { domain.register_raw(addr, len, Access::REMOTE_READ) }.unwrap();
        region.put(8, &7u64).unwrap();
        assert_eq!(fixed.get::<u64>(8).unwrap(), 7);
        assert!(invalid(fixed.put(8, &8u64)).contains("without LOCAL_WRITE"));
        invalid(fixed.atomic::<u64>(8));
        assert!(region.memory().is_none());
    }
    assert_eq!(control.registrations(), 0);
    assert_eq!(words, [0, 7, 0, 0, 0, 0, 0, 0]);
}

/// Whatever the provider: none has to look itself.
#[test]
#[cfg_attr(miri, ignore = "Miri has no madvise(2)")]
fn memory_that_is_not_there_is_not_registered() {
    let (domain, control) = domain();
    let nowhere = 0x1000 as *mut u8;
    // SAFETY: it is registered nowhere.
    let answer = unsafe { domain.register_raw(nowhere, 64, Access::ALL) };
    assert!(invalid(answer.map(drop)).contains("not all mapped"));
    // This program's code can be read, and not written.
    let code = memory_that_is_not_there_is_not_registered as fn() as *mut u8;
    let code = code.wrapping_sub(code as usize % 8);
    // SAFETY: it stays mapped.
    let answer = unsafe { domain.register_raw(code, 8, Access::LOCAL_WRITE) };
    assert!(invalid(answer.map(drop)).contains("not all writable"));
    assert_eq!(control.registrations(), 0);
    // SAFETY: as above, and nothing is written.
    drop(unsafe { domain.register_raw_unchecked(code, 8, Access::REMOTE_READ) }.unwrap());
}

#[test]
fn closed_foreign_memory_may_be_gone_and_is_not_touched() {
    let mut words = vec![0u64; 8];
    let (domain, _control) = domain();
    // SAFETY: the memory outlives the registration.
    let region =
        unsafe { domain.register_raw(words.as_mut_ptr().cast(), 64, Access::ALL) }.unwrap();
    region.close().unwrap();
    drop(words);
    for result in
        [region.write_at(0, &[1]), region.read_at(0, &mut [1]), region.atomic::<u8>(0).map(drop)]
    {
        assert!(matches!(result, Err(Error::InvalidState(_))), "{result:?}");
    }
}

#[test]
fn close_ends_the_registration_and_every_operation() {
    let rig = Rig::new();
    rig.endpoint.send(&rig.region, 1).unwrap();
    assert_eq!(rig.drain(), [(1, Status::Ok)]);
    rig.region.close().unwrap();
    assert_eq!(rig.control.registrations(), 0);
    rig.region.close().unwrap();
    let is_state = |result: fabric::Result<()>| match result {
        Err(Error::InvalidState(failure)) => {
            assert!(failure.detail.contains("closed"), "{failure}")
        }
        other => panic!("expected InvalidState, got {other:?}"),
    };
    is_state(rig.endpoint.send(&rig.region, 2));
    is_state(rig.endpoint.recv(&rig.region, 3));
    is_state(rig.endpoint.read(rig.region.slice(..8), rig.at(0), 4));
    // The memory is still this program's.
    rig.region.write_at(0, b"mine").unwrap();
    assert_eq!(rig.region.to_vec(..4).unwrap(), b"mine");
    // A descriptor is a claim; the endpoint cannot know that it is stale.
    rig.endpoint.post(&Op::atomic(fabric::AtomicOp::Add, 1u64, rig.at(0)).context(5)).unwrap();
    assert_eq!(rig.drain(), [(5, Status::Ok)]);
}

#[test]
fn close_is_busy_while_an_operation_uses_the_region() {
    let rig = Rig::new();
    rig.link.hold();
    rig.endpoint.post(&rig.write(1)).unwrap();
    let busy = || assert!(matches!(rig.region.close(), Err(Error::Busy)));
    busy();
    // Busy means no harm.
    rig.endpoint.post(&rig.write(2)).unwrap();
    rig.region.write_at(0, b"x").unwrap();
    rig.link.release(2);
    busy();
    assert_eq!(rig.queue.poll_one().unwrap().unwrap().context, 1);
    busy();
    assert_eq!(rig.queue.poll_one().unwrap().unwrap().context, 2);
    rig.region.close().unwrap();
}

#[test]
fn close_is_busy_while_a_completion_waits_to_be_taken() {
    let rig = Rig::with(|b| b.send_depth(1));
    rig.endpoint.post(&rig.write(1)).unwrap();
    // This reaps it, but it was not taken.
    assert!(matches!(rig.endpoint.post(&rig.write(2)), Err(Error::Again)));
    assert!(matches!(rig.region.close(), Err(Error::Busy)));
    assert_eq!(rig.drain(), [(1, Status::Ok)]);
    rig.region.close().unwrap();
}

#[test]
fn each_segment_keeps_its_region() {
    let rig = Rig::with(|b| b.send_segments(8));
    let regions: Vec<_> = (0..4).map(|_| rig.domain.alloc(64, Access::ALL).unwrap()).collect();
    rig.link.hold();
    let slices: Vec<_> = (0..8).map(|i| regions[i % 4].slice(i..i + 1)).collect();
    rig.endpoint.send(&slices[..], 1).unwrap();
    assert!(regions.iter().all(|region| matches!(region.close(), Err(Error::Busy))));
    rig.link.release(1);
    assert_eq!(rig.drain(), [(1, Status::Ok)]);
    assert!(regions.iter().all(|region| region.close().is_ok()));
}

#[test]
fn a_refused_post_keeps_nothing() {
    let rig = Rig::with(|b| b.send_depth(1).recv_depth(1));
    let spare = rig.domain.alloc(64, Access::ALL).unwrap();
    rig.endpoint.post(&rig.write(1)).unwrap();
    assert!(matches!(rig.endpoint.send(&spare, 2), Err(Error::Again)));
    let bad = [spare.slice(..), spare.slice(60..70)];
    invalid(rig.endpoint.post(&Op::send(&bad)));
    rig.link.take_up_to(0);
    rig.drain();
    assert!(matches!(rig.endpoint.send(&spare, 3), Err(Error::Again)));
    spare.close().unwrap();
}

#[test]
fn an_operation_in_flight_keeps_memory_that_has_no_handle_any_more() {
    let rig = Rig::new();
    rig.link.hold();
    let memory = Memory::zeroed(64).unwrap();
    let region = rig.domain.register(&memory, Access::ALL).unwrap();
    rig.endpoint.read(region.slice(8..16), rig.at(0), 1).unwrap();
    rig.endpoint.recv(region.slice(32..40), 2).unwrap();
    drop(region);
    assert_eq!(rig.control.registrations(), 2);
    // The null provider writes only now, and checks that the registration is alive.
    rig.link.release(1);
    assert!(rig.link.bring(8, None));
    assert_eq!(rig.control.registrations(), 2);
    assert_eq!(rig.drain(), [(1, Status::Ok), (2, Status::Ok)]);
    assert_eq!(rig.control.registrations(), 1);
    let region = rig.domain.register(&memory, Access::empty()).unwrap();
    let mut expected = [0; 64];
    expected[8..16].fill(FILL);
    expected[32..40].fill(FILL);
    assert_eq!(region.to_vec(..).unwrap(), expected);
}

#[test]
fn the_last_operation_in_flight_frees_memory_that_nobody_else_has() {
    let rig = Rig::new();
    rig.link.hold();
    for context in 0..4 {
        let region = rig.domain.alloc(4096, Access::ALL).unwrap();
        rig.endpoint.read(&region, rig.at(0), context).unwrap();
    }
    assert_eq!(rig.control.registrations(), 5);
    rig.link.release(3);
    assert_eq!(rig.drain().len(), 3);
    assert_eq!(rig.control.registrations(), 2);
    rig.link.release(1);
    assert_eq!(rig.drain().len(), 1);
    assert_eq!(rig.control.registrations(), 1);
}

/// Posting and closing at once: a region that was closed is used by nothing, or the close was refused.
#[test]
fn a_post_that_races_with_close_is_refused_or_makes_it_busy() {
    let rig = Rig::new();
    rig.link.hold();
    for _ in 0..rounds(2_000) {
        let region = rig.domain.alloc(64, Access::ALL).unwrap();
        let go = AtomicBool::new(false);
        let (posted, closed) = std::thread::scope(|scope| {
            let poster = scope.spawn(|| {
                while !go.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                rig.endpoint.read(&region, rig.at(0), 1)
            });
            go.store(true, Ordering::Release);
            let closed = region.close();
            (poster.join().unwrap(), closed)
        });
        match (&posted, &closed) {
            (Ok(()), Err(Error::Busy)) => {}
            (Err(Error::InvalidState(_)), Ok(()) | Err(Error::Busy)) => {}
            other => panic!("{other:?}"),
        }
        // It touches the memory now, and checks that the registration is alive.
        rig.link.release(1);
        assert_eq!(rig.drain().len(), usize::from(posted.is_ok()));
        region.close().unwrap();
    }
}

#[test]
#[cfg_attr(miri, ignore = "what it shows is a leak")]
fn memory_that_a_device_does_not_let_go_of_stays() {
    let (domain, control) = domain();
    let region = domain.alloc(1 << 16, Access::ALL).unwrap();
    region.fill(7).unwrap();
    control.hold_on(true);
    let error = region.close().unwrap_err().to_string();
    assert_eq!(error, "deregister: the system call failed: resource busy [null]");
    let addr = region.addr() as *mut u8;
    drop(region);
    assert_eq!(control.registrations(), 1);
    drop(Memory::zeroed(1 << 16).unwrap()); // whose place was free now
    let mut bytes = [0; 64];
    // SAFETY: it was never freed; where it was, the address sanitizer says so.
    unsafe { fabric_core::memory::load(addr, &mut bytes) };
    assert_eq!(bytes, [7; 64]);
    // One that lets go in the end is closed.
    let region = domain.alloc(64, Access::ALL).unwrap();
    region.close().unwrap_err();
    control.hold_on(false);
    region.close().unwrap();
    assert_eq!(control.registrations(), 1);
}
