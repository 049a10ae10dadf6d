//! Which peers may be connected at a time. One network does not take all places, and while there are none left, a connection
//! that was never used makes room for a peer from elsewhere.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::fair_table::{FairTable, Network};
use crate::sync::{AtomicBool, Mutex};

/// A network may have so many places for each that is free: three quarters of what the others leave (dynamic thresholds,
/// Choudhury and Hahne 1998).
const PLACES_PER_FREE: usize = 3;

/// A connection, as far as this module knows it.
pub trait Admitted: Send + Sync {
    /// Whether nothing was sent over it yet, in either direction.
    fn is_unused(&self) -> bool;

    /// Ends it, in favour of another peer.
    fn displace(&self);
}

/// What bounds the connections that peers make.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionLimits {
    /// All of them.
    pub connections: usize,
    /// Those from one network; `None`: so many that others get in.
    pub per_network: Option<usize>,
    /// An unused connection makes room for any peer after this time; `None`: it makes room for none.
    pub first_use: Option<Duration>,
}

/// The places for connections that peers make.
pub struct Admission {
    limits: AdmissionLimits,
    state: Mutex<AdmissionState>,
}

/// Called when there is a place.
type OnPlace = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct AdmissionState {
    /// Places that are taken.
    taken: usize,
    /// Permits of each network, with those that wait for a place.
    of_each: HashMap<Network, Permits>,
    /// Connections that may make room, by the number of their permit.
    unused: FairTable<UnusedConnection>,
    /// Permits that get a place when one is free, by number.
    waiting: VecDeque<(u64, OnPlace)>,
    permits: u64,
}

/// How many permits a network has.
#[derive(Clone, Copy, Default)]
struct Permits {
    all: usize,
    /// Of them, those whose connection is not established yet.
    in_set_up: usize,
}

struct UnusedConnection {
    connection: Weak<dyn Admitted>,
    since: Instant,
}

impl AdmissionState {
    fn count(&self, from: Network) -> Permits {
        self.of_each.get(&from).copied().unwrap_or_default()
    }

    /// Counts permits of a network anew.
    fn recount(&mut self, from: Network, change: impl FnOnce(&mut Permits)) {
        let permits = self.of_each.entry(from).or_default();
        change(permits);
        if permits.all == 0 {
            self.of_each.remove(&from);
        }
    }
}

impl Admission {
    /// Places; none is taken.
    pub fn new(limits: AdmissionLimits) -> Arc<Self> {
        Arc::new(Admission { limits, state: Mutex::default() })
    }

    /// The bounds.
    pub fn limits(&self) -> &AdmissionLimits {
        &self.limits
    }

    /// A place, if one is free and this network may have it.
    pub fn take(self: &Arc<Self>, from: impl Into<Network>) -> Option<Permit> {
        let from = from.into();
        let AdmissionLimits { connections, per_network, .. } = self.limits;
        let mut state = self.state.lock();
        let free = connections.saturating_sub(state.taken);
        let share = per_network.unwrap_or(free.saturating_mul(PLACES_PER_FREE));
        if free == 0 || state.count(from).all >= share {
            return None;
        }
        state.taken += 1;
        Some(self.permit(&mut state, from))
    }

    /// Ends an unused connection in favour of a peer from this network, if that is fair or it had its time; true: it did, and
    /// there is a place for the peer [in turn](Admission::take_in_turn).
    pub fn displace_for(&self, from: impl Into<Network>) -> bool {
        let displaced = self.choose_displaced(from.into());
        if let Some(displaced) = &displaced {
            displaced.displace();
        }
        displaced.is_some()
    }

    /// A permit with a place, if one is free (true), or which has one when `on_place` is called: no peer that comes later gets
    /// it. No lock is held then.
    pub fn take_in_turn(
        self: &Arc<Self>,
        from: impl Into<Network>,
        on_place: impl FnOnce() + Send + 'static,
    ) -> (Permit, bool) {
        let mut state = self.state.lock();
        let permit = self.permit(&mut state, from.into());
        let is_free = state.taken < self.limits.connections;
        if is_free {
            state.taken += 1;
        } else {
            state.waiting.push_back((permit.number, Box::new(on_place)));
        }
        (permit, is_free)
    }

