//! How a connection for leases handles the peer's messages, and ends expired leases.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;

use super::control::{Control, ControlState, UndatedLease};
use super::message::LeaseMessage;
use super::record::LeaseRecord;
use super::remote_state::RemoteLeaseState;
use super::terms::{after, nanos};
use crate::error::Error;
use crate::wakers::Wakers;

/// Maximum number of leases that were lent unasked and wait for the application.
const MAX_OFFERS: usize = 64;

impl ControlState {
    fn has_room_for_offer(&self) -> bool {
        self.offers.len() + self.undated.len() < MAX_OFFERS
    }
}

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
                let until = nanos(after(asked.sent, time));
                let held = self.hold(&mut state, lease, region, until);
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
                if let Some(asked) = renewal {
                    asked.answer.send(Err(Error::NotGranted(why)), &mut wakers);
                }
            }
            LeaseMessage::Renewed { id, time } => {
                let Some(asked) = state.renewals.remove(&id) else { return };
                let held = state.held.get(&asked.lease).and_then(Weak::upgrade);
                drop(state);
                // As of a grant. And here, in the order in which the owner renewed, whenever futures are polled.
                let until = nanos(after(asked.sent, time));
                held.iter().for_each(|held| held.until.store(until, Ordering::Release));
                asked.answer.send(Ok(()), &mut Wakers::new());
            }
            LeaseMessage::Lend { lease, .. } if !state.has_room_for_offer() => {
                self.answer(&mut state, &LeaseMessage::Release { lease });
            }
            LeaseMessage::Lend { lease, until, region } => {
                let held = self.hold(&mut state, lease, region, u64::MAX);
                self.date(&mut state, held, (until, now));
            }
            LeaseMessage::Pass { .. } if !state.has_room_for_offer() => {}
            LeaseMessage::Pass { until, region } => {
                let held = Arc::new(RemoteLeaseState::new(region, 0, u64::MAX, None));
                self.date(&mut state, held, (until, now));
            }
            LeaseMessage::Clock => {
                self.answer(&mut state, &LeaseMessage::Time { now: nanos(now) });
            }
            LeaseMessage::Time { now } => self.offer(state, now),
            LeaseMessage::Ended { lease } => {
                let held = state.held.remove(&lease).and_then(|held| held.upgrade());
                let is_it = |it: &&mut UndatedLease| {
                    held.as_ref().is_some_and(|held| Arc::ptr_eq(held, &it.held))
                };
                // Whether by its time is known when that is.
                let undated = state.undated.iter_mut().find(is_it).map(|it| it.has_ended = true);
                drop(state);
                let ended = held.filter(|_| undated.is_none());
                ended.iter().for_each(|held| held.is_ended_by_peer());
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
