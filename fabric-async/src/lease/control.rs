//! The connection beside the application's: over it the two ends agree on leases.
//!
//! It has an endpoint of its own, on a completion queue of its own, which the node's thread serves: so leases are granted,
//! renewed and ended whatever the application's tasks do, and no message of theirs mixes with these. What a peer can make
//! this side hold is bounded: by the policy, by the depth of the endpoint, and by a bound on answers that it does not
//! take (`outbox`), beyond which it is disconnected.
//!
//! Locks: a control's state, then its endpoint's. Loans begin and end, and wakers run, outside of it (`wakers`).

use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use fabric::{
    Access, DisconnectReason, Domain, Endpoint, EndpointId, PendingGrant, Region, RemoteRegion,
};
use fabric_util::byte_quota::ByteQuota;
use fabric_util::fair_table::Network;
use fabric_util::log_line;
use fabric_util::sync::{Mutex, MutexGuard};

use super::decision::LeaseDecision;
use super::message::{LeaseMessage, MAX_LEN};
use super::outbox::Outbox;
use super::pending::{Answer, PendingRenewal, PendingRequest};
use super::policy::LeasePolicy;
use super::receives::Receives;
use super::record::LeaseRecord;
use super::remote_state::RemoteLeaseState;
use crate::admission::is_unused;
use crate::agenda::LeaseName;
use crate::conn_state::ConnState;
use crate::error::{Error, LeaseEnd, Result};
use crate::peer_log::{PeerEvent, PeerLog};
use crate::pool::Pool;
use crate::reactor::ReactorHandle;
use crate::router::Router;
use crate::wait_queue::WaitQueue;
use crate::wakers::Wakers;

/// Messages of one direction that are under way.
pub(super) const DEPTH: usize = 16;
/// Room of a completion queue that one of these endpoints takes.
pub(super) const ROOM: usize = 2 * DEPTH;

/// The application's connection, beside which one for leases is.
pub(crate) struct UserConnection {
    pub(crate) id: EndpointId,
    pub(crate) conn_state: Arc<ConnState>,
    pub(crate) grants_to: Weak<dyn GrantsTo>,
}

/// To whom something can be granted: the peer of a connection.
pub(crate) trait GrantsTo: Send + Sync {
    /// Begins a grant of a whole region.
    fn begin_grant(&self, region: &Region, rights: Access) -> fabric::Result<PendingGrant>;
}

/// What all connections for leases of a node use.
pub(crate) struct LeaseContext {
    pub(super) domain: Domain,
    pub(super) pool: Pool,
    pub(super) policy: LeasePolicy,
    /// Leases open to their connection alone.
    pub(super) connection_keys: bool,
    pub(super) decision: LeaseDecision,
    pub(super) quota: Arc<ByteQuota>,
    pub(super) router: Arc<Router>,
    pub(super) reactor: Arc<ReactorHandle>,
    pub(super) peer_log: Arc<PeerLog>,
}

pub(crate) struct Control {
    pub(super) endpoint: Endpoint,
    pub(super) receives: Arc<Receives>,
    pub(super) conn_state: Arc<ConnState>,
    /// Of the application's connection.
    pub(super) user: Arc<ConnState>,
    pub(super) user_id: EndpointId,
    pub(super) grants_to: Weak<dyn GrantsTo>,
    pub(super) shared: Arc<LeaseContext>,
    state: Mutex<ControlState>,
    /// Futures that wait for a lease that is lent unasked.
    pub(super) lease_waiters: Arc<WaitQueue>,
    /// Futures that wait for room to ask the peer something.
    pub(super) request_waiters: Arc<WaitQueue>,
    /// Where the peer is.
    network: OnceLock<Network>,
    pub(super) me: Weak<Control>,
}

#[derive(Default)]
pub(super) struct ControlState {
    pub(super) outbox: Outbox,
    pub(super) next: u64,
    /// What this side lends.
    pub(super) loans: HashMap<u64, LeaseRecord>,
    /// Bytes of those that the peer asked for, and how many they are, with the one that is being made.
    pub(super) requested: u64,
    pub(super) asked: usize,
    /// What this side holds.
    pub(super) held: HashMap<u64, Weak<RemoteLeaseState>>,
    pub(super) requests: HashMap<u64, PendingRequest>,
    pub(super) renewals: HashMap<u64, PendingRenewal>,
    pub(super) shares: HashMap<u64, Answer<RemoteRegion>>,
    /// What the peer lent unasked, and waits for the application.
    pub(super) offers: VecDeque<Arc<RemoteLeaseState>>,
    /// And what waits for the peer's clock before, by which its end is known.
    pub(super) undated: VecDeque<UndatedLease>,
    pub(super) over: bool,
}

/// A lease that the peer lent or passed on, and that ends at a time by the peer's clock.
pub(super) struct UndatedLease {
    pub(super) held: Arc<RemoteLeaseState>,
    pub(super) until: u64,
    /// When the peer was asked for its clock.
    pub(super) asked: Instant,
    /// The peer has ended it meanwhile.
    pub(super) has_ended: bool,
}

