//! What is wrong with a call is said by the call: named, without effect, and the endpoint is unharmed.

use std::fmt::{self, Write as _};
use std::time::Duration;

use fabric::{
    Access, AtomicOp, AtomicScalar, Capabilities, Error, Hints, Op, Recv, RemoteRegion, Slice,
    Slices, Status,
};

use crate::null::NullProvider;
use crate::rig::{NOWHERE, Rig, connect, domain, domain_of, invalid};

/// Posts what must be refused; gives the text of the `InvalidArgument`.
#[track_caller]
fn refused(rig: &Rig, op: Op<'_>) -> String {
    let before = (rig.link.posted(), rig.endpoint.counters());
    let text = invalid(rig.endpoint.post(&op));
    unharmed(rig, before);
    text
}

/// Posts what must be unsupported; gives the text.
#[track_caller]
fn unsupported(rig: &Rig, op: Op<'_>) -> String {
    let before = (rig.link.posted(), rig.endpoint.counters());
    let text = match rig.endpoint.post(&op) {
        Err(Error::Unsupported(failure)) => failure.to_string(),
        other => panic!("expected Unsupported, got {other:?}"),
    };
    unharmed(rig, before);
    assert!(text.contains("[null]"), "it names the provider: {text}");
    text
}

/// Nothing reached the provider, nothing is counted, and the endpoint works.
#[track_caller]
fn unharmed(rig: &Rig, before: ((usize, usize), fabric::Counters)) {
    assert_eq!((rig.link.posted(), rig.endpoint.counters()), before);
    assert_eq!(rig.drain(), []);
    rig.endpoint.post(&rig.write(77)).unwrap();
    assert_eq!(rig.drain(), [(77, Status::Ok)]);
}

#[test]
fn a_slice_beyond_its_region() {
    let rig = Rig::new();
    let text = refused(&rig, Op::send(rig.region.slice(4090..4097)));
    assert!(text.contains("7 bytes at offset 4090 do not fit a region of 4096"), "{text}");
    for slice in [
        rig.region.slice(4097..),
        rig.region.slice(..=4096),
        rig.region.slice(usize::MAX..),
        rig.region.slice(..=usize::MAX),
        rig.region.slice(0..=usize::MAX),
        rig.region.slice(1..usize::MAX),
    ] {
        let text = refused(&rig, Op::send(slice));
        assert!(text.contains("do not fit a region of 4096"), "{text}");
    }
    rig.endpoint.send(rig.region.slice(4096..), 1).unwrap();
    assert_eq!(rig.drain(), [(1, Status::Ok)]);
}

#[test]
#[expect(clippy::reversed_empty_ranges, reason = "that is what is tested")]
fn a_range_that_ends_before_it_starts() {
    let rig = Rig::new();
    for slice in [rig.region.slice(8..4), rig.region.slice(4096..0), rig.region.slice(9..=7)] {
        let text = refused(&rig, Op::send(slice));
        assert!(text.contains("ends before it starts"), "{text}");
    }
}

#[test]
fn more_segments_than_the_endpoint_was_made_for() {
    let rig = Rig::with(|b| b.send_segments(2).recv_segments(3));
    let slices: Vec<Slice<'_>> = (0..4).map(|i| rig.region.slice(i * 8..i * 8 + 8)).collect();
    assert!(refused(&rig, Op::send(&slices[..3])).contains("more than 2 segments"));
    let text = invalid(rig.endpoint.recv(&slices[..], 1));
    assert!(text.contains("recv") && text.contains("more than 3 segments"), "{text}");
    // Empty ones do not count.
    let empty = rig.region.slice(..0);
    rig.endpoint.send(&[empty, slices[0], empty, slices[1], empty], 1).unwrap();
    assert_eq!(rig.drain(), [(1, Status::Ok)]);
}

