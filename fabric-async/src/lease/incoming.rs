//! How a connection for leases handles the peer's messages, and ends expired leases.

use std::sync::Arc;
use std::time::Instant;

use super::control::Control;
use super::message::LeaseMessage;
use super::record::LeaseRecord;
use super::remote_state::RemoteLeaseState;
use super::terms::{after, nanos};
use crate::error::{Error, LeaseEnd};
use crate::wakers::Wakers;

/// Maximum number of leases that were lent unasked and wait for the application.
const MAX_OFFERS: usize = 64;

impl Control {
    /// Handles a message.
    pub(super) fn on_message(&self, bytes: &[u8]) {
        let Some(message) = LeaseMessage::from_bytes(bytes) else {
            return self.disconnect_peer("sent an invalid message about leases");
        };
        let now = Instant::now();
        let mut state = self.state();
        match message {
            LeaseMessage::Request { id, len, time, rights } => {
                drop(state);
                self.grant(id, len, time, rights);
            }
            LeaseMessage::Renew { id, lease, time } => {
                drop(state);
                self.prolong(id, lease, time, now);
            }
            LeaseMessage::Share { id, lease } => {
                drop(state);
                self.share(id, lease);
            }
            LeaseMessage::Shared { id, region } => {
                let asked = state.shares.remove(&id);
                drop(state);
                asked.into_iter().for_each(|answer| answer.send(Ok(region), &mut Wakers::new()));
            }
            LeaseMessage::Release { lease } => {
                // The peer does not know of one that is not open.
                if state.loans.get(&lease).is_some_and(|record| record.opening.is_some()) {
                    return;
                }
                let ended = self.remove_lease(&mut state, lease);
                drop(state);
                ended.into_iter().for_each(|loan| loan.end_by_itself());
            }
            LeaseMessage::Grant { id, lease, time, region } => {
                let Some(asked) = state.requests.remove(&id) else {
                    // The request's future was dropped.
                    return self.answer(&mut state, &LeaseMessage::Release { lease });
                };
                if !asked.fits(time, &region) {
                    drop(state);
                    let why = "grants what was not asked for";
                    self.disconnect_peer(why);
                    let error = Error::Protocol(format!("the peer {why}"));
                    return asked.answer.send(Err(error), &mut Wakers::new());
                }
                // The owner counts from a moment after the request, so this side stops no later than it.
                let held = self.hold(&mut state, lease, region, after(asked.sent, time));
                drop(state);
                asked.answer.send(Ok(held), &mut Wakers::new());
            }
            LeaseMessage::Refuse { id, why } => {
                let request = state.requests.remove(&id);
                let renewal = state.renewals.remove(&id);
                let share = state.shares.remove(&id);
                drop(state);
                let mut wakers = Wakers::new();
                if let Some(asked) = request {
                    asked.answer.send(Err(Error::NotGranted(why)), &mut wakers);
                }
                if let Some(answer) = share {
                    answer.send(Err(Error::NotGranted(why)), &mut wakers);
                }
                if let Some((answer, _)) = renewal {
                    answer.send(Err(Error::NotGranted(why)), &mut wakers);
                }
            }
            LeaseMessage::Renewed { id, time } => {
                let renewal = state.renewals.remove(&id);
                drop(state);
                if let Some((answer, sent)) = renewal {
                    answer.send(Ok(after(sent, time)), &mut Wakers::new());
                }
            }
            LeaseMessage::Lend { lease, .. } if state.offers.len() >= MAX_OFFERS => {
                self.answer(&mut state, &LeaseMessage::Release { lease });
            }
            LeaseMessage::Lend { lease, time, region } => {
                let held = self.hold(&mut state, lease, region, after(now, time));
                self.offer(state, held);
            }
            LeaseMessage::Pass { .. } if state.offers.len() >= MAX_OFFERS => {}
            LeaseMessage::Pass { time, region } => {
                let until = nanos(after(now, time)).into();
                let held =
                    RemoteLeaseState { region, lease: 0, until, ended: 0.into(), source: None };
                self.offer(state, Arc::new(held));
            }
            LeaseMessage::Ended { lease } => {
                let held = state.held.remove(&lease).and_then(|held| held.upgrade());
                drop(state);
                if let Some(held) = held {
                    let end = held.end().unwrap_or(LeaseEnd::Revoked);
                    held.set_end(end);
                }
            }
        }
    }

    /// The endpoint has room for more messages.
    pub(super) fn on_room(&self) {
        let mut state = self.state();
        state.outbox.flush(&self.endpoint);
        let has_room = state.outbox.has_room();
        drop(state);
        if has_room {
            self.request_waiters.wake_first(&mut Wakers::new());
        }
    }

    /// Ends a lease that has expired, or that the application took back; looks at one that is not open yet.
    pub(super) fn on_lease_due(&self, lease: u64, now: Instant) {
        let mut state = self.state();
        let is_over = |record: &LeaseRecord| record.until <= now || !record.loan.is_active();
        let Some(record) = state.loans.get(&lease).filter(|record| is_over(record)) else { return };
        if record.opening.is_some() {
            drop(state);
            return self.announce(lease);
        }
        let ended = self.remove_lease(&mut state, lease);
        drop(state);
        ended.iter().for_each(|loan| loan.end_by_itself());
        // Sent after the lease has ended.
        self.send(&mut self.state(), &LeaseMessage::Ended { lease });
    }
}
