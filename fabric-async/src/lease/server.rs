//! The owner's side of leases: grants under the policy, unasked loans, and their removal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fabric::Access;
use fabric_util::log_line;

use super::control::{Control, ControlState};
use super::decision::LeaseRequest;
use super::local_lease::{LocalLease, LocalLeaseState};
use super::message::LeaseMessage;
use super::record::LeaseRecord;
use super::terms::{after, whole};
use crate::block::{Block, Loan};
use crate::buffer::Buffer;
use crate::error::{Error, OpError, Refusal, Result};
use crate::peer_log::PeerEvent;

impl Control {
    pub(super) fn local_lease(&self, lease: u64) -> Option<LocalLease> {
        Some(LocalLease { loan: self.state().loans.get(&lease)?.loan.clone() })
    }

    pub(super) fn lend(
        &self,
        buffer: Buffer,
        time: Duration,
        rights: Access,
    ) -> Result<LocalLease, OpError<Buffer>> {
        let refuse = |error, buffer| Err(OpError { error, buffer });
        if !Access::REMOTE.contains(rights) || buffer.is_empty() {
            let text = "a lease has at least one byte, and rights that a peer can have";
            return refuse(fabric::Error::invalid("lend", text).into(), buffer);
        }
        let lease = match self.begin_offer() {
            Ok(state) => state.next,
            Err(error) => return refuse(error, buffer),
        };
        let (Some(block), len) = buffer.into_block() else {
            return refuse(Error::NotGranted(Refusal::Nothing), Buffer::empty());
        };
        // Outside the lock: registering much memory takes long.
        let loan = match self.loan(block, len, rights) {
            Ok(loan) => loan,
            Err((block, error)) => return refuse(error.into(), Buffer::new(block, len)),
        };
        let loan = match self.give_key(lease, (loan, len), rights) {
            Ok(loan) => loan,
            Err((Some(block), error)) => return refuse(error, Buffer::new(block, len)),
            Err((None, error)) => return refuse(error, Buffer::empty()),
        };
        let mut state = self.state();
        if state.over {
            drop(state);
            return match loan.take() {
                Ok(block) => refuse(Error::Disconnected(self.reason()), Buffer::new(block, len)),
                Err(error) => refuse(error, Buffer::empty()),
            };
        }
        state.loans.insert(lease, LeaseRecord::opening(loan.clone(), time, None));
        drop(state);
        self.announce(lease);
        Ok(LocalLease { loan })
    }

    /// Grants or refuses a request.
    pub(super) fn grant(&self, id: u64, len: u64, time: Duration, rights: Access) {
        let rights = if rights.is_empty() { self.shared.policy.rights } else { rights };
        let len = whole(len);
        let (lease, loan) = match self.reserve(len, time, rights) {
            Ok(lease) => (lease, self.make_loan(len, rights)),
            Err(why) => {
                log_line!(Debug, "{}: {len} bytes not granted: {why}", self.endpoint.id());
                return self.answer(&mut self.state(), &LeaseMessage::Refuse { id, why });
            }
        };
        let loan = loan.and_then(|loan| {
            self.give_key(lease, loan, rights).map_err(|(block, error)| {
                block.into_iter().for_each(|block| drop(Buffer::new(block, 0)));
                self.nothing_lent(&error)
            })
        });
        // The guard is declared after the loan: if the connection is closed, the loan ends after the lock is released.
        let mut state = self.state();
        if state.over {
            return;
        }
        match &loan {
            Ok(loan) => {
                let record = LeaseRecord::opening(loan.clone(), time, Some(id));
                state.loans.insert(lease, record);
                drop(state);
                self.announce(lease);
            }
            Err(why) => {
                self.free(&mut state, len);
                self.answer(&mut state, &LeaseMessage::Refuse { id, why: *why });
            }
        }
    }

    /// Logs why a request gets no memory.
    fn nothing_lent(&self, error: &Error) -> Refusal {
        self.shared.peer_log.warn(
            PeerEvent::Resources,
            self.endpoint.peer_addr(),
            format_args!("{}: nothing lent: {error}", self.endpoint.id()),
        );
        Refusal::NoMemory
    }

    /// Renews a lease, or refuses that.
    pub(super) fn prolong(&self, id: u64, lease: u64, time: Duration, now: Instant) {
        let asked = self.may_prolong(lease, time, now).and_then(|(len, rights)| {
            match self.is_granted(len, time, rights, Some(lease)) {
                true => Ok(()),
                false => Err(Refusal::Denied),
            }
        });
        let mut state = self.state();
        // It may have ended meanwhile.
        let record = state.loans.get_mut(&lease).ok_or(Refusal::Unknown);
        let answer = match asked.and(record) {
            Ok(record) => {
                let (name, until) = (self.lease_name(lease), after(now, time));
                self.shared.reactor.agenda.remove(record.until, name);
                self.shared.reactor.add_lease_end(until, name);
                record.until = until;
                LeaseMessage::Renewed { id, time }
            }
            Err(why) => LeaseMessage::Refuse { id, why },
        };
        self.answer(&mut state, &answer);
    }

