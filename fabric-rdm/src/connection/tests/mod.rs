//! Two sides against each other, over a network that delays, cuts and swallows as a test says.

mod attempts;
mod net;

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use net::{Net, Side, identity};

/// Time for everything that may take some.
const LONG: Duration = Duration::from_secs(20);

#[test]
fn first_post_queues() {
    let mut net = Net::new();
    (0..5).for_each(|_| net.post(Side::Low));
    assert_eq!(net.phase(Side::Low), Phase::Dialing);
    net.settle(LONG);
    net.post(Side::High);
    net.settle(LONG);
    net.assert_all_arrived();
    assert_eq!(net.sessions_ever(), 1);
}

/// Each sequence of so many choices.
fn every_schedule(choices: u32, depth: u32) -> impl Iterator<Item = impl Iterator<Item = u32>> {
    (0..choices.pow(depth))
        .map(move |all| (0..depth).map(move |step| all / choices.pow(step) % choices))
}

/// Whatever is delivered first, at any moment.
#[test]
fn crossing_in_every_order() {
    for schedule in every_schedule(4, 9) {
        let mut net = Net::new();
        net.post(Side::Low);
        net.post(Side::High);
        for choice in schedule {
            match choice {
                3 => net.pass(Duration::from_millis(1500)),
                which => net.deliver_nth(which as usize),
            }
        }
        net.settle(LONG);
        net.assert_all_arrived();
        net.assert_one_session();
    }
}

/// The same, and at any moment one of the connections breaks.
#[test]
fn crossing_with_every_loss() {
    for schedule in every_schedule(5, 7) {
        let mut net = Net::new();
        net.post(Side::Low);
        net.post(Side::High);
        for choice in schedule {
            match choice {
                2 => net.pass(Duration::from_millis(3000)),
                3 => net.cut(0),
                4 => net.cut(1),
                which => net.deliver_nth(which as usize),
            }
        }
        net.settle(LONG);
        net.assert_no_silent_gap();
        net.revive_until_connected();
    }
}

/// Posts, parking and deliveries in each order, from an established connection on.
#[test]
fn parking_in_every_order() {
    for schedule in every_schedule(6, 6) {
        let mut net = Net::new();
        net.post(Side::Low);
        net.settle(LONG);
        for choice in schedule {
            match choice {
                2 => net.post(Side::Low),
                3 => net.post(Side::High),
                4 => net.park(Side::Low),
                5 => net.park(Side::High),
                which => net.deliver_nth(which as usize),
            }
        }
        net.settle(LONG);
        net.assert_all_arrived();
    }
}

#[test]
fn crossing_a_thousand_times() {
    let mut net = Net::new();
    for round in 0..1000 {
        // Both connect before either is heard.
        net.post(Side::Low);
        net.post(Side::High);
        net.settle(LONG);
        net.assert_all_arrived();
        net.assert_one_session();
        assert_eq!(net.sessions_ever(), round + 1, "of two attempts one");
        net.park(if round % 2 == 0 { Side::Low } else { Side::High });
        net.settle(LONG);
        assert_eq!(net.phase(Side::Low), Phase::Parked);
        assert_eq!(net.phase(Side::High), Phase::Parked);
    }
}

#[test]
fn one_way_firewall() {
    for blocked in [Side::Low, Side::High] {
        let mut net = Net::new();
        net.block_requests_of(blocked);
        net.post(Side::Low);
        net.post(Side::High);
        net.settle(LONG);
        net.assert_all_arrived();
        net.assert_one_session();
    }
}

#[test]
fn late_listener() {
    let mut net = Net::new();
    net.block_requests_of(Side::Low);
    net.post(Side::Low);
    net.settle(LONG);
    assert_eq!(net.phase(Side::Low), Phase::Dialing);
    net.unblock();
    net.settle(Duration::from_secs(8));
    net.assert_all_arrived();
}

#[test]
fn unreachable_after_its_time() {
    let mut net = Net::new();
    net.block_requests_of(Side::Low);
    net.post(Side::Low);
    net.settle(Duration::from_secs(2000));
    assert_eq!(net.deaths(Side::Low), [DeathCause::Unreachable]);
    assert_eq!(net.want(Side::Low), Err(DeathCause::Unreachable), "until it is revived");
    net.unblock();
    net.revive(Side::Low);
    net.post(Side::Low);
    net.settle(LONG);
    assert_eq!(net.received(Side::High), [1], "what was lost is not repeated");
}

