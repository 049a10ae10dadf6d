//! Whose turn it is when some always want more: steps of an engine over connections that only count their turns.

use super::*;
use crate::completion_ring::Outbox;
use crate::fair_table::Network;
use crate::progress::{Mode, Progress, ReadyFlag};
use crate::stream::Deferral;
use crate::sync::AtomicUsize;

struct Conn {
    ready: ReadyFlag,
    network: Option<Network>,
    finds: Progress,
    turns: AtomicUsize,
    /// How often it was disarmed and armed.
    disarmed: AtomicUsize,
    armed: AtomicUsize,
}

impl Conn {
    fn new(host: Option<u8>, finds: Progress) -> Arc<Self> {
        let network = host.map(|host| Network::from(std::net::IpAddr::from([192, 0, 2, host])));
        let (ready, turns, disarmed, armed) = Default::default();
        Arc::new(Conn { ready, network, finds, turns, disarmed, armed })
    }

    fn turns(&self) -> usize {
        self.turns.load(Ordering::Relaxed)
    }
}

impl Source for Conn {
    fn ready_flag(&self) -> &ReadyFlag {
        &self.ready
    }

    fn network(&self) -> Option<Network> {
        self.network
    }
}

/// A selector that has nothing, and counts how often it was asked.
#[derive(Default)]
struct Model(AtomicUsize);

impl EventLoop for Model {
    type Source = Conn;
    type Selector = ();
    type Waker = ();

    fn progress(&self, conn: &Arc<Conn>, _: &mut [u8], _: Mode, _: &mut Outbox<'_>) -> Progress {
        conn.turns.fetch_add(1, Ordering::Relaxed);
        conn.finds
    }

    fn defer(&self, _: &Arc<Conn>, _: Deferral) {}

    fn arm(&self, conn: &Arc<Conn>) -> bool {
        conn.armed.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn disarm(&self, conn: &Arc<Conn>) {
        conn.disarmed.fetch_add(1, Ordering::Relaxed);
    }

    fn poll_events(&self, _: &mut (), _: bool) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn is_due(&self) -> bool {
        false
    }

    fn wake(_: &()) {}
}

fn engine(conns: &[Arc<Conn>]) -> ProgressEngine<Model> {
    let engine = ProgressEngine::new((), (), None, None);
    conns.iter().for_each(|conn| engine.mark_ready(conn));
    engine
}

fn crowd(size: usize) -> Vec<Arc<Conn>> {
    (0..size).map(|_| Conn::new(Some(1), Progress::More)).collect()
}

#[test]
fn events_are_taken_beside_a_peer_that_never_stops() {
    let (model, engine) = (Model::default(), engine(&crowd(1)));
    (0..100).for_each(|_| engine.run_once(&model, Duration::ZERO));
    assert_eq!(model.0.load(Ordering::Relaxed), 100);
}

/// Steps of either kind until each of a crowd had its turn.
fn share(step: impl Fn(&ProgressEngine<Model>)) {
    let crowd = crowd(32);
    let elsewhere = Conn::new(Some(2), Progress::More);
    let conns: Vec<_> = crowd.iter().chain([&elsewhere]).cloned().collect();
    let engine = engine(&conns);
    for round in 1..=3 {
        (0..32).for_each(|_| step(&engine));
        assert_eq!(elsewhere.turns(), round * 32);
        assert!(crowd.iter().all(|conn| conn.turns() == round));
    }
}

#[test]
#[cfg_attr(miri, ignore = "no memory is touched")]
fn a_crowd_has_one_long_turn_for_each_of_a_client_from_elsewhere() {
    let model = Model::default();
    share(|engine| engine.run_once(&model, Duration::ZERO));
    share(|engine| engine.poll(&model, &mut Outbox::none()));
}

#[test]
fn short_turns_and_peers_of_no_network_wait_for_none() {
    let crowd = crowd(8);
    let unknown = [Conn::new(None, Progress::More), Conn::new(None, Progress::More)];
    let short = Conn::new(Some(2), Progress::Drained);
    let same = Conn::new(Some(1), Progress::Drained);
    let conns = [&short, &same, &crowd[0], &crowd[1], &unknown[0], &unknown[1]].map(Arc::clone);
    let (model, engine) = (Model::default(), engine(&conns));
    engine.run_once(&model, Duration::ZERO);
    assert_eq!(conns.map(|conn| conn.turns()), [1, 1, 1, 0, 1, 1]);
}

/// One that is not ready has its events though others always are, and the sooner the more those are.
#[test]
#[cfg_attr(miri, ignore = "no memory is touched")]
fn events_are_taken_behind_so_many_turns() {
    let looks = |size| {
        let (model, engine) = (Model::default(), engine(&crowd(size)));
        engine.poll(&model, &mut Outbox::none());
        // The thread gives way to the one that polls.
        engine.run_once(&model, Duration::ZERO);
        let before = model.0.load(Ordering::Relaxed);
        (0..64).for_each(|_| engine.poll(&model, &mut Outbox::none()));
        model.0.load(Ordering::Relaxed) - before
    };
    assert_eq!([1, 2, 32, 64].map(looks), [2, 4, 64, 64]);
}

/// Those that are few, and have no turn that finds nothing for long, need no events until the thread has them.
#[test]
#[cfg_attr(miri, ignore = "no memory is touched")]
fn a_poller_disarms_what_it_looks_at_all_the_time() {
    const TURNS: usize = Model::DISARMED_AFTER as usize;
    let looks = |size, finds| {
        let crowd: Vec<_> = (0..size).map(|_| Conn::new(None, finds)).collect();
        let (model, engine) = (Model::default(), engine(&crowd));
        (1..TURNS).for_each(|_| engine.poll(&model, &mut Outbox::none()));
        assert!(crowd.iter().all(|conn| conn.disarmed.load(Ordering::Relaxed) == 0));
        (0..TURNS + 1).for_each(|_| engine.poll(&model, &mut Outbox::none()));
        let disarmed = crowd[0].disarmed.load(Ordering::Relaxed);
        (0..3).for_each(|_| engine.run_once(&model, Duration::ZERO));
        (disarmed, crowd[0].armed.load(Ordering::Relaxed))
    };
    assert_eq!(looks(Model::FEW, Progress::Drained), (2, 1));
    assert_eq!(looks(Model::FEW + 1, Progress::Drained), (0, 1));
    assert_eq!(looks(1, Progress::Idle), (0, 1));
}
