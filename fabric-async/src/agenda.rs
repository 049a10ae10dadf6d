//! What is due about leases, and when: so that the node's thread looks at those, and at no others.

use std::collections::BTreeSet;
use std::time::Instant;

use fabric::EndpointId;
use fabric_util::sync::Mutex;

/// A lease that this side grants: the connection for leases that it came over, and its number.
pub(crate) type LeaseName = (EndpointId, u64);

#[derive(Default)]
pub(crate) struct Agenda(Mutex<AgendaState>);

#[derive(Default)]
struct AgendaState {
    /// When each lease ends.
    ends: BTreeSet<(Instant, LeaseName)>,
    /// Those that the application took back.
    revoked: Vec<LeaseName>,
    /// Endpoints whose connection has ended.
    disconnected: Vec<EndpointId>,
}

/// What is due.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Due {
    /// Leases that have expired, or that the application took back.
    pub(crate) leases: Vec<LeaseName>,
    /// Endpoints whose connection has ended.
    pub(crate) disconnected: Vec<EndpointId>,
    /// When the next lease ends.
    pub(crate) next: Option<Instant>,
}

impl Agenda {
    /// A lease ends then; says whether no other ends earlier.
    pub(crate) fn add(&self, until: Instant, lease: LeaseName) -> bool {
        let mut state = self.0.lock();
        state.ends.insert((until, lease));
        state.ends.first().is_some_and(|first| *first == (until, lease))
    }

    /// A lease does not end then.
    pub(crate) fn remove(&self, until: Instant, lease: LeaseName) {
        self.0.lock().ends.remove(&(until, lease));
    }

    pub(crate) fn revoked(&self, lease: LeaseName) {
        self.0.lock().revoked.push(lease);
    }

    pub(crate) fn disconnected(&self, endpoint: EndpointId) {
        self.0.lock().disconnected.push(endpoint);
    }

    /// Takes what is due.
    pub(crate) fn take_due(&self, now: Instant) -> Due {
        let mut state = self.0.lock();
        let later = state.ends.split_off(&(now, (EndpointId(u64::MAX), u64::MAX)));
        let expired = std::mem::replace(&mut state.ends, later);
        let mut leases = std::mem::take(&mut state.revoked);
        leases.extend(expired.into_iter().map(|(_, lease)| lease));
        let disconnected = std::mem::take(&mut state.disconnected);
        Due { leases, disconnected, next: state.ends.first().map(|(until, _)| *until) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_due_is_taken_once() {
        let (agenda, now) = (Agenda::default(), Instant::now());
        let [one, other, third] = [(EndpointId(1), 7), (EndpointId(1), 8), (EndpointId(2), 7)];
        let later = now + Duration::from_secs(1);
        assert!(agenda.add(later, one) && !agenda.add(later, other) && agenda.add(now, third));
        agenda.disconnected(EndpointId(5));
        agenda.remove(later, one);
        let due = agenda.take_due(now);
        assert_eq!((due.leases, due.disconnected), (vec![third], vec![EndpointId(5)]));
        assert_eq!(due.next, Some(later));
        agenda.revoked(one);
        assert_eq!(agenda.take_due(later).leases, [one, other]);
        assert_eq!(agenda.take_due(later), Due::default());
    }
}