#[test]
fn a_region_or_a_queue_of_another_domain() {
    let rig = Rig::new();
    let (other, _) = domain();
    let foreign = other.alloc(64, Access::ALL).unwrap();
    assert!(refused(&rig, Op::send(&foreign)).contains("of another domain"));
    assert!(invalid(rig.endpoint.recv(&foreign, 1)).contains("of another domain"));
    let queue = other.completion_queue(1024).unwrap();
    let text = invalid(rig.domain.endpoint().build_with(&rig.queue, &queue));
    assert!(text.contains("completion queue is of another domain"), "{text}");
}

#[test]
fn memory_that_the_operation_would_change_needs_local_write() {
    let rig = Rig::new();
    let fixed = rig.domain.alloc(64, Access::REMOTE_READ).unwrap();
    for (what, op) in [
        ("read", Op::read(&fixed, rig.at(0))),
        ("atomic", Op::fetch_atomic(AtomicOp::Add, 1u64, fixed.slice(..8), rig.at(0))),
        ("atomic", Op::fetch_compare_swap(1u64, 2, fixed.slice(..8), rig.at(0))),
    ] {
        let text = refused(&rig, op);
        assert!(text.starts_with(what) && text.contains("LOCAL_WRITE"), "{text}");
    }
    let text = invalid(rig.endpoint.recv(&fixed, 1));
    assert!(text.starts_with("recv") && text.contains("LOCAL_WRITE"), "{text}");
    rig.endpoint.send(&fixed, 1).unwrap();
    rig.endpoint.write(&fixed, rig.at(0), 2).unwrap();
    assert_eq!(rig.drain().len(), 2);
}

#[test]
fn a_message_beyond_the_limit() {
    let rig = Rig::with(|b| b.send_segments(2));
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
    let big = rig.domain.alloc((1 << 16) + 1, access).unwrap();
    let text = refused(&rig, Op::send(&big));
    assert!(text.contains("65537 bytes; a message has at most 65536"), "{text}");
    refused(&rig, Op::write(&big, big.remote().at(0)));
    refused(&rig, Op::read(&big, big.remote().at(0)));
    // The sum of the segments counts.
    let half = big.slice(..(1 << 15) + 1);
    refused(&rig, Op::send(&[half, half]));
    rig.endpoint.send(big.slice(1..), 1).unwrap();
    assert_eq!(rig.drain(), [(1, Status::Ok)]);
}

#[test]
fn an_inject_beyond_the_setting() {
    let rig = Rig::with(|b| b.inject(130));
    let text = refused(&rig, Op::inject(&[0; 131]));
    assert!(text.contains("131 bytes to inject; the endpoint takes 130"), "{text}");
    refused(&rig, Op::inject_write(&[0; 131], rig.at(0)));
    rig.endpoint.inject(&[0; 130], 1).unwrap();
    rig.endpoint.inject(&[], 2).unwrap();
    assert_eq!(rig.drain().len(), 2);
}

#[test]
fn an_atomic_that_is_not_aligned() {
    let rig = Rig::new();
    fn add<T: AtomicScalar>(rig: &Rig, one: T, offset: u64) -> Op<'static> {
        Op::atomic(AtomicOp::Add, one, rig.at(offset))
    }
    assert!(refused(&rig, add(&rig, 1u64, 4)).contains("offset 4 is not aligned to 8"));
    assert!(refused(&rig, add(&rig, 1i32, 2)).contains("offset 2 is not aligned to 4"));
    assert!(refused(&rig, add(&rig, 1.0f64, 1)).contains("aligned to 8"));
    assert!(refused(&rig, add(&rig, 1u16, 1)).contains("aligned to 2"));
    rig.endpoint.post(&add(&rig, 1u8, 1)).unwrap();
    assert_eq!(rig.drain().len(), 1);
}

#[test]
fn an_old_value_that_does_not_fit_its_slice() {
    let rig = Rig::new();
    for len in [0, 4, 7, 9] {
        let op = Op::fetch_atomic(AtomicOp::Swap, 1u64, rig.region.slice(..len), rig.at(0));
        let text = refused(&rig, op);
        assert!(text.contains(&format!("the old value has 8 bytes, its slice {len}")), "{text}");
    }
}

