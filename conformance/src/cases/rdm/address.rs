//! Peers by address: inserting, removing, strangers, and the endpoint itself.

use fabric_rdm::matching::Pattern;
use fabric_rdm::{
    Address, AddressError, Kind, MAX_ADDRESS_BYTES, PeerEvent, PostError, Recv, Send, Status,
};

use crate::prelude::*;
use crate::rdm::{LENGTHS, RdmEnd, RdmPair, expect_refused};

pub(super) fn survive_shipping(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, .. } = RdmPair::new(rig)?;
    let (bytes, text) = (b.address().to_bytes(), b.address().to_string());
    check!(bytes.len() <= MAX_ADDRESS_BYTES, "at most {MAX_ADDRESS_BYTES} bytes");
    for shipped in [Address::from_bytes(&bytes), text.parse(), format!(" {text}\n").parse()] {
        let shipped = shipped.map_err(|error| Failed::new("an address", error.to_string()))?;
        check!(&shipped == b.address(), "the same address, not {shipped:?}");
        check_eq!(a.insert(&shipped)?, to_b, "its peer");
    }
    for bit in 0..bytes.len() * 8 {
        let mut wrong = bytes.clone();
        wrong[bit / 8] ^= 1 << (bit % 8);
        check!(Address::from_bytes(&wrong).is_err(), "an error for bit {bit} flipped");
    }
    // As another version of the library would make it, with the sum that it has to have.
    let (sum, mut newer) = (bytes.len() - 4, bytes.clone());
    newer[4] += 1;
    let summed = crc32(&newer[..sum]).to_be_bytes();
    newer[sum..].copy_from_slice(&summed);
    let _ = check_matches!(
        Address::from_bytes(&newer),
        Err(AddressError::Version { .. }),
        "an address of a newer version"
    );
    for len in 0..bytes.len() {
        check!(Address::from_bytes(&bytes[..len]).is_err(), "an error for {len} bytes");
    }
    check!(Address::from_bytes(&[&bytes[..], &[0]].concat()).is_err(), "an error for one more");
    check!(text[1..].parse::<Address>().is_err(), "an error for a digit less");
    Ok(())
}

/// The check sum of an address, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let sum = bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            sum >> 1 ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 }
        })
    });
    !sum
}

pub(super) fn insert_twice(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, .. } = RdmPair::new(rig)?;
    check_eq!(a.insert(b.address())?, to_b, "the peer of an address that is there");
    let again = b.address().to_string().parse().map_err(|error: fabric_rdm::AddressError| {
        Failed::new("an address that comes back from its text", error.to_string())
    })?;
    check_eq!(a.insert(&again)?, to_b, "the peer of its text");
    a.remove(to_b)?;
    check!(a.insert(b.address())? != to_b, "another handle after a removal");
    Ok(())
}

pub(super) fn stale_handle(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, .. } = RdmPair::new(rig)?;
    a.remove(to_b)?;
    let other = RdmEnd::new(rig, rig.domain_b(), |_| ())?;
    let to_other = a.insert(other.address())?;
    check_eq!(to_other.index(), to_b.index(), "the place of the new peer");
    let invalid = |error: &PostError| matches!(error, PostError::Fabric(Error::InvalidArgument(_)));
    expect_refused(a.post_send(to_b, &Send::inject(b"lost")), invalid)?;
    let inbox = a.buffer(8)?;
    expect_refused(a.post_recv(&Recv::new(Pattern::untagged().from(to_b), &inbox)), invalid)?;
    check_err!(a.remove(to_b), Error::InvalidArgument(_), "a removed peer");
    check_err!(a.revive(to_b), Error::InvalidArgument(_), "a removed peer");
    check_err!(a.down(to_b), Error::InvalidArgument(_), "a removed peer");
    // Nothing has gone to either.
    b.nothing()?;
    other.nothing()
}

pub(super) fn remove_pending(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    let RdmPair { a, b, to_b, .. } = &pair;
    let c = RdmEnd::new(rig, rig.domain_b(), |_| ())?;
    c.insert(a.address())?;
    let to_c = a.insert(c.address())?;
    pair.greet()?;
    let (long, inbox) = (a.patterned(100_000, 0)?, a.buffer(64)?);
    // A send that waits at its sender, a receive from that peer alone, and one from any.
    a.post_send(*to_b, &Send::new(&long).tag(1).context(10))?;
    a.post_recv(&Recv::new(Pattern::tagged(5).from(*to_b), inbox.slice(..8)).context(11))?;
    a.post_recv(&Recv::new(Pattern::tagged(6), inbox.slice(8..16)).context(12))?;
    a.post_send(to_c, &Send::inject(b"to c").tag(7).context(13))?;
    a.sent(13)?;
    a.remove(*to_b)?;
    a.expect_all(&[(Kind::Send, 10, Status::Canceled), (Kind::Recv, 11, Status::Canceled)])?;
    a.nothing()?;
    // The other peer goes on, and the receive from any.
    let to_a = c.insert(a.address())?;
    c.post_send(to_a, &Send::inject(b"from c").tag(6).context(1))?;
    a.received(12, 6)?;
    check!(b.down(pair.to_a).is_ok(), "the peer itself is as it was");
    Ok(())
}

