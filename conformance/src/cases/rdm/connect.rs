//! Connections on demand.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fabric_rdm::matching::Pattern;
use fabric_rdm::{
    Address, DeathCause, EndpointIdentity, HostIdentity, Kind, PeerEvent, PostError, Recv, Send,
    Status,
};

use crate::prelude::*;
use crate::rdm::{RdmEnd, RdmPair, expect_refused};

pub(super) fn first_post_queues(rig: &Rig) -> Outcome {
    const MESSAGES: u64 = 32;
    let RdmPair { a, b, to_b, to_a } = RdmPair::new(rig)?;
    for context in 0..MESSAGES {
        a.post_send(to_b, &Send::inject(&context.to_le_bytes()).tag(1).context(context))?;
    }
    let inbox = b.buffer(8)?;
    for context in 0..MESSAGES {
        b.post_recv(&Recv::new(Pattern::tagged(1).from(to_a), &inbox).context(context))?;
        b.received(context, 8)?;
        check_eq!(inbox.get::<u64>(0)?, context, "the message of this number");
    }
    for context in 0..MESSAGES {
        a.sent(context)?;
    }
    Ok(())
}

/// Both send each other a message at the same moment.
fn send_at_once(pair: &RdmPair<'_>, round: u64) -> Outcome {
    let RdmPair { a, b, to_b, to_a } = pair;
    let (at_a, at_b) = (a.buffer(8)?, b.buffer(8)?);
    a.post_recv(&Recv::new(Pattern::tagged(1).from(*to_b), &at_a).context(1))?;
    b.post_recv(&Recv::new(Pattern::tagged(1).from(*to_a), &at_b).context(1))?;
    let send = |end: &RdmEnd<'_>, peer| {
        end.post_send(peer, &Send::inject(&round.to_le_bytes()).tag(1).context(2)).map(drop)
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| send(b, *to_a));
        send(a, *to_b)?;
        other.join().unwrap_or(Err(PostError::Fabric(Error::Canceled)))
    })?;
    for end in [a, b] {
        end.expect_all(&[(Kind::Send, 2, Status::Ok), (Kind::Recv, 1, Status::Ok)])?;
    }
    check_eq!((at_a.get::<u64>(0)?, at_b.get::<u64>(0)?), (round, round), "messages");
    Ok(())
}

pub(super) fn crossing(rig: &Rig) -> Outcome {
    for round in 0..rig.count(50, 1000) as u64 {
        send_at_once(&RdmPair::with(rig, |attr| attr.slots = 16)?, round)?;
    }
    Ok(())
}

pub(super) fn crossing_multihomed(rig: &Rig) -> Outcome {
    for round in 0..rig.count(20, 500) {
        let everywhere = |attr: &mut fabric_rdm::RdmAttr| {
            attr.slots = 16;
            attr.listen = attr.listen.map(|addr| match addr.ip() {
                IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            });
        };
        let a = RdmEnd::new(rig, rig.domain_a(), everywhere)?;
        let b = RdmEnd::new(rig, rig.domain_b(), everywhere)?;
        // One side begins with one rail, the other one with the next.
        let to_b = a.insert(&rails_from(rig, &b, round)?)?;
        let to_a = b.insert(&rails_from(rig, &a, round + 1)?)?;
        let pair = RdmPair { a, b, to_b, to_a };
        for again in 0..2 {
            send_at_once(&pair, 2 * round as u64 + again)?;
            for end in [&pair.a, &pair.b] {
                let is_one = |end: &RdmEnd<'_>| end.connections().is_ok_and(|count| count == 1);
                end.until("one connection to be left", is_one)?;
            }
        }
        check_eq!((pair.a.down(to_b)?, pair.b.down(to_a)?), (None, None), "why they are down");
    }
    Ok(())
}