impl Control {
    /// One whose endpoint is not connected, and has no receives. `user`: the application's connection.
    pub(super) fn new(
        shared: &Arc<LeaseContext>,
        endpoint: Endpoint,
        user: UserConnection,
    ) -> Arc<Control> {
        let timers = &shared.reactor.timers;
        let conn_state = ConnState::new(timers);
        shared.router.register(endpoint.id(), &conn_state);
        Arc::new_cyclic(|me| Control {
            endpoint,
            receives: Arc::default(),
            conn_state,
            user: user.conn_state,
            user_id: user.id,
            grants_to: user.grants_to,
            shared: shared.clone(),
            state: Mutex::default(),
            lease_waiters: WaitQueue::new(timers),
            request_waiters: WaitQueue::new(timers),
            network: OnceLock::new(),
            me: me.clone(),
        })
    }

    /// Whether nothing was said over it yet.
    pub(crate) fn is_unused(&self) -> bool {
        is_unused(&self.endpoint)
    }

    /// Posts its receives.
    pub(super) fn post_receives(&self) -> Result<()> {
        for context in 0..DEPTH {
            let buffer = self.shared.pool.alloc_dirty(MAX_LEN)?;
            self.receives.post(&self.endpoint, context, buffer)?;
        }
        Ok(())
    }

    /// Where the peer is, by which its leases count.
    pub(super) fn network(&self) -> Network {
        *self.network.get_or_init(|| {
            let addr = self.endpoint.peer_addr().map(|addr| addr.ip());
            addr.unwrap_or(Ipv4Addr::UNSPECIFIED.into()).into()
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ControlState> {
        self.state.lock()
    }

    /// By which the node's thread knows a lease.
    pub(super) fn lease_name(&self, lease: u64) -> LeaseName {
        (self.endpoint.id(), lease)
    }

    pub(super) fn reason(&self) -> DisconnectReason {
        let end = self.user.end().or_else(|| self.conn_state.end());
        end.unwrap_or(DisconnectReason::Local)
    }

    /// Puts a message on its way.
    pub(super) fn send(&self, state: &mut ControlState, message: &LeaseMessage) {
        state.outbox.send(message);
        state.outbox.flush(&self.endpoint);
    }

    /// Puts a message on its way that the peer has caused. The node's thread [looks](Control::check_answers) at what that makes.
    pub(super) fn answer(&self, state: &mut ControlState, message: &LeaseMessage) {
        state.outbox.answer(message);
        state.outbox.flush(&self.endpoint);
    }

    /// Disconnects a peer that takes no answers. The caller holds no lock.
    pub(super) fn check_answers(&self) {
        let is_overrun = self.state().outbox.take_overrun();
        if is_overrun {
            self.disconnect_peer("takes no answers");
        }
    }

    /// The caller holds no lock: events and logs are reported.
    pub(super) fn disconnect_peer(&self, why: &str) {
        self.shared.peer_log.warn(
            PeerEvent::Protocol,
            self.endpoint.peer_addr(),
            format_args!("{} {why}: disconnected", self.endpoint.id()),
        );
        self.endpoint.disconnect();
    }

    /// With a new number: `next`.
    pub(super) fn begin(&self) -> Result<MutexGuard<'_, ControlState>> {
        let mut state = self.state();
        if state.over {
            return Err(Error::Disconnected(self.reason()));
        }
        state.next += 1;
        Ok(state)
    }

    /// As [`begin`](Control::begin), to say something that the peer did not cause.
    pub(super) fn begin_offer(&self) -> Result<MutexGuard<'_, ControlState>> {
        let state = self.begin()?;
        if state.outbox.has_room() { Ok(state) } else { Err(fabric::Error::Again.into()) }
    }

    /// The connection has ended, and all leases with it.
    pub(super) fn finish(&self) {
        let mut state = self.state();
        if std::mem::replace(&mut state.over, true) {
            return;
        }
        let all = std::mem::take(&mut *state);
        state.over = true;
        drop(state);
        self.shared.quota.give_back(self.network(), all.requested);
        if !all.loans.is_empty() {
            let (id, count) = (self.endpoint.id(), all.loans.len());
            log_line!(Debug, "{id}: the connection ends, and with it its leases ({count})");
        }
        let mut unopened = HashMap::new();
        for (lease, record) in all.loans {
            self.shared.reactor.agenda.remove(record.until, self.lease_name(lease));
            match record.opening.is_some() && record.loan.is_opening() {
                // It ends with the endpoint, and is dropped behind that.
                true => _ = unopened.insert(lease, record),
                false => record.loan.end_by_itself(),
            }
        }
        self.state().loans = unopened;
        for held in all.held.into_values().filter_map(|held| held.upgrade()) {
            held.set_end(LeaseEnd::Disconnected);
        }
        let reason = self.reason();
        let mut wakers = Wakers::new();
        for asked in all.requests.into_values() {
            asked.answer.send(Err(Error::Disconnected(reason)), &mut wakers);
        }
        for asked in all.renewals.into_values() {
            asked.answer.send(Err(Error::Disconnected(reason)), &mut wakers);
        }
        for answer in all.shares.into_values() {
            answer.send(Err(Error::Disconnected(reason)), &mut wakers);
        }
        drop((all.offers, all.undated));
        self.lease_waiters.wake_all(&mut wakers);
        self.request_waiters.wake_all(&mut wakers);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.finish();
        self.shared.router.unregister(self.endpoint.id());
        // Its receives may be over, so that nothing else has the books forget it.
        self.shared.reactor.disconnected(self.endpoint.id());
    }
}