#[test]
fn wrong_incarnation() {
    let mut net = Net::new();
    net.post(Side::Low);
    net.settle(LONG);
    net.restart(Side::High);
    net.settle(LONG);
    assert_eq!(net.deaths(Side::Low), [DeathCause::Lost]);
    net.revive(Side::Low);
    net.post(Side::Low);
    net.settle(LONG);
    assert_eq!(net.deaths(Side::Low), [DeathCause::Lost, DeathCause::Gone]);
    assert!(net.received(Side::High).is_empty(), "the new one gets nothing of the old one's");
}

/// The side with the death speaks of it to the one that noticed nothing; then both have to begin anew.
#[test]
fn sticky_until_revive() {
    let mut net = Net::new();
    net.post(Side::Low);
    net.settle(LONG);
    net.lose_at(Side::Low);
    assert_eq!(net.phase(Side::High), Phase::Established, "it has not noticed");
    net.revive(Side::Low);
    net.post(Side::Low);
    net.settle(Duration::from_secs(5));
    assert_eq!(net.deaths(Side::High), [DeathCause::Lost]);
    assert_eq!(net.phase(Side::Low), Phase::Dialing);
    net.revive(Side::High);
    net.settle(LONG);
    assert_eq!(net.received(Side::High), [0, 1]);
    net.assert_one_session();
}

/// A side that was forgotten while parked has lost its peer, and broke no rule, whichever of them is the first to connect. The
/// posts of the one that forgot wait until it is revived.
#[test]
fn forgotten_while_parked() {
    for first in [Side::Low, Side::High] {
        for (to_low, to_high) in [(1, 0), (0, 1), (2, 3)] {
            let mut net = Net::new();
            (0..to_high).for_each(|_| net.post(Side::Low));
            (0..to_low).for_each(|_| net.post(Side::High));
            net.settle(LONG);
            net.park(Side::Low);
            net.settle(LONG);
            net.forget(Side::High);
            net.post(first);
            net.settle(LONG);
            assert_eq!(net.deaths(Side::Low), [DeathCause::Lost], "{first:?}, {to_low} {to_high}");
            assert_eq!(net.deaths(Side::High), [], "{first:?}, {to_low} {to_high}");
            net.revive(Side::Low);
            net.post(Side::Low);
            net.post(Side::High);
            net.settle(LONG);
            let of_high = if first == Side::High { vec![0, 1] } else { vec![0] };
            assert!(net.received(Side::Low).ends_with(&of_high));
            let last_of_low = to_high + u64::from(first == Side::Low);
            assert_eq!(net.received(Side::High), [last_of_low]);
            net.assert_one_session();
        }
    }
}

/// A request that was given up long ago, and that a side takes after it forgot the peer, makes it know nothing of the peer.
#[test]
fn stale_request_after_forgetting() {
    let timeouts = Timeouts::default();
    let (me, peer, now) = (identity(1), identity(2), Duration::ZERO);
    let hello = |session, numbers: (u64, u64)| Hello {
        from: peer,
        to: me,
        session,
        life: 0,
        force: false,
        sent: numbers.0,
        received: numbers.1,
    };
    let mut connection = PeerConnection::new(me, peer, timeouts).after(7);
    let Answer::Accept(conn, _) = connection.on_request(now, &hello(1, (0, 0))) else { panic!() };
    connection.on_lost(now, conn);
    // The peer still knows the messages of before.
    let answer = connection.on_request(now, &hello(8, (1, 1)));
    assert_eq!(answer, Answer::Refuse(Refusal::Over(0)));
    assert_eq!(connection.death(), None);
}

#[test]
fn park_races_post() {
    for posts_of in [Side::Low, Side::High] {
        for delivered in 0..12 {
            let mut net = Net::new();
            net.post(Side::Low);
            net.settle(LONG);
            net.park(Side::Low);
            (0..delivered).for_each(|_| net.deliver_nth(0));
            (0..3).for_each(|_| net.post(posts_of));
            net.park(Side::High);
            net.settle(LONG);
            net.assert_all_arrived();
        }
    }
}

