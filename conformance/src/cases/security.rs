//! Both ends of a connection have the same secret, or neither application hears of the other.

use std::collections::HashSet;

use fabric::{
    Domain, Hints, Listener, ListenerAttr, MAX_ACCEPT_DATA, MAX_CONNECT_DATA, Secret, Security,
};

use super::connection::steps::{connect_failed, connected, exchange, meet, message, next_request};
use crate::check::check_says;
use crate::prelude::*;

const AUTHENTICATED: Needs = Needs::SEND.secured(Security::Authenticated);
const SECRETS: &str = "domains of one process, with secrets of the case's own";

pub(super) const CASES: &[Case] = cases! { Security:
    self::declared, Needs::NOTHING,
        "a device has the security that it declares; hints for more are NoProvider, which says so, and a level without a secret InvalidArgument"
        .freedom(Freedom::Whole("which levels a device offers is its own"));
    self::same_secret, AUTHENTICATED,
        "both ends have the secret: private data of all lengths, an accept, a reject and messages, as without" .local_only(SECRETS);
    self::no_secret, AUTHENTICATED,
        "one end has no secret: Unauthenticated, once, whichever it is; the listener's application hears nothing" .local_only(SECRETS);
    self::other_secret, AUTHENTICATED,
        "the ends have two secrets, though only a bit differs: as without" .local_only(SECRETS);
    self::no_place_for_strangers, AUTHENTICATED,
        "backlog 1, and many that have another secret: who has the right one gets in"
        .local_only(SECRETS).freedom(Freedom::Whole("in which order the crowd hears of it is open"));
};

fn secret(of: u8) -> Secret {
    let bytes = [of; 32];
    Secret::new(&bytes).unwrap_or_else(|error| unreachable!("32 bytes: {error}"))
}

fn declared(rig: &Rig) -> Outcome {
    let (target, info) = (rig.target(), rig.target().info());
    for security in Security::ALL {
        let hints = |secret| Hints {
            security,
            secret,
            capabilities: Capabilities::empty(),
            ..Hints::default()
        };
        let open = |hints| target.catalog().open_with(&target.choice(), &hints);
        if security > Security::Open {
            let error = check_err!(
                open(hints(None)),
                Error::InvalidArgument(_),
                "a level without a secret"
            );
            check_says(
                &error.to_string(),
                &["secret", "FABRIC_SECRET_FILE"],
                "a level without a secret",
            )?;
        }
        let secret = (security > Security::Open).then(|| secret(1));
        if security <= info.security {
            let domain = open(hints(secret))?;
            check!(domain.security() >= security, "{security}: it has that level");
            continue;
        }
        let error = check_err!(
            open(hints(secret)),
            Error::NoProvider(_),
            "{security}, which is not offered"
        );
        let (wanted, offered) = (security.to_string(), info.security.to_string());
        check_says(&error.to_string(), &["security", &wanted, &offered], "what is not offered")?;
    }
    Ok(())
}

fn same_secret(rig: &Rig) -> Outcome {
    let (here, there) =
        (rig.secured_domain(Some(&secret(1)))?, rig.secured_domain(Some(&secret(1)))?);
    check_eq!(there.security(), Security::Authenticated, "security of a domain with a secret");
    let listener = rig.listen(&there)?;
    for (i, (asks, answers)) in
        [(0, 0), (1, 1), (MAX_CONNECT_DATA, MAX_ACCEPT_DATA)].into_iter().enumerate()
    {
        let (a, b) = (rig.end(&here)?, rig.end(&there)?);
        let (asks, answers) = (rig.pattern(i).bytes(asks), rig.pattern(10 + i).bytes(answers));
        exchange(rig, &listener, [&a, &b], [&asks, &answers])?;
        message(&a, &b, rig.pattern(i))?;
        message(&b, &a, rig.pattern(20 + i))?;
    }
    let a = rig.end(&here)?;
    a.connect(listener.local_addr(), &[])?;
    next_request(rig, &listener)?.reject(b"not now")?;
    let error = connect_failed(&a)?;
    check_matches!(&error, Error::Rejected(data) if &***data == b"not now", "a rejection");
    check_eq!(there.counters().provider.peers_unauthenticated, 0, "strangers");
    Ok(())
}

