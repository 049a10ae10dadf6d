//! When an attempt that failed is made again, and when none is.

use std::collections::BTreeSet;
use std::time::Duration;

use super::net::identity;
use crate::connection::{Action, DeathCause, DialError, PeerConnection, Refusal, Timeouts};

/// A peer without a place is asked again when it says, but neither at once nor only when nothing is left of the time.
#[test]
fn asked_again_when_the_peer_says() {
    let timeouts = Timeouts::default();
    for (said, kept) in [
        (Duration::from_micros(1), timeouts.retry),
        (Duration::from_millis(700), Duration::from_millis(700)),
        (timeouts.connect, timeouts.connect / 2),
        (Duration::MAX, timeouts.connect / 2),
    ] {
        let mut connection = PeerConnection::new(identity(1), identity(2), timeouts);
        let mut now = Duration::from_secs(7);
        connection.want(now).unwrap();
        // However often it was refused.
        for _ in 0..10 {
            let Some(Action::Dial(conn, _)) = connection.poll_action() else { panic!() };
            connection.on_failed(now, conn, DialError::Refused(Refusal::Busy(said)));
            assert_eq!(connection.deadline(), Some(now + kept));
            now += kept;
            assert!(!connection.tick(now), "it was answered");
        }
    }
}

/// Those that failed together do not try again together.
#[test]
fn attempts_are_spread() {
    let timeouts = Timeouts::default();
    let mut all = BTreeSet::new();
    for me in 1..=100 {
        let mut connection = PeerConnection::new(identity(me), identity(200), timeouts);
        connection.want(Duration::ZERO).unwrap();
        let Some(Action::Dial(conn, _)) = connection.poll_action() else { panic!() };
        connection.on_failed(Duration::ZERO, conn, DialError::Unreachable);
        let again = connection.deadline().unwrap();
        assert!((timeouts.retry / 2..=timeouts.retry).contains(&again), "{again:?}");
        all.insert(again);
    }
    assert!(all.len() > 50, "{} times", all.len());
}

/// Without a device the peer is down, whatever was under way, and no other attempt follows.
#[test]
fn without_a_device() {
    for polls in [false, true] {
        let mut connection = PeerConnection::new(identity(1), identity(2), Timeouts::default());
        connection.want(Duration::ZERO).unwrap();
        if polls {
            assert!(matches!(connection.poll_action(), Some(Action::Dial(..))));
        }
        connection.on_device_lost();
        connection.on_device_lost();
        assert_eq!((connection.death(), connection.deadline()), (Some(DeathCause::Lost), None));
        let mut actions = std::iter::from_fn(|| connection.poll_action());
        let deaths = actions.by_ref().filter(|action| matches!(action, Action::Died(_))).count();
        assert_eq!(deaths, 1);
        connection.revive();
        assert_eq!(connection.death(), None);
    }
}

/// That a peer did not answer is said once, of each attempt.
#[test]
fn silence_is_noticed() {
    let timeouts = Timeouts::default();
    let mut connection = PeerConnection::new(identity(1), identity(2), timeouts);
    connection.want(Duration::ZERO).unwrap();
    assert!(!connection.tick(timeouts.attempt / 2), "there is time left");
    let mut unanswered = 0;
    while connection.death().is_none() {
        let now = connection.deadline().unwrap();
        unanswered += u32::from(connection.tick(now));
    }
    let attempts = std::iter::from_fn(|| connection.poll_action());
    let dials = attempts.filter(|action| matches!(action, Action::Dial(..))).count();
    assert!(dials > 4 && unanswered as usize == dials, "{unanswered} of {dials}");
}

/// It may take long until both have a place for a connection.
#[test]
fn a_peer_that_answers_is_not_unreachable() {
    let (me, peer) = (identity(1), identity(2));
    for refusal in [
        Refusal::Busy(Duration::ZERO),
        Refusal::Busy(Duration::MAX),
        Refusal::Crossing,
        Refusal::Stale(0),
    ] {
        let timeouts = Timeouts::default();
        let mut connection = PeerConnection::new(me, peer, timeouts);
        let mut now = Duration::ZERO;
        connection.want(now).unwrap();
        while connection.death().is_none() {
            while let Some(action) = connection.poll_action() {
                if let Action::Dial(conn, _) = action {
                    connection.on_failed(now, conn, DialError::Refused(refusal));
                }
            }
            now = connection.deadline().unwrap();
            connection.tick(now);
        }
        assert_eq!(connection.death(), Some(DeathCause::Unreachable));
        assert!(now > 10 * timeouts.connect, "{refusal:?}: {now:?}");
        assert!(now < 12 * timeouts.connect, "{refusal:?}: {now:?}");
    }
}
