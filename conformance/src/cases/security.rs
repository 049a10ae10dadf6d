//! Both ends of a connection have the same secret, or identities that each trusts, or neither application hears of the other.

use std::collections::HashSet;

use fabric::{
    Domain, Hints, Listener, ListenerAttr, MAX_ACCEPT_DATA, MAX_CONNECT_DATA, Secret, Security,
};

use super::connection::steps::{connect_failed, connected, exchange, meet, message, next_request};
use super::crowd::joined;
use crate::authority::Authority;
use crate::check::check_says;
use crate::prelude::*;
use crate::target::{Level, is_secured};

const AUTHENTICATED: Needs = Needs::SEND.secured(Security::Authenticated);
const ENCRYPTED: Needs = Needs::ALL.secured(Security::Encrypted);
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
    self::encrypted, ENCRYPTED,
        "messages, and reads, writes and atomics of all lengths, go over an encrypted connection, both ways at once" .local_only(SECRETS);
    self::encrypted_strangers, ENCRYPTED,
        "one end encrypts, and the other has no secret, or another one: as where none does" .local_only(SECRETS);
    self::levels_differ, ENCRYPTED,
        "both ends have the secret, and one encrypts: Unauthenticated, once, whichever it is; there is no fallback" .local_only(SECRETS);
    self::identity, ENCRYPTED,
        "both ends have certificates of one authority, with a secret and without: all as where both have a secret, and each learns the name that the other has proved" .local_only(SECRETS);
    self::identity_of_another_authority, ENCRYPTED,
        "the ends have certificates of two authorities, and one or none trusts both: Unauthenticated, once, whichever it is; the listener's application hears nothing" .local_only(SECRETS);
    self::identity_at_one_end, ENCRYPTED,
        "one end has an identity, and the other has none, with a secret or without; or both have, and one has a secret: as with two authorities" .local_only(SECRETS);
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
        if security > Security::Open && !is_secured() {
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
    let secret = secret(1);
    let ours = Level::secret(Security::Authenticated, &secret);
    let (here, there) = (rig.secured_domain(ours)?, rig.secured_domain(ours)?);
    check_eq!(there.security(), Security::Authenticated, "security of a domain with a secret");
    acquainted(rig, &here, &there)
}

/// Two that have what it takes: what they say to each other as they connect arrives, and what follows.
fn acquainted(rig: &Rig, here: &Domain, there: &Domain) -> Outcome {
    let listener = rig.listen(there)?;
    for (i, (asks, answers)) in
        [(0, 0), (1, 1), (MAX_CONNECT_DATA, MAX_ACCEPT_DATA)].into_iter().enumerate()
    {
        let (a, b) = (rig.end(here)?, rig.end(there)?);
        let (asks, answers) = (rig.pattern(i).bytes(asks), rig.pattern(10 + i).bytes(answers));
        exchange(rig, &listener, [&a, &b], [&asks, &answers])?;
        message(&a, &b, rig.pattern(i))?;
        message(&b, &a, rig.pattern(20 + i))?;
    }
    let a = rig.end(here)?;
    a.connect(listener.local_addr(), &[])?;
    next_request(rig, &listener)?.reject(b"not now")?;
    let error = connect_failed(&a)?;
    check_matches!(&error, Error::Rejected(data) if &***data == b"not now", "a rejection");
    check_eq!(there.counters().provider.peers_unauthenticated, 0, "strangers");
    Ok(())
}