#[test]
fn hostile_hello() {
    let (low, high) = (net::identity(1), net::identity(2));
    let hello =
        Hello { from: high, to: low, session: 1, life: 0, force: false, sent: 0, received: 0 };
    let none = Duration::ZERO;
    let fresh = || PeerConnection::new(low, high, Timeouts::default());
    let refused = |hello: Hello| match fresh().on_request(none, &hello) {
        Answer::Refuse(refusal) => Some(refusal),
        Answer::Accept(..) => None,
    };
    assert_eq!(refused(Hello { to: high, ..hello }), Some(Refusal::Gone));
    assert_eq!(refused(Hello { from: low, ..hello }), Some(Refusal::Gone));
    assert_eq!(refused(Hello { session: 0, ..hello }), Some(Refusal::Stale(0)));
    assert_eq!(refused(Hello { session: u64::MAX, ..hello }), Some(Refusal::Stale(0)));
    assert_eq!(refused(Hello { sent: 7, ..hello }), Some(Refusal::Over(0)), "of before");
    assert_eq!(
        refused(Hello { sent: u64::MAX, received: u64::MAX, ..hello }),
        Some(Refusal::Over(0))
    );
    assert_eq!(refused(hello), None);
    let mut machine = fresh();
    machine.want(none).unwrap();
    let Some(Action::Dial(conn, _)) = machine.poll_action() else { panic!() };
    machine.on_failed(none, conn, DialError::Refused(Refusal::Over(u32::MAX)));
    machine.tick(Timeouts::default().retry);
    let Some(Action::Dial(conn, of_last)) = machine.poll_action() else { panic!() };
    assert_eq!(of_last.life, u32::MAX);
    machine.on_failed(none, conn, DialError::Refused(Refusal::Stale(u64::MAX)));
    machine.tick(Duration::MAX);
}

/// Both sides decide by themselves, and alike.
#[test]
fn the_lower_identity_wins() {
    let (low, high) = (net::identity(1), net::identity(2));
    let dialing = |me, peer| {
        let mut machine = PeerConnection::new(me, peer, Timeouts::default());
        machine.want(Duration::ZERO).unwrap();
        let Some(Action::Dial(_, hello)) = machine.poll_action() else { panic!() };
        (machine, hello)
    };
    let ((mut lower, of_lower), (mut higher, of_higher)) = (dialing(low, high), dialing(high, low));
    let answer = lower.on_request(Duration::ZERO, &of_higher);
    assert_eq!(answer, Answer::Refuse(Refusal::Crossing));
    let answer = higher.on_request(Duration::ZERO, &of_lower);
    assert!(matches!(answer, Answer::Accept(..)));
    let forced = Hello { session: 2, force: true, ..of_higher };
    assert!(matches!(lower.on_request(Duration::ZERO, &forced), Answer::Accept(..)));
}