pub(super) fn remove_late_message(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    let RdmPair { a, b, to_b, to_a } = &pair;
    pair.greet()?;
    for (context, len) in (0..).zip(LENGTHS) {
        let source = b.patterned(len.max(1), 0)?;
        let send = Send::new(source.slice(..len)).tag(3).context(context);
        b.when_room(|| b.post_send(*to_a, &send))?;
    }
    a.until("a message of it", |a| {
        a.probe(&Pattern::tagged(3)).is_ok_and(|found| found.is_some())
    })?;
    a.remove(*to_b)?;
    check!(a.probe(&Pattern::tagged(3))?.is_none(), "no message of a removed peer");
    let inbox = a.buffer(1 << 20)?;
    a.post_recv(&Recv::new(Pattern::tagged(3), &inbox).context(9))?;
    a.nothing()?;
    let c = RdmEnd::new(rig, rig.domain_b(), |_| ())?;
    a.insert(c.address())?;
    let to_a = c.insert(a.address())?;
    c.post_send(to_a, &Send::inject(b"of another").tag(3).context(1))?;
    a.received(9, 10).map(drop)
}

pub(super) fn stranger_refused(rig: &Rig) -> Outcome {
    let a = RdmEnd::new(rig, rig.domain_a(), |_| ())?;
    let b = RdmEnd::new(rig, rig.domain_b(), |_| ())?;
    let to_b = a.insert(b.address())?;
    a.post_send(to_b, &Send::inject(b"am I known?").tag(1).context(1))?;
    a.nothing()?;
    check_eq!(b.poll_event()?, None, "events of a stranger that is refused");
    let to_a = b.insert(a.address())?;
    let inbox = b.buffer(64)?;
    b.post_recv(&Recv::new(Pattern::tagged(1).from(to_a), &inbox).context(2))?;
    b.received(2, 11)?;
    a.sent(1)
}

pub(super) fn stranger_admitted(rig: &Rig) -> Outcome {
    const ADMITTED: usize = 2;
    let server = RdmEnd::new(rig, rig.domain_b(), |attr| attr.max_strangers = ADMITTED as u32)?;
    let inbox = server.buffer(64)?;
    let mut clients = Vec::new();
    for number in 0..ADMITTED as u64 {
        let client = RdmEnd::new(rig, rig.domain_a(), |_| ())?;
        let peer = client.insert(server.address())?;
        client.post_send(peer, &Send::inject(b"let me in").tag(number).context(1))?;
        server.post_recv(&Recv::new(Pattern::tagged(number), &inbox).context(2))?;
        let done = server.received(2, 9)?;
        client.sent(1)?;
        let Some(PeerEvent::Admitted(admitted)) = server.poll_event()? else {
            fail!("an event of an admitted stranger", "none");
        };
        check_eq!(done.peer, Some(admitted), "whose message it was");
        check_eq!(&server.address_of(admitted)?, client.address(), "the stranger's address");
        // It is answered, and by its address again when it is parked.
        let answer = client.buffer(64)?;
        client.post_recv(&Recv::new(Pattern::untagged(), &answer).context(3))?;
        server.post_send(admitted, &Send::inject(b"welcome").context(4))?;
        client.received(3, 7)?;
        server.sent(4)?;
        clients.push((client, admitted));
    }
    let late = RdmEnd::new(rig, rig.domain_a(), |_| ())?;
    let peer = late.insert(server.address())?;
    late.post_send(peer, &Send::inject(b"and me?").tag(9).context(1))?;
    late.nothing()?;
    check_eq!(server.poll_event()?, None, "events of one too many");
    // One leaves, so there is room.
    server.remove(clients[0].1)?;
    server.post_recv(&Recv::new(Pattern::tagged(9), &inbox).context(5))?;
    server.received(5, 7)?;
    late.sent(1)
}

pub(super) fn self_send(rig: &Rig) -> Outcome {
    let a = RdmEnd::new(rig, rig.domain_a(), |_| ())?;
    let me = a.insert(a.address())?;
    check_eq!(a.insert(a.address())?, me, "oneself, again");
    let (source, inbox) = (a.patterned(1 << 20, 0)?, a.buffer(1 << 20)?);
    for (round, len) in LENGTHS.into_iter().enumerate() {
        let recv = Recv::new(Pattern::tagged(1).from(me), inbox.slice(..len)).context(1);
        let send = Send::new(source.slice(..len)).tag(1).immediate(7).context(2);
        if round % 2 == 0 {
            a.post_recv(&recv)?;
            a.post_send(me, &send)?;
        } else {
            a.post_send(me, &send)?;
            a.nothing()?;
            a.post_recv(&recv)?;
        }
        let done = a.received(1, len)?;
        check_eq!((done.peer, done.tag, done.immediate), (Some(me), Some(1), Some(7)), "{done:?}");
        a.sent(2)?;
        inbox.check_pattern(..len, rig.pattern(0))?;
    }
    // Injected, unexpected, truncated, and canceled.
    a.post_send(me, &Send::inject(b"injected").context(3))?;
    a.post_recv(&Recv::new(Pattern::untagged(), inbox.slice(..4)).context(4))?;
    let done = a.expect(Kind::Recv, 4, Status::Truncated)?;
    check_eq!((done.len, done.message_len), (4, 8), "lengths");
    a.sent(3)?;
    let id = a.post_send(me, &Send::inject(b"never").context(5))?;
    check!(a.cancel(id)?, "a message without a receive is canceled");
    a.expect(Kind::Send, 5, Status::Canceled)?;
    check!(a.probe(&Pattern::untagged())?.is_none(), "nothing is left");
    Ok(())
}