/// The address of an endpoint that listens everywhere, with this one of its rails as the first. There are two at least, if need be
/// one that leads nowhere.
fn rails_from(rig: &Rig, end: &RdmEnd<'_>, first: usize) -> Result<Address, Failed> {
    let own = end.address();
    let is_v4 = rig.addr(end.domain()).is_ipv4();
    let mut rails: Vec<_> = own.rails().filter(|rail| rail.is_ipv4() == is_v4).collect();
    if rails.len() < 2 {
        rails.extend(nowhere(rig, own.identity())?.rails());
    }
    let count = rails.len();
    rails.rotate_left(first % count);
    address(own.identity(), &rails)
}

/// The address of an endpoint that is not there.
fn nowhere(rig: &Rig, identity: EndpointIdentity) -> Result<Address, Failed> {
    address(identity, &[rig.no_listener()])
}

fn address(identity: EndpointIdentity, rails: &[std::net::SocketAddr]) -> Result<Address, Failed> {
    let host = HostIdentity::from_bytes([0; 16]);
    Address::new(identity, host, rails)
        .map_err(|error| Failed::new("an address", error.to_string()))
}

pub(super) fn nobody_listens(rig: &Rig) -> Outcome {
    // It is enough for the peer that is there.
    let short = rig.brief_connect(Duration::from_millis(300));
    let settings = |attr: &mut fabric_rdm::RdmAttr| attr.timeouts.connect = short;
    let pair = RdmPair::with(rig, settings)?;
    pair.greet()?;
    let RdmPair { a, to_b, .. } = &pair;
    let lost = a.insert(&nowhere(rig, EndpointIdentity::random()?)?)?;
    let inbox = a.buffer(8)?;
    a.post_recv(&Recv::new(Pattern::tagged(1).from(lost), &inbox).context(9))?;
    for context in 0..3 {
        a.post_send(lost, &Send::inject(b"is it you?").tag(1).context(context))?;
    }
    a.expect_all(&[
        (Kind::Send, 0, Status::PeerLost),
        (Kind::Send, 1, Status::Canceled),
        (Kind::Send, 2, Status::Canceled),
        (Kind::Recv, 9, Status::PeerLost),
    ])?;
    let cause = DeathCause::Unreachable;
    check_eq!(a.down(lost)?, Some(cause), "why it is down");
    check_eq!(a.poll_event()?, Some(PeerEvent::Down(lost, cause)), "the event");
    expect_refused(a.post_send(lost, &Send::inject(b"again")), |error| {
        matches!(error, PostError::PeerDown(DeathCause::Unreachable))
    })?;
    check_eq!(a.down(*to_b)?, None, "the other peer");
    pair.greet()
}

pub(super) fn wrong_incarnation(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_a, .. } = RdmPair::new(rig)?;
    let rails: Vec<_> = b.address().rails().collect();
    // As after a restart at the same address.
    let before = a.insert(&address(EndpointIdentity::random()?, &rails)?)?;
    let inbox = b.buffer(8)?;
    b.post_recv(&Recv::new(Pattern::untagged(), &inbox).context(1))?;
    a.post_send(before, &Send::inject(b"for another").context(1))?;
    a.expect(Kind::Send, 1, Status::PeerGone)?;
    check_eq!(a.down(before)?, Some(DeathCause::Gone), "why it is down");
    expect_refused(a.post_send(before, &Send::inject(b"for another")), |error| {
        matches!(error, PostError::PeerDown(DeathCause::Gone))
    })?;
    b.nothing()?;
    check_eq!(b.down(to_a)?, None, "the one that is there");
    Ok(())
}

pub(super) fn own_predecessor(rig: &Rig) -> Outcome {
    let RdmPair { a, .. } = RdmPair::new(rig)?;
    let rails: Vec<_> = a.address().rails().collect();
    let own = a.insert(a.address())?;
    let before = a.insert(&address(EndpointIdentity::random()?, &rails)?)?;
    for _ in 0..2 {
        a.post_send(before, &Send::inject(b"for another").context(1))?;
        a.expect(Kind::Send, 1, Status::PeerGone)?;
        a.revive(before)?;
    }
    check_eq!(a.down(own)?, None, "the endpoint for itself");
    let inbox = a.buffer(8)?;
    a.post_recv(&Recv::new(Pattern::untagged().from(own), &inbox).context(2))?;
    a.post_send(own, &Send::inject(b"for me").context(3))?;
    a.expect_all(&[(Kind::Recv, 2, Status::Ok), (Kind::Send, 3, Status::Ok)])
}