/// A peer whose numbers are others than this side's has lost something, or this side has.
#[test]
fn a_gap_is_a_death() {
    for (sent, received) in [(0, 1), (1, 0), (1, 2), (2, 1)] {
        let mut net = Net::new();
        net.post(Side::Low);
        net.post(Side::High);
        net.settle(LONG);
        net.park(Side::Low);
        net.settle(LONG);
        let (from, to) = (net::identity(2), net::identity(1));
        let hello = Hello { from, to, session: 100, life: 0, force: false, sent, received };
        assert_eq!(net.request_to_low(&hello), Answer::Refuse(Refusal::Over(0)));
        assert_eq!(net.deaths(Side::Low), [DeathCause::Protocol]);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Deliver(usize),
    Post(Side),
    Park(Side),
    Pass(u64),
    Cut(usize),
    Revive(Side),
    Forget(Side),
}

fn steps(faults: u32, forgets: u32) -> impl Strategy<Value = Vec<Step>> {
    let side = || prop_oneof![Just(Side::Low), Just(Side::High)];
    let step = prop_oneof![
        20 => (0..8usize).prop_map(Step::Deliver),
        6 => side().prop_map(Step::Post),
        3 => side().prop_map(Step::Park),
        3 => (0..3000u64).prop_map(Step::Pass),
        faults => (0..8usize).prop_map(Step::Cut),
        faults => side().prop_map(Step::Revive),
        forgets => side().prop_map(Step::Forget),
    ];
    proptest::collection::vec(step, 0..150)
}

fn run(steps: Vec<Step>) -> Net {
    let mut net = Net::new();
    for step in steps {
        match step {
            Step::Deliver(which) => net.deliver_nth(which),
            Step::Post(side) => net.post(side),
            Step::Park(side) => net.park(side),
            Step::Pass(millis) => net.pass(Duration::from_millis(millis)),
            Step::Cut(which) => net.cut(which),
            Step::Revive(side) => net.revive(side),
            Step::Forget(side) => net.forget(side),
        }
    }
    net
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..Default::default() })]
    /// Delays alone kill no peer, lose nothing and change no order.
    #[test]
    fn park_keeps_order(steps in steps(0, 0)) {
        let mut net = run(steps);
        net.settle(LONG);
        net.assert_all_arrived();
        net.post(Side::Low);
        net.post(Side::High);
        net.settle(LONG);
        net.assert_all_arrived();
        net.assert_one_session();
    }

    /// What arrives is in order and there once, and what is missing is missing because of a death that was reported; and
    /// after both sides are revived, they are together again.
    #[test]
    fn no_silent_gap(steps in steps(2, 0)) {
        let mut net = run(steps);
        net.settle(LONG);
        net.assert_no_silent_gap();
        net.revive_until_connected();
    }

    /// Whenever a side removes its peer and inserts it again, no rule is broken.
    #[test]
    fn forgotten_is_lost(steps in steps(1, 2)) {
        let mut net = run(steps);
        net.settle(LONG);
        net.assert_rules_kept();
    }

    /// What a peer may say, and a caller that mixes up connections and times.
    #[test]
    fn nothing_panics(calls in proptest::collection::vec((0..17, any::<u8>(), any::<[u64; 3]>(), any::<u32>()), 0..60)) {
        let (low, high) = (net::identity(1), net::identity(2));
        let timeouts = Timeouts { connect: Duration::MAX, attempt: Duration::MAX, ..Timeouts::default() };
        let mut machine = PeerConnection::new(low, high, timeouts);
        for (call, flags, [session, sent, received], life) in calls {
            // Small numbers get far, large ones overflow.
            let small = |number: u64| if flags & 1 == 0 { number % 3 } else { number };
            let (session, sent, received) = (small(session), small(sent), small(received));
            let life = small(life.into()) as u32;
            let (from, to) = if flags & 2 == 0 { (high, low) } else { (low, high) };
            let force = flags & 4 == 0;
            let hello = Hello { from, to, session, life, force, sent, received };
            let now = Duration::from_nanos(received);
            let conn = ConnId(sent % 5);
            match call {
                0 => _ = machine.want(now),
                1 => _ = machine.on_request(now, &hello),
                2 => machine.on_connected(now, conn, &hello),
                3 => machine.on_confirm(conn),
                4 => machine.on_failed(now, conn, DialError::Unreachable),
                5 => machine.on_failed(now, conn, DialError::Refused(Refusal::Crossing)),
                6 => machine.on_failed(now, conn, DialError::Refused(Refusal::Over(life))),
                7 => machine.on_failed(now, conn, DialError::Refused(Refusal::Stale(session))),
                8 => machine.on_lost(now, conn),
                9 => _ = machine.tick(now),
                10 => _ = machine.park(),
                11 if flags & 8 == 0 => machine.park_sent(conn),
                11 => machine.drained(conn),
                12 => machine.park_completed(now, conn),
                13 => machine.on_park(now, conn),
                14 => _ = machine.on_message(conn, session),
                15 => {
                    let busy = Refusal::Busy(Duration::from_nanos(session));
                    machine.on_failed(now, conn, DialError::Refused(busy));
                }
                _ => machine.revive(),
            }
            while machine.poll_action().is_some() {}
            prop_assert_eq!(machine.death().is_some(), machine.phase() == Phase::Dead);
            let _ = machine.deadline();
        }
    }
}
