//! What is kept for later: parts of regions, and whole operations.

use fabric::{Access, AtomicOp, EndpointAttr, Error, Op, OpKind, OwnedOp, RemoteRegion, Slice};

use crate::rig::{Rig, domain, invalid};

#[test]
fn a_part_that_is_held_is_an_operation_in_flight() {
    let (domain, control) = domain();
    let region = domain.alloc(64, Access::LOCAL_WRITE).unwrap();
    let held = region.slice(8..24).hold().unwrap();
    assert_eq!((held.len(), held.is_empty()), (16, false));
    assert!(matches!(region.close(), Err(Error::Busy)));
    held.as_slice().write_at(4, b"held").unwrap();
    assert_eq!(region.to_vec(12..16).unwrap(), b"held");
    drop(held);
    region.close().unwrap();
    assert!(matches!(region.slice(..8).hold(), Err(Error::InvalidState(_))));
    // Without the handle it stays until it is let go.
    let region = domain.alloc(64, Access::LOCAL_WRITE).unwrap();
    let held = region.slice(..).hold().unwrap();
    drop(region);
    assert_eq!(control.registrations(), 1);
    let mut bytes = [1; 4];
    held.as_slice().read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 4]);
    drop(held);
    assert_eq!(control.registrations(), 0);
}

#[test]
fn parts_of_parts_stay_within_them() {
    let (domain, _) = domain();
    let region = domain.alloc(64, Access::LOCAL_WRITE).unwrap();
    let part = region.slice(16..32);
    part.slice(4..8).write_at(0, b"1234").unwrap();
    assert_eq!(region.to_vec(20..24).unwrap(), b"1234");
    assert_eq!((part.slice(4..).len(), part.slice(16..).is_empty()), (12, true));
    invalid(region.slice(..65).hold());
    let (start, end) = (8, 4);
    for beyond in [part.slice(..17), part.slice(17..), part.slice(start..end)] {
        invalid(beyond.hold());
        invalid(beyond.read_at(0, &mut [0]));
    }
    invalid(part.write_at(13, b"1234"));
    invalid(part.read_at(usize::MAX, &mut [0; 2]));
}

#[test]
fn bytes_go_from_part_to_part() {
    let (domain, _) = domain();
    let (from, to) =
        (domain.alloc(16, Access::empty()).unwrap(), domain.alloc(16, Access::ALL).unwrap());
    from.write_at(0, b"0123456789abcdef").unwrap();
    to.slice(2..6).copy_from(from.slice(10..14)).unwrap();
    assert_eq!(to.to_vec(..8).unwrap(), b"\0\0abcd\0\0");
    // Within one region, over each other.
    from.slice(1..9).copy_from(from.slice(0..8)).unwrap();
    assert_eq!(from.to_vec(..10).unwrap(), b"0012345679");
    assert!(invalid(to.slice(..4).copy_from(from.slice(..5))).contains("5 bytes"));
    invalid(to.slice(14..18).copy_from(from.slice(..4)));
}

#[test]
fn an_operation_is_checked_before_there_is_a_connection() {
    let rig = Rig::new();
    let attr = EndpointAttr::default();
    let region = rig.domain.alloc(64, Access::LOCAL_WRITE).unwrap();
    let all = |access| RemoteRegion::from_parts(7, 0, 64, access);
    let remote = all(Access::ALL);
    let check = |op: &Op<'_>| OwnedOp::new(&rig.domain, &attr, op);
    invalid(check(&Op::send(region.slice(..65))));
    invalid(check(&Op::inject(&vec![0; attr.inject + 1])));
    invalid(check(&Op::read(region.slice(..), all(Access::REMOTE_WRITE).at(0))));
    invalid(check(&Op::write(region.slice(..8), remote.at(60))));
    invalid(check(&Op::atomic(AtomicOp::Add, 1u64, remote.at(4))));
    let read_only = rig.domain.alloc(8, Access::empty()).unwrap();
    invalid(check(&Op::read(read_only.slice(..), remote.at(0))));
    let foreign = domain().0.alloc(8, Access::ALL).unwrap();
    invalid(check(&Op::send(foreign.slice(..))));
    let many: Vec<_> = (0..attr.send_segments + 1).map(|n| region.slice(n..n + 1)).collect();
    invalid(check(&Op::send(&many[..])));
}

#[test]
fn a_kept_operation_is_posted_as_it_was() {
    let rig = Rig::new();
    let attr = EndpointAttr::default();
    let region = rig.domain.alloc(64, Access::LOCAL_WRITE).unwrap();
    let parts: [Slice<'_>; 2] = [region.slice(..8), region.slice(32..40)];
    let kept = OwnedOp::new(&rig.domain, &attr, &Op::send(&parts)).unwrap();
    assert_eq!(kept.kind(), OpKind::Send);
    let injected = OwnedOp::new(&rig.domain, &attr, &Op::inject(b"bytes")).unwrap();
    assert!(matches!(region.close(), Err(Error::Busy)));
    kept.post(&rig.endpoint, 5).unwrap();
    injected.post(&rig.endpoint, 6).unwrap();
    drop((kept, injected));
    let ended: Vec<_> = std::iter::from_fn(|| rig.queue.poll_one().unwrap()).collect();
    let ended: Vec<_> = ended.iter().map(|end| (end.context, end.len, end.is_ok())).collect();
    assert_eq!(ended, [(5, 16, true), (6, 5, true)]);
    region.close().unwrap();
}

/// What is renewed is the new operation and nothing of the old one, and lets go of that one's regions.
#[test]
fn a_kept_operation_is_renewed_in_its_place() {
    let rig = Rig::new();
    let attr = EndpointAttr::default();
    let region = rig.domain.alloc(64, Access::LOCAL_WRITE).unwrap();
    let parts: [Slice<'_>; 2] = [region.slice(..8), region.slice(32..40)];
    let two_parts = Op::send(&parts);
    let mut kept = OwnedOp::new(&rig.domain, &attr, &two_parts.immediate(7)).unwrap();
    kept.renew(&rig.domain, &attr, &Op::inject(b"bytes")).unwrap();
    assert_eq!(kept.len(), 5);
    kept.post(&rig.endpoint, 1).unwrap();
    kept.renew(&rig.domain, &attr, &Op::send(region.slice(..16))).unwrap();
    assert!(matches!(region.close(), Err(Error::Busy)));
    kept.post(&rig.endpoint, 2).unwrap();
    // It is refused, and then nothing is held of either.
    invalid(kept.renew(&rig.domain, &attr, &Op::send(region.slice(..65))));
    assert_eq!(kept.len(), 0);
    let ended: Vec<_> = std::iter::from_fn(|| rig.queue.poll_one().unwrap()).collect();
    let ended: Vec<_> = ended.iter().map(|end| (end.context, end.len, end.is_ok())).collect();
    assert_eq!(ended, [(1, 5, true), (2, 16, true)]);
    assert!(matches!(kept.post(&rig.endpoint, 3), Err(Error::InvalidState(_))));
    region.close().unwrap();
    kept.renew(&rig.domain, &attr, &Op::inject(b"")).unwrap();
    kept.post(&rig.endpoint, 4).unwrap();
    kept.let_go();
    assert!(matches!(kept.post(&rig.endpoint, 5), Err(Error::InvalidState(_))));
}