/// One end has this, the other that, and they do not connect, for what is named: once from each side.
fn strangers(rig: &Rig, what: &str, one: Level<'_>, other: Level<'_>) -> Outcome {
    for [from, to] in [[one, other], [other, one]] {
        let (here, there) = (rig.secured_domain(from)?, rig.secured_domain(to)?);
        let listener = rig.listen(&there)?;
        for round in 1..=3 {
            is_refused(rig, &here, &listener, what)?;
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

/// The attempt ends with `Unauthenticated`, which says what is missing.
fn is_refused(rig: &Rig, from: &Domain, to: &Listener, what: &str) -> Outcome {
    let end = rig.end(from)?;
    end.recv(Slices::none(), 1)?;
    end.connect(to.local_addr(), b"let me in")?;
    let error = connect_failed(&end)?;
    let text = check_matches!(&error, Error::Unauthenticated(_), "a stranger").to_string();
    check_says(&text, &[what, &to.local_addr().to_string()], "a stranger")?;
    check_eq!(end.state(), EndpointState::Dead, "state of a stranger");
    end.expect_canceled([1])?;
    end.expect_no_event_for(Duration::from_millis(20))
}

fn no_secret(rig: &Rig) -> Outcome {
    strangers(rig, "secret", Level::secret(Security::Authenticated, &secret(1)), Level::OPEN)
}

fn other_secret(rig: &Rig) -> Outcome {
    other_secrets(rig, Security::Authenticated)
}

fn other_secrets(rig: &Rig, security: Security) -> Outcome {
    let apart = |one: &Secret, other: &Secret| {
        strangers(rig, "secret", Level::secret(security, one), Level::secret(security, other))
    };
    apart(&secret(1), &secret(3))?;
    // Of the longest ones the last bit.
    let mut bytes = [7; 64];
    let mine = Secret::new(&bytes)?;
    bytes[63] ^= 1;
    apart(&mine, &Secret::new(&bytes)?)
}

fn no_place_for_strangers(rig: &Rig) -> Outcome {
    let domain = |secret| rig.secured_domain(Level::secret(Security::Authenticated, secret));
    let (mine, other) = (&secret(1), &secret(2));
    let (friend, stranger, there) = (domain(mine)?, domain(other)?, domain(mine)?);
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

fn encrypted(rig: &Rig) -> Outcome {
    let secret = secret(1);
    let ours = Level::secret(Security::Encrypted, &secret);
    let (here, there) = (rig.secured_domain(ours)?, rig.secured_domain(ours)?);
    check_eq!(there.security(), Security::Encrypted, "security of a domain that encrypts");
    acquainted(rig, &here, &there)?;
    let listener = rig.listen(&there)?;
    let (a, b) = (rig.end(&here)?, rig.end(&there)?);
    meet(rig, &listener, &a, &b)?;
    check_eq!([a.peer_identity(), b.peer_identity()], [None, None], "names that none has proved");
    thread::scope(|scope| {
        let back = scope.spawn(|| all_kinds(rig, &b, &a, 1));
        all_kinds(rig, &a, &b, 0).and(joined(back))
    })
}

/// Operations of each kind, of lengths about those of a record (16 KiB) and of what is encrypted at a time.
fn all_kinds(rig: &Rig, from: &End, to: &End, side: usize) -> Outcome {
    let words = to.buffer(8)?;
    for (round, len) in
        [0, 1, 64, 4095, 16_383, 16_384, 16_385, 65_537, 262_144, 1_000_003].into_iter().enumerate()
    {
        let pattern = rig.pattern(2 * round + side);
        let bytes = pattern.bytes(len);
        let (source, back) = (from.holding(&bytes)?, from.buffer(len)?);
        let (target, old) = (to.buffer(len)?, from.buffer(8)?);
        from.write(&source, target.at(0), 1)?;
        from.read(&back, target.at(0), 2)?;
        from.fetch_add(3u64, old.slice(..), words.at(0), 3)?;
        for (context, done) in [(1, Done::write(1, len)), (2, Done::read(2, len))] {
            let seen = from.next()?;
            check_eq!(seen.context, context, "the order of {seen:?}");
            done.check(&seen)?;
        }
        from.expect_ok(3)?;
        check_bytes!(back.bytes(..)?, bytes, "{len} bytes, written and read back");
        check_bytes!(old.bytes(..)?, (3 * round as u64).to_ne_bytes(), "the sum of round {round}");
    }
    Ok(())
}

fn encrypted_strangers(rig: &Rig) -> Outcome {
    strangers(rig, "secret", Level::secret(Security::Encrypted, &secret(1)), Level::OPEN)?;
    other_secrets(rig, Security::Encrypted)
}

fn levels_differ(rig: &Rig) -> Outcome {
    let secret = secret(1);
    let of = |security| Level::secret(security, &secret);
    strangers(rig, "secret", of(Security::Encrypted), of(Security::Authenticated))
}

const ONE: &str = "spiffe://case.example/one";
const OTHER: &str = "spiffe://case.example/other";

fn identity(rig: &Rig) -> Outcome {
    let authority = Authority::new()?;
    let (one, other) = (authority.member(ONE)?, authority.member(OTHER)?);
    for secret in [None, Some(&secret(1))] {
        let of = |identity| rig.secured_domain(Level { secret, ..Level::identity(identity) });
        let (here, there) = (of(&one)?, of(&other)?);
        check_eq!(there.security(), Security::Encrypted, "security of a domain with an identity");
        acquainted(rig, &here, &there)?;
        let listener = rig.listen(&there)?;
        let (a, b) = (rig.end(&here)?, rig.end(&there)?);
        check_eq!(a.peer_identity(), None, "a name before there is a connection");
        a.connect(listener.local_addr(), &[])?;
        let mut request = next_request(rig, &listener)?;
        check_eq!(request.identity(), Some(ONE), "who asks");
        request.accept(&b, &[])?;
        connected(&a, &b)?;
        let names = || [a.peer_identity(), b.peer_identity()];
        let proved = [Some(OTHER.into()), Some(ONE.into())];
        check_eq!(names(), proved, "who is at the other end");
        all_kinds(rig, &a, &b, 0)?;
        a.disconnect();
        a.expect_disconnected()?;
        b.expect_disconnected()?;
        check_eq!(names(), proved, "who was at the other end");
    }
    Ok(())
}

fn identity_of_another_authority(rig: &Rig) -> Outcome {
    // Of the same name: it is the key that counts.
    let (here, there) = (Authority::new()?, Authority::new()?);
    let (ours, theirs) = (here.member(ONE)?, there.member(ONE)?);
    strangers(rig, "authority", Level::identity(&ours), Level::identity(&theirs))?;
    // One of them would take the other: that each is asked for is no help.
    let theirs = there.member_that_trusts(ONE, &[&here, &there])?;
    strangers(rig, "authority", Level::identity(&ours), Level::identity(&theirs))
}

fn identity_at_one_end(rig: &Rig) -> Outcome {
    let (identity, secret) = (Authority::new()?.member(ONE)?, secret(1));
    let alone = Level::identity(&identity);
    let both = Level { secret: Some(&secret), ..alone };
    strangers(rig, "certificate", alone, Level::OPEN)?;
    for security in [Security::Authenticated, Security::Encrypted] {
        strangers(rig, "certificate", alone, Level::secret(security, &secret))?;
        strangers(rig, "certificate", both, Level::secret(security, &secret))?;
    }
    strangers(rig, "secret", alone, both)
}