    /// Whether the policy lets a lease last for this time from now; gives its length and rights.
    fn may_prolong(
        &self,
        lease: u64,
        time: Duration,
        now: Instant,
    ) -> Result<(u64, Access), Refusal> {
        let state = self.state();
        let lives = |record: &&LeaseRecord| record.opening.is_none() && now < record.until;
        let record = state.loans.get(&lease).filter(lives);
        let record = record.ok_or(Refusal::Unknown)?;
        if !record.asked {
            // Lent unasked, for a time that its owner chose.
            return Err(Refusal::Fixed);
        }
        let left = record.latest.map(|latest| latest.saturating_duration_since(now));
        let max = left.unwrap_or(Duration::MAX).min(self.shared.policy.max_duration);
        if time > max {
            return Err(Refusal::TooLong { max });
        }
        Ok((record.loan.len as u64, record.loan.rights))
    }

    /// Whether the application grants it. The caller holds no lock.
    fn is_granted(&self, len: u64, time: Duration, rights: Access, renews: Option<u64>) -> bool {
        self.shared.decision.grants(|| {
            let (connection, peer) = (self.user_id, self.endpoint.peer_addr());
            LeaseRequest { connection, peer, len, time, rights, renews }
        })
    }

    /// Reserves room under the policy for a lease, and gives its number.
    fn reserve(&self, len: u64, time: Duration, rights: Access) -> Result<u64, Refusal> {
        let policy = &self.shared.policy;
        if policy.max_bytes == 0 || policy.rights.is_empty() {
            return Err(Refusal::Nothing);
        }
        if !policy.rights.contains(rights) {
            return Err(Refusal::Rights);
        }
        let max = policy.max_lifetime.map_or(policy.max_duration, |it| it.min(policy.max_duration));
        if time > max {
            return Err(Refusal::TooLong { max });
        }
        if !self.is_granted(len, time, rights, None) {
            return Err(Refusal::Denied);
        }
        let mut state = self.state();
        if state.requested.checked_add(len).is_none_or(|sum| sum > policy.max_bytes) {
            return Err(Refusal::TooMuch { max: policy.max_bytes });
        }
        if state.asked >= policy.max_leases {
            return Err(Refusal::TooMany);
        }
        // A closed connection has already released its reservations.
        if state.over || !self.shared.quota.reserve(self.network(), len) {
            return Err(Refusal::NoMemory);
        }
        state.requested += len;
        state.asked += 1;
        state.next += 1;
        Ok(state.next)
    }

    /// A lease that the peer asked for is no more, or was never made.
    fn free(&self, state: &mut ControlState, len: u64) {
        state.requested -= len;
        state.asked -= 1;
        self.shared.quota.give_back(self.network(), len);
    }

    /// Registers memory for a peer. Outside the lock: registering much memory takes long.
    fn make_loan(&self, len: u64, rights: Access) -> Result<(Loan, usize), Refusal> {
        // Zeroed: earlier contents are not for this peer.
        let size = usize::try_from(len).map_err(|_| Refusal::NoMemory)?;
        let buffer = self.shared.pool.alloc(size).map_err(|_| Refusal::NoMemory)?;
        let (block, _) = buffer.into_block();
        let block = block.ok_or(Refusal::NoMemory)?;
        match self.loan(block, size, rights) {
            Ok(loan) => Ok((loan, size)),
            Err((block, error)) => {
                drop(Buffer::new(block, 0));
                Err(self.nothing_lent(&error.into()))
            }
        }
    }

    /// Registers a block for the peer.
    fn loan(
        &self,
        block: Block,
        len: usize,
        rights: Access,
    ) -> fabric::Result<Loan, (Block, fabric::Error)> {
        let by_grant = match self.shared.connection_keys {
            true => Access::GRANTS_ONLY,
            false => Access::empty(),
        };
        Loan::new(&self.shared.domain, block, len, rights | by_grant)
    }

    pub(super) fn log_lease(&self, lease: u64, event: std::fmt::Arguments<'_>) {
        log_line!(Debug, "{}: lease {lease}: {event}", self.endpoint.id());
    }

    /// Removes a lease; the caller ends it outside the lock.
    pub(super) fn remove_lease(
        &self,
        state: &mut ControlState,
        lease: u64,
    ) -> Option<Arc<LocalLeaseState>> {
        let LeaseRecord { loan, until, asked, .. } = state.loans.remove(&lease)?;
        self.shared.reactor.agenda.remove(until, self.lease_name(lease));
        self.log_lease(lease, format_args!("ends"));
        if asked {
            self.free(state, loan.len as u64);
        }
        Some(loan)
    }
}