#[test]
fn atomics_that_are_not_defined() {
    let rig = Rig::new();
    for op in [AtomicOp::And, AtomicOp::Or, AtomicOp::Xor] {
        for text in [
            unsupported(&rig, Op::atomic(op, 1.0f32, rig.at(0))),
            unsupported(&rig, Op::fetch_atomic(op, 1.0f64, rig.region.slice(..8), rig.at(0))),
        ] {
            assert!(text.contains(op.name()) && text.contains("is not defined on f"), "{text}");
        }
        rig.endpoint.post(&Op::atomic(op, 1u32, rig.at(0)).unsignaled()).unwrap();
    }
}

#[test]
fn compare_and_swap_without_a_compare_value() {
    let rig = Rig::new();
    for op in [
        Op::atomic(AtomicOp::CompareSwap, 1u64, rig.at(0)),
        Op::fetch_atomic(AtomicOp::CompareSwap, 1u64, rig.region.slice(..8), rig.at(0)),
    ] {
        let text = refused(&rig, op);
        assert!(text.contains("compare_swap"), "it names the constructor to use: {text}");
    }
    rig.endpoint.post(&Op::compare_swap(0u64, 1, rig.at(0))).unwrap();
}

#[test]
fn atomics_on_a_device_without_them() {
    let provider = NullProvider::new().edit(|info| info.capabilities = Capabilities::SEND);
    let control = provider.control();
    let catalog = fabric::Catalog::empty().add(provider).unwrap();
    let hints = Hints { capabilities: Capabilities::SEND, ..Hints::default() };
    let domain = catalog.open_with(&fabric::Choice::Auto, &hints).unwrap();
    let rig = Rig::on(domain, control, |b| b);
    let Err(Error::Unsupported(failure)) =
        rig.endpoint.post(&Op::atomic(AtomicOp::Add, 1u64, rig.at(0)))
    else {
        panic!("expected Unsupported")
    };
    assert!(failure.to_string().contains("null0 has no atomics"), "{failure}");
}

#[test]
fn flags_that_an_operation_does_not_have() {
    let rig = Rig::new();
    let slice = rig.region.slice(..8);
    for op in [
        Op::send(slice),
        Op::inject(b"1"),
        Op::read(slice, rig.at(0)),
        Op::atomic(AtomicOp::Add, 1u64, rig.at(0)),
    ] {
        let text = unsupported(&rig, op.delivery_complete());
        assert!(text.contains("delivery-complete is for writes only"), "{text}");
    }
    for op in [Op::read(slice, rig.at(0)), Op::fetch_atomic(AtomicOp::Add, 1u64, slice, rig.at(0))]
    {
        let text = unsupported(&rig, op.immediate(1));
        assert!(text.contains("immediate"), "{text}");
    }
    for op in [
        Op::write(slice, rig.at(0)).delivery_complete().immediate(1).fence(),
        Op::inject_write(b"12345678", rig.at(0)).delivery_complete(),
        Op::send(slice).immediate(0).fence(),
        Op::read(slice, rig.at(0)).fence(),
    ] {
        rig.endpoint.post(&op.unsignaled()).unwrap();
    }
}