    /// Connections from this network, and from anywhere.
    pub fn counts(&self, from: impl Into<Network>) -> (usize, usize) {
        let state = self.state.lock();
        (state.count(from.into()).all, state.taken)
    }

    fn permit(self: &Arc<Self>, state: &mut AdmissionState, from: Network) -> Permit {
        state.permits += 1;
        state.recount(from, |of| (of.all, of.in_set_up) = (of.all + 1, of.in_set_up + 1));
        let (number, established) = (state.permits, AtomicBool::new(false));
        Permit { admission: self.clone(), from, number, established }
    }

    fn choose_displaced(&self, from: Network) -> Option<Arc<dyn Admitted>> {
        let first_use = self.limits.first_use?;
        loop {
            let mut state = self.state.lock();
            let is_full = state.taken >= self.limits.connections;
            // Those that are not established yet are as unused, and its own.
            let in_set_up = state.count(from).in_set_up;
            let AdmissionState { unused, .. } = &mut *state;
            let its = unused.count(from) + in_set_up + 1;
            let fair = if is_full { unused.displace_beyond(its) } else { None };
            let candidate = fair.map(|(_, candidate)| candidate).or_else(|| {
                let oldest = if is_full { unused.oldest() } else { unused.oldest_of(from) };
                let late = oldest.filter(|(_, it)| it.since.elapsed() >= first_use);
                let key = late.map(|(key, _)| key)?;
                unused.remove(key)
            });
            drop(state);
            // It may have been used since, or be gone.
            let connection = candidate?.connection.upgrade();
            if let Some(connection) = connection.filter(|it| it.is_unused()) {
                return Some(connection);
            }
        }
    }
}

/// A place for a connection, for as long as it lives.
pub struct Permit {
    admission: Arc<Admission>,
    from: Network,
    number: u64,
    established: AtomicBool,
}