/// One end has a secret, or both have one, and they do not connect: once from each side.
fn strangers(rig: &Rig, mine: &Secret, other: Option<&Secret>) -> Outcome {
    for [from, to] in [[Some(mine), other], [other, Some(mine)]] {
        let (here, there) = (rig.secured_domain(from)?, rig.secured_domain(to)?);
        let listener = rig.listen(&there)?;
        for round in 1..=3 {
            is_refused(rig, &here, &listener, b"let me in")?;
            check_eq!(there.counters().provider.peers_unauthenticated, round, "strangers");
        }
        check!(listener.poll().is_none(), "no request of a stranger");
        let mut events = there.events().poll();
        check!(events.take().is_none(), "no event of a stranger, but {events:?}");
        // The listener is unharmed.
        let friend = rig.secured_domain(to)?;
        let (a, b) = (rig.end(&friend)?, rig.end(&there)?);
        meet(rig, &listener, &a, &b)?;
        message(&a, &b, rig.pattern(0))?;
    }
    Ok(())
}

/// The attempt ends with `Unauthenticated`, which says what would help.
fn is_refused(rig: &Rig, from: &Domain, to: &Listener, data: &[u8]) -> Outcome {
    let end = rig.end(from)?;
    end.recv(Slices::none(), 1)?;
    end.connect(to.local_addr(), data)?;
    let error = connect_failed(&end)?;
    let text = check_matches!(&error, Error::Unauthenticated(_), "a stranger").to_string();
    check_says(&text, &["secret", &to.local_addr().to_string()], "a stranger")?;
    check_eq!(end.state(), EndpointState::Dead, "state of a stranger");
    end.expect_canceled([1])?;
    end.expect_no_event_for(Duration::from_millis(20))
}

fn no_secret(rig: &Rig) -> Outcome {
    strangers(rig, &secret(1), None)
}

fn other_secret(rig: &Rig) -> Outcome {
    strangers(rig, &secret(1), Some(&secret(3)))?;
    // Of the longest ones the last bit.
    let mut bytes = [7; 64];
    let mine = Secret::new(&bytes)?;
    bytes[63] ^= 1;
    strangers(rig, &mine, Some(&Secret::new(&bytes)?))
}

fn no_place_for_strangers(rig: &Rig) -> Outcome {
    let mine = secret(1);
    let (friend, stranger) =
        (rig.secured_domain(Some(&mine))?, rig.secured_domain(Some(&secret(2)))?);
    let there = rig.secured_domain(Some(&mine))?;
    let mut attr = ListenerAttr::default();
    attr.backlog = 1;
    let listener = there.listen_with(rig.addr(&there), &attr)?;
    let count = rig.count(20, 100);
    let crowd = (0..count).map(|_| rig.end(&stranger)).collect::<Result<Vec<_>, _>>()?;
    for end in &crowd {
        end.connect(listener.local_addr(), &[])?;
    }
    let (a, b) = (rig.end(&friend)?, rig.end(&there)?);
    a.connect(listener.local_addr(), b"with the secret")?;
    let mut request = next_request(rig, &listener)?;
    check_bytes!(request.private_data(), b"with the secret", "the only request");
    request.accept(&b, &[])?;
    connected(&a, &b)?;
    let mut left: HashSet<_> = crowd.iter().map(|end| end.id()).collect();
    while let (false, Some(any)) = (left.is_empty(), crowd.first()) {
        match any.next_event()? {
            Event::ConnectFailed { endpoint, error: Error::Unauthenticated(_) }
                if left.remove(&endpoint) => {}
            event => {
                fail!("ConnectFailed(Unauthenticated), of each of the crowd once", "{event:?}")
            }
        }
    }
    check!(listener.poll().is_none(), "no request of a stranger");
    check_eq!(there.counters().provider.peers_unauthenticated, count as u64, "strangers");
    Ok(())
}