pub(super) fn storm(rig: &Rig) -> Outcome {
    let count = rig.count(32, 1000);
    let settings = |attr: &mut fabric_rdm::RdmAttr| {
        attr.slots = 16;
        attr.max_open = 4;
        attr.connection_depth = 16;
    };
    let server = RdmEnd::new(rig, rig.domain_b(), |attr| {
        attr.max_strangers = count as u32;
        attr.max_open = count as u32;
        attr.connection_depth = 16;
    })?;
    let clients = (0..count)
        .map(|_| RdmEnd::new(rig, rig.domain_a(), settings))
        .collect::<Result<Vec<_>, _>>()?;
    for (number, client) in (0u64..).zip(&clients) {
        let peer = client.insert(server.address())?;
        client.post_send(peer, &Send::inject(&number.to_le_bytes()).tag(1).context(number))?;
    }
    let inbox = server.buffer(8)?;
    let mut seen = vec![false; count];
    for context in 0..count as u64 {
        server.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(context))?;
        server.received(context, 8)?;
        let number = inbox.get::<u64>(0)? as usize;
        check!(!std::mem::replace(&mut seen[number], true), "message {number} once");
    }
    for (number, client) in (0..).zip(&clients) {
        client.sent(number)?;
    }
    Ok(())
}

pub(super) fn connect_then_remove(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    let RdmPair { a, b, to_b, .. } = &pair;
    for round in 0..rig.count(20, 500) as u64 {
        let lost = a.insert(&nowhere(rig, EndpointIdentity::random()?)?)?;
        a.post_send(lost, &Send::inject(b"x").context(round))?;
        a.remove(lost)?;
        a.expect(Kind::Send, round, Status::Canceled)?;
        // One that is there, at the moment when it answers.
        let c = RdmEnd::new(rig, rig.domain_b(), |attr| attr.slots = 16)?;
        c.insert(a.address())?;
        let to_c = a.insert(c.address())?;
        a.post_send(to_c, &Send::inject(b"x").context(round))?;
        thread::sleep(Duration::from_micros(50 * (round % 20)));
        a.remove(to_c)?;
        let done = a.next()?;
        check!(
            done.context == round && matches!(done.status, Status::Ok | Status::Canceled),
            "one end of the send, not {done:?}"
        );
        a.nothing_at_once()?;
    }
    check_eq!((a.down(*to_b)?, b.down(pair.to_a)?), (None, None), "the others");
    pair.greet()
}

pub(super) fn hostile_hello(rig: &Rig) -> Outcome {
    let pair = RdmPair::new(rig)?;
    pair.greet()?;
    let RdmPair { b, to_a, .. } = &pair;
    let Some(addr) = b.address().rails().next() else { fail!("a rail", "none") };
    let mut rng = rig.rng();
    let mine = EndpointIdentity::random()?.to_bytes();
    for round in 0..rig.count(50, 5000) {
        let mut data = vec![0; rng.below(49)];
        data.iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
        // Some that are nearly right: of the known peer, or of a stranger, for this endpoint.
        if data.len() == 48 || round % 4 == 0 {
            data.resize(48, 0);
            data[0] = 2;
            data[1] &= 1;
            data[2..18].copy_from_slice(&mine);
            data[18..26].copy_from_slice(&b.address().identity().to_bytes()[..8]);
        }
        let stranger = rig.end(rig.domain_a())?;
        stranger.connect(addr, &data)?;
        match stranger.wait_connected(Some(rig.connect_timeout())) {
            Err(Error::Rejected(_) | Error::Refused(_)) => {}
            other => fail!("a rejection", "{other:?} for {data:?}"),
        }
    }
    check_eq!(b.down(*to_a)?, None, "the peer that is connected");
    check_eq!(b.poll_event()?, None, "events");
    pair.greet()
}