#[test]
fn range_and_rights_that_the_remote_descriptor_states() {
    let rig = Rig::new();
    let slice = rig.region.slice(..8);
    for offset in [4089, 4096, u64::MAX - 3] {
        for op in [Op::write(slice, rig.at(offset)), Op::read(slice, rig.at(offset))] {
            let text = refused(&rig, op);
            assert!(text.contains("do not fit a remote region of 4096"), "{text}");
        }
    }
    assert!(refused(&rig, Op::atomic(AtomicOp::Add, 1u64, rig.at(4096))).contains("do not fit"));
    let with = |access| RemoteRegion::from_parts(1, 0, 4096, access).at(0);
    let (read, write, atomic) =
        (with(Access::REMOTE_READ), with(Access::REMOTE_WRITE), with(Access::REMOTE_ATOMIC));
    for (op, need) in [
        (Op::write(slice, read), "REMOTE_WRITE"),
        (Op::write(slice, atomic), "REMOTE_WRITE"),
        (Op::read(slice, write), "REMOTE_READ"),
        (Op::read(slice, atomic), "REMOTE_READ"),
        (Op::atomic(AtomicOp::Add, 1u64, read), "REMOTE_ATOMIC"),
        (Op::compare_swap(1u64, 2, write), "REMOTE_ATOMIC"),
    ] {
        let text = refused(&rig, op);
        assert!(text.contains(&format!("this needs Access({need})")), "{text}");
    }
}

#[test]
fn without_bytes_no_remote_check() {
    let rig = Rig::new();
    let nowhere = RemoteRegion::from_parts(0, 0, 0, Access::empty()).at(99);
    rig.endpoint.write(rig.region.slice(..0), nowhere, 1).unwrap();
    rig.endpoint.read(fabric::Slices::none(), nowhere, 2).unwrap();
    rig.endpoint.post(&Op::inject_write(&[], nowhere).immediate(3).context(3)).unwrap();
    assert_eq!(rig.drain().len(), 3);
}

#[test]
fn posts_before_and_after_the_connection() {
    let rig = Rig::new();
    let endpoint = rig.domain.endpoint().build(&rig.queue).unwrap();
    let write = || endpoint.post(&rig.write(1));
    assert!(matches!(write(), Err(Error::NotConnected)));
    // Receives may be early.
    endpoint.recv(&rig.region, 1).unwrap();
    let link = rig.control.link(endpoint.id());
    link.connect_slowly();
    endpoint.connect(NOWHERE, &[]).unwrap();
    assert!(matches!(write(), Err(Error::NotConnected)));
    endpoint.recv(&rig.region, 2).unwrap();
    link.finish_connect(Ok(&[]));
    write().unwrap();
    endpoint.disconnect();
    assert!(matches!(write(), Err(Error::NotConnected)));
    assert!(matches!(endpoint.recv(&rig.region, 3), Err(Error::NotConnected)));
    let batch = endpoint.post_recvs(&[Recv::new(&rig.region, 3)]).unwrap_err();
    assert_eq!(batch.posted, 0);
}

#[test]
fn settings_beyond_the_limits_are_named() {
    let rig = Rig::new();
    let build = |b: fabric::EndpointBuilder<'_>| invalid(b.build(&rig.queue));
    let new = || rig.domain.endpoint();
    for (builder, what) in [
        (new().send_depth(0), "send_depth 0 is not in 1..=65536"),
        (new().send_depth(65537), "send_depth 65537"),
        (new().recv_depth(0), "recv_depth 0"),
        (new().send_segments(9), "send_segments 9 is not in 1..=8"),
        (new().recv_segments(0), "recv_segments 0"),
        (new().inject(257), "inject 257 is not in 0..=256"),
        (new().connect_timeout(Duration::ZERO), "connect_timeout"),
        (new().liveness(Some(Duration::from_millis(999))), "liveness"),
        (new().stall(Some(Duration::from_millis(999))), "stall 999ms is not in 1s..=1h"),
        (new().stall(Some(Duration::from_secs(3601))), "stall 3601s is not in 1s..=1h"),
        (new().source([10, 9, 8, 7].into()), "source 10.9.8.7"),
    ] {
        let text = build(builder);
        assert!(text.contains(what), "{text}");
    }
    new().source([127, 0, 0, 1].into()).liveness(None).build(&rig.queue).unwrap();
}

