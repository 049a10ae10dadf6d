//! How the peer gets the key to what it is lent: that of the region, or that of a grant to its connection, which may not be open
//! at once.

use std::sync::Arc;
use std::time::Instant;

use fabric::Access;

use super::control::{Control, ControlState};
use super::lease_key::LeaseKey;
use super::local_lease::LocalLeaseState;
use super::message::LeaseMessage;
use super::record::Opening;
use super::terms::{after, nanos};
use crate::block::{Block, Loan};
use crate::error::{Error, Refusal};

impl Control {
    /// Gives the peer a key to a loan, which it may not be able to use yet. On an error the block comes back, unless the device
    /// does not let go of it.
    pub(super) fn give_key(
        &self,
        lease: u64,
        (loan, len): (Loan, usize),
        rights: Access,
    ) -> Result<Arc<LocalLeaseState>, (Option<Block>, Error)> {
        let key = if self.shared.connection_keys {
            let to = self.grants_to.upgrade();
            let begun = to.ok_or(fabric::Error::NotConnected);
            match begun.and_then(|to| to.begin_grant(loan.region(), rights)) {
                Ok(pending) => LeaseKey::Opening(pending),
                Err(error) => {
                    let error = match error {
                        fabric::Error::NotConnected => Error::Disconnected(self.reason()),
                        error => error.into(),
                    };
                    return Err((loan.end().ok(), error));
                }
            }
        } else {
            LeaseKey::OfRegion
        };
        let (name, reactor) = (self.lease_name(lease), &self.shared.reactor);
        Ok(LocalLeaseState::new(name, len, rights, (key, loan), reactor))
    }

    /// Sends the peer the key to a lease once it can use it; until then looks again and again.
    pub(super) fn announce(&self, lease: u64) {
        let record = |state: &ControlState| Some(state.loans.get(&lease)?.loan.clone());
        let Some(loan) = record(&self.state()) else { return };
        // Outside the lock: it may wait until a copy is done.
        let opened = loan.poll_open();
        let (now, name) = (Instant::now(), self.lease_name(lease));
        // The guard is declared after the loan, which then ends outside of it.
        let mut state = self.state();
        if state.over {
            return;
        }
        let Some(record) = state.loans.get_mut(&lease) else { return };
        let Some(Opening { asked, time, mut backoff }) = record.opening.take() else { return };
        let message = match opened {
            Ok(None) => {
                record.until = now + backoff.pause();
                record.opening = Some(Opening { asked, time, backoff });
                return self.shared.reactor.add_lease_end(record.until, name);
            }
            Ok(Some(region)) => {
                record.until = after(now, time);
                if asked.is_some() {
                    let max = self.shared.policy.max_lifetime;
                    record.latest = max.map(|time| after(now, time));
                }
                self.shared.reactor.add_lease_end(record.until, name);
                match asked {
                    Some(id) => LeaseMessage::Grant { id, lease, time, region },
                    None => LeaseMessage::Lend { lease, until: nanos(record.until), region },
                }
            }
            Err(error) => {
                self.log_lease(lease, format_args!("it will not be open: {error}"));
                drop(self.remove_lease(&mut state, lease));
                if let Some(id) = asked {
                    let why = Refusal::NoMemory;
                    self.answer(&mut state, &LeaseMessage::Refuse { id, why });
                }
                drop(state);
                return loan.end_by_itself();
            }
        };
        match asked {
            Some(_) => self.answer(&mut state, &message),
            None => self.send(&mut state, &message),
        }
        self.log_lease(lease, format_args!("{} bytes for {time:?}", loan.len));
    }

    /// Answers by which key a third peer reaches a lease.
    pub(super) fn share(&self, id: u64, lease: u64) {
        let record = |state: &ControlState| {
            let record = state.loans.get(&lease).filter(|record| record.opening.is_none())?;
            Some(record.loan.clone())
        };
        let loan = record(&self.state());
        // Outside the lock: registering much memory takes long.
        let shared = loan.as_ref().map(|loan| loan.share(&self.shared.domain));
        let answer = match shared {
            Some(Ok(region)) => LeaseMessage::Shared { id, region },
            Some(Err(Error::Fabric(fabric::Error::NoMemory(_)))) => {
                LeaseMessage::Refuse { id, why: Refusal::NoMemory }
            }
            _ => LeaseMessage::Refuse { id, why: Refusal::Unknown },
        };
        self.answer(&mut self.state(), &answer);
    }
}