pub(super) fn dead_rail(rig: &Rig) -> Outcome {
    let RdmPair { a, b, .. } = RdmPair::new(rig)?;
    let dead = nowhere(rig, EndpointIdentity::random()?)?;
    a.remove(a.insert(b.address())?)?;
    let rails: Vec<_> = dead.rails().chain(b.address().rails()).collect();
    let to_b = a.insert(&address(b.address().identity(), &rails)?)?;
    let inbox = b.buffer(8)?;
    b.post_recv(&Recv::new(Pattern::tagged(1), &inbox).context(1))?;
    a.post_send(to_b, &Send::inject(b"around").tag(1).context(2))?;
    b.received(1, 6)?;
    a.sent(2)
}

pub(super) fn one_way_firewall(rig: &Rig) -> Outcome {
    // One that says no at once, and one that says nothing.
    one_way(rig, &nowhere(rig, EndpointIdentity::random()?)?)?;
    let silent = rig.listen(rig.domain_a())?;
    one_way(rig, &address(EndpointIdentity::random()?, &[silent.local_addr()])?)
}

/// b has an address of a by which it does not reach it, with the rails of `wall`; a reaches b.
fn one_way(rig: &Rig, wall: &Address) -> Outcome {
    let settings = |attr: &mut fabric_rdm::RdmAttr| {
        attr.timeouts.crossing = rig.scaled(Duration::from_millis(200));
        attr.timeouts.attempt = rig.scaled(Duration::from_secs(60));
        attr.timeouts.connect = attr.timeouts.attempt;
    };
    let mut a = RdmEnd::new(rig, rig.domain_a(), settings)?;
    let mut b = RdmEnd::new(rig, rig.domain_b(), settings)?;
    // b's attempt would win over a's, if it came to anything.
    if a.address().identity() < b.address().identity() {
        std::mem::swap(&mut a, &mut b);
    }
    let rails: Vec<_> = wall.rails().collect();
    let to_a = b.insert(&address(a.address().identity(), &rails)?)?;
    let to_b = a.insert(b.address())?;
    let (at_a, at_b) = (a.buffer(8)?, b.buffer(8)?);
    a.post_recv(&Recv::new(Pattern::tagged(1).from(to_b), &at_a).context(1))?;
    b.post_recv(&Recv::new(Pattern::tagged(1).from(to_a), &at_b).context(1))?;
    b.post_send(to_a, &Send::inject(b"from b").tag(1).context(2))?;
    a.nothing()?;
    a.post_send(to_b, &Send::inject(b"from a").tag(1).context(2))?;
    for end in [&a, &b] {
        end.expect_all(&[(Kind::Send, 2, Status::Ok), (Kind::Recv, 1, Status::Ok)])?;
    }
    // By now b knows where a is: the connection said so.
    check_eq!(&b.address_of(to_a)?, a.address(), "the address that a said");
    Ok(())
}

pub(super) fn nobody_answers(rig: &Rig) -> Outcome {
    let short = rig.scaled(Duration::from_millis(300));
    let a = RdmEnd::new(rig, rig.domain_a(), |attr| attr.timeouts.connect = short)?;
    let silent = rig.listen(rig.domain_b())?;
    let lost = a.insert(&address(EndpointIdentity::random()?, &[silent.local_addr()])?)?;
    // By now its own thread sleeps, and knows of no time.
    thread::sleep(Duration::from_millis(50));
    a.post_send(lost, &Send::inject(b"is it you?").context(1))?;
    // Without a poll.
    let waited = a.counter(Kind::Send).wait_for(1, 0, Some(rig.scaled(Duration::from_secs(5))));
    check_err!(waited, Error::InvalidState(_), "a wait for a send that fails");
    a.expect(Kind::Send, 1, Status::PeerLost)?;
    check_eq!(a.down(lost)?, Some(DeathCause::Unreachable), "why it is down");
    Ok(())
}