#[test]
fn an_endpoint_beyond_the_limit() {
    let domain = domain_of(NullProvider::new().edit(|info| info.limits.endpoints = 2));
    let queue = domain.completion_queue(1024).unwrap();
    let build = || domain.endpoint().build(&queue);
    let (first, second) = (build().unwrap(), build().unwrap());
    let Err(Error::NoMemory(failure)) = build() else { panic!("expected NoMemory") };
    assert!(failure.to_string().contains("2 endpoints"), "{failure}");
    drop(first);
    connect(&build().unwrap());
    drop(second);
}

#[test]
fn a_completion_queue_beyond_the_limit() {
    let domain = domain_of(NullProvider::new().edit(|info| info.limits.completion_queues = 2));
    let (first, _second) =
        (domain.completion_queue(1).unwrap(), domain.completion_queue(1).unwrap());
    let Err(Error::NoMemory(failure)) = domain.completion_queue(1) else {
        panic!("expected NoMemory")
    };
    assert!(failure.to_string().contains("2 completion_queues"), "{failure}");
    drop(first);
    domain.completion_queue(1).unwrap();
}

#[test]
fn registrations_that_can_never_work() {
    let (domain, control) = domain();
    let text = invalid(domain.alloc(64, Access::REMOTE_WRITE));
    assert!(text.contains("need LOCAL_WRITE"), "{text}");
    invalid(domain.alloc(0, Access::ALL));
    assert!(invalid(domain.alloc(12, Access::ALL)).contains("multiples of 8"));
    let memory = fabric::Memory::zeroed(64).unwrap();
    for range in [0..65, 64..64, 65..65] {
        invalid(domain.register_part(&memory, range, Access::LOCAL_WRITE));
    }
    assert!(invalid(domain.register_part(&memory, 4..12, Access::ALL)).contains("multiples of 8"));
    assert_eq!(control.registrations(), 0);
    domain.register_part(&memory, 4..12, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
}

/// A user's conversion runs with nothing held: it may call the library, whichever call it is given to.
#[test]
fn a_conversion_may_call_the_library() {
    struct Calls<'a>(&'a Rig);
    impl<'a> From<Calls<'a>> for Slices<'a> {
        fn from(Calls(rig): Calls<'a>) -> Self {
            rig.endpoint.recv(rig.region.slice(..8), 1).unwrap();
            rig.endpoint.post(&rig.write(2)).unwrap();
            assert!(rig.drain().contains(&(2, Status::Ok)));
            rig.region.slice(8..16).into()
        }
    }
    let rig = Rig::new();
    rig.endpoint.recv(Calls(&rig), 3).unwrap();
    rig.endpoint.send(Calls(&rig), 4).unwrap();
    rig.endpoint.write(Calls(&rig), rig.at(0), 5).unwrap();
    rig.endpoint.read(Calls(&rig), rig.at(0), 6).unwrap();
    assert_eq!(rig.drain(), [(6, Status::Ok)]);
    assert_eq!((0..).take_while(|_| rig.link.bring(8, None)).count(), 5);
}

/// A user's formatter is written to with nothing held.
#[test]
fn a_formatter_may_call_the_library() {
    struct Calls<'a>(&'a Rig, usize);
    impl fmt::Write for Calls<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let Calls(rig, written) = self;
            rig.endpoint.post(&rig.write(1)).unwrap();
            assert_eq!(rig.drain(), [(1, Status::Ok)]);
            assert!(rig.domain.events().poll().is_none() && rig.queue.room() > 0);
            *written += text.len();
            Ok(())
        }
    }
    let rig = Rig::new();
    let mut calls = Calls(&rig, 0);
    let events = rig.domain.events();
    write!(calls, "{:?} {:?} {:?} {:?}", rig.queue, events, rig.endpoint, rig.domain).unwrap();
    write!(calls, "{:?} {} {}", rig.remote, rig.remote, rig.domain.selection()).unwrap();
    write!(calls, "{} {}", rig.domain.counters(), rig.endpoint.dump()).unwrap();
    assert!(calls.1 > 0);
}