impl Permit {
    /// The connection is established, and makes room as long as it is unused.
    pub fn established(&self, connection: Weak<dyn Admitted>) {
        let mut state = self.admission.state.lock();
        if !self.established.swap(true, Ordering::Relaxed) {
            state.recount(self.from, |of| of.in_set_up -= 1);
        }
        if self.admission.limits.first_use.is_some() {
            let unused = UnusedConnection { connection, since: Instant::now() };
            state.unused.insert(self.number, self.from, unused);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.admission.state.lock();
        let unused = state.unused.remove(self.number);
        let in_set_up = usize::from(!self.established.load(Ordering::Relaxed));
        state.recount(self.from, |of| {
            (of.all, of.in_set_up) = (of.all - 1, of.in_set_up - in_set_up);
        });
        let mut next = None;
        let waits = state.waiting.iter().position(|(number, _)| *number == self.number);
        let own = waits.and_then(|index| state.waiting.remove(index));
        if own.is_none() {
            // It had a place.
            next = state.waiting.pop_front();
            state.taken -= usize::from(next.is_none());
        }
        drop(state);
        drop((unused, own));
        if let Some((_, on_place)) = next {
            on_place();
        }
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Permit({} from {})", self.number, self.from)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    fn host(number: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, number).into()
    }

    #[derive(Debug, Default)]
    struct FakeConnection {
        used: AtomicBool,
        displaced: AtomicBool,
        permit: OnceLock<Permit>,
    }

    impl FakeConnection {
        fn is_displaced(&self) -> bool {
            self.displaced.load(Ordering::Relaxed)
        }
    }

    impl Admitted for FakeConnection {
        fn is_unused(&self) -> bool {
            !self.used.load(Ordering::Relaxed)
        }

        fn displace(&self) {
            self.displaced.store(true, Ordering::Relaxed);
        }
    }

    fn places(
        connections: usize,
        per_network: Option<usize>,
        first_use: Option<Duration>,
    ) -> Arc<Admission> {
        Admission::new(AdmissionLimits { connections, per_network, first_use })
    }

    fn established(permit: Permit) -> Arc<FakeConnection> {
        let connection = Arc::<FakeConnection>::default();
        let weak: Weak<FakeConnection> = Arc::downgrade(&connection);
        connection.permit.get_or_init(|| permit).established(weak);
        connection
    }

    /// As many connections from here as there are places at once.
    fn connect_all(places: &Arc<Admission>, from: u8) -> Vec<Arc<FakeConnection>> {
        std::iter::from_fn(|| places.take(host(from)).map(established)).collect()
    }

    fn is_empty(places: &Admission) -> bool {
        let state = places.state.lock();
        let nothing = state.of_each.is_empty() && state.unused.is_empty();
        nothing && state.waiting.is_empty() && state.taken == 0
    }

    const HOUR: Option<Duration> = Some(Duration::from_secs(3600));

    #[test]
    #[cfg_attr(miri, ignore = "no memory is touched")]
    fn each_network_leaves_a_quarter_of_what_was_left() {
        let places = places(112, None, None);
        let one = connect_all(&places, 1);
        assert_eq!((one.len(), places.counts(host(1))), (84, (84, 84)));
        let two = connect_all(&places, 2);
        assert_eq!(two.len(), 21, "three for each that is free, which the other does not leave");
        assert!(places.take(host(3)).is_some());
        assert!(!places.displace_for(host(3)), "none makes room");
        drop((one, two));
        assert!(is_empty(&places));
    }

    #[test]
    fn a_network_has_no_more_than_the_setting() {
        let places = places(4, Some(2), None);
        let (one, two) = (connect_all(&places, 1), connect_all(&places, 2));
        assert_eq!((one.len(), two.len()), (2, 2));
        assert!(places.take(host(3)).is_none());
    }

    #[test]
    fn who_has_most_unused_ones_makes_room_for_others() {
        let places = places(4, Some(4), HOUR);
        let mut crowd = connect_all(&places, 1);
        assert_eq!(crowd.len(), 4);
        // The two oldest are in use.
        crowd[..2].iter().for_each(|it| it.used.store(true, Ordering::Relaxed));
        assert!(places.displace_for(host(2)));
        assert_eq!([0, 1, 2, 3].map(|at| crowd[at].is_displaced()), [false, false, true, false]);
        let called = Arc::new(AtomicBool::new(false));
        let on_place = called.clone();
        let (permit, has_place) =
            places.take_in_turn(host(2), move || on_place.store(true, Ordering::Relaxed));
        assert!(!has_place && !called.load(Ordering::Relaxed), "the displaced one is not gone yet");
        drop(crowd.remove(2));
        assert!(called.load(Ordering::Relaxed));
        assert!(places.take(host(3)).is_none(), "no other one takes the place");
        assert!(!places.displace_for(host(3)), "one each is fair");
        drop(permit);
        assert!(places.take(host(3)).is_some());
    }

    #[test]
    fn one_that_is_being_set_up_counts_as_unused() {
        let places = places(3, Some(3), HOUR);
        let crowd: Vec<_> = (0..2).filter_map(|_| places.take(host(1)).map(established)).collect();
        let in_set_up = places.take(host(2));
        assert!(in_set_up.is_some() && !places.displace_for(host(2)), "two each is no fairer");
        drop(in_set_up.map(established));
        let elsewhere = places.take(host(3));
        assert!(places.displace_for(host(2)) && crowd[0].is_displaced(), "it has none any more");
        drop((crowd, elsewhere));
        assert!(is_empty(&places));
    }

    #[test]
    fn an_unused_one_makes_room_for_any_after_its_time() {
        let places = places(8, None, Some(Duration::ZERO));
        let crowd = connect_all(&places, 1);
        assert_eq!(crowd.len(), 6);
        assert!(places.displace_for(host(1)), "over its share, so its own oldest");
        assert!(crowd[0].is_displaced());
        let (seventh, has_place) = places.take_in_turn(host(1), || ());
        assert!(has_place, "one was free, which a further network could have had");
        let other = places.take(host(2)).map(established);
        assert_eq!(places.counts(host(2)), (1, 8));
        assert!(places.displace_for(host(2)) && crowd[1].is_displaced());
        drop((crowd, seventh, other));
        assert!(is_empty(&places));
    }

    #[test]
    fn one_that_waits_and_gives_up_leaves_nothing() {
        let places = places(2, Some(2), HOUR);
        let crowd = connect_all(&places, 1);
        let (permit, has_place) = places.take_in_turn(host(2), || panic!("it has given up"));
        assert!(!has_place);
        drop(permit);
        drop(crowd);
        assert!(is_empty(&places));
    }
}
