//! The holder's side of leases: what it asks for, and what it is lent unasked.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fabric::{Access, RemoteRegion};
use fabric_util::sync::MutexGuard;

use super::control::{Control, ControlState, UndatedLease};
use super::message::LeaseMessage;
use super::pending::{Answer, PendingRenewal, PendingRequest, forget};
use super::remote_state::{LeaseSource, RemoteLeaseState};
use super::terms::by_own_clock;
use crate::error::{Error, Result};
use crate::oneshot::Oneshot;
use crate::wakers::Wakers;

impl Control {
    /// Asks the peer something, when it has taken enough of what was said before: `question`, with its number.
    async fn ask<T>(
        self: &Arc<Self>,
        question: impl Fn(&mut ControlState, u64, &mut Wakers) -> (Answer<T>, LeaseMessage) + Unpin,
    ) -> Result<T> {
        let ask = |is_turn: bool| {
            let mut wakers = Wakers::new();
            let mut state = match self.begin() {
                Ok(state) if is_turn && state.outbox.has_room() => state,
                Ok(_) => return None,
                Err(error) => return Some(Err(error)),
            };
            let id = state.next;
            let (answer, message) = question(&mut state, id, &mut wakers);
            self.send(&mut state, &message);
            Some(Ok(answer))
        };
        self.request_waiters.wait(ask).await?.value().await
    }

    pub(super) async fn request(
        self: &Arc<Self>,
        len: u64,
        time: Duration,
        rights: Access,
    ) -> Result<Arc<RemoteLeaseState>> {
        self.ask(|state, id, wakers| {
            let answer = Oneshot::new();
            forget(&mut state.requests, |asked| &asked.answer, wakers);
            let asked =
                PendingRequest { sent: Instant::now(), len, time, rights, answer: answer.clone() };
            state.requests.insert(id, asked);
            (answer, LeaseMessage::Request { id, len, time, rights })
        })
        .await
    }

    pub(super) async fn renew(self: &Arc<Self>, lease: u64, time: Duration) -> Result<()> {
        self.ask(|state, id, wakers| {
            let answer = Oneshot::new();
            forget(&mut state.renewals, |asked| &asked.answer, wakers);
            let asked = PendingRenewal { sent: Instant::now(), lease, answer: answer.clone() };
            state.renewals.insert(id, asked);
            (answer, LeaseMessage::Renew { id, lease, time })
        })
        .await
    }

    /// By which key a third peer reaches a lease that this side holds.
    pub(super) async fn ask_share(self: &Arc<Self>, lease: u64) -> Result<RemoteRegion> {
        self.ask(|state, id, wakers| {
            let answer = Oneshot::new();
            forget(&mut state.shares, |answer| answer, wakers);
            state.shares.insert(id, answer.clone());
            (answer, LeaseMessage::Share { id, lease })
        })
        .await
    }

    /// Passes on what ends then by this side's clock.
    pub(super) fn pass(&self, until: u64, region: RemoteRegion) -> Result<()> {
        let mut state = self.begin_offer()?;
        self.send(&mut state, &LeaseMessage::Pass { until, region });
        Ok(())
    }

    /// Holds a lease that ends then by this side's clock.
    pub(super) fn hold(
        &self,
        state: &mut ControlState,
        lease: u64,
        region: RemoteRegion,
        until: u64,
    ) -> Arc<RemoteLeaseState> {
        let source: Weak<Control> = self.me.clone();
        let held = Arc::new(RemoteLeaseState::new(region, lease, until, Some(source)));
        state.held.insert(lease, Arc::downgrade(&held));
        held
    }

    /// Something lent unasked: asks for the peer's clock, by which it ends.
    pub(super) fn date(
        &self,
        state: &mut ControlState,
        held: Arc<RemoteLeaseState>,
        (until, asked): (u64, Instant),
    ) {
        state.undated.push_back(UndatedLease { held, until, asked, has_ended: false });
        self.answer(state, &LeaseMessage::Clock);
    }

    /// What the peer's clock says: the first of what waits for it is the application's.
    pub(super) fn offer(&self, mut state: MutexGuard<'_, ControlState>, now: u64) {
        let Some(UndatedLease { held, until, asked, has_ended }) = state.undated.pop_front() else {
            return;
        };
        held.until.store(by_own_clock(asked, until, now), Ordering::Release);
        if has_ended {
            held.is_ended_by_peer();
        }
        state.offers.push_back(held);
        drop(state);
        self.lease_waiters.wake_first(&mut Wakers::new());
    }

    pub(super) async fn borrow(self: &Arc<Self>) -> Result<Arc<RemoteLeaseState>> {
        self.lease_waiters.wait(|is_turn| self.next_offer(is_turn)).await
    }

    /// What the first in line for leases that are lent unasked gets, if there is anything.
    fn next_offer(&self, is_turn: bool) -> Option<Result<Arc<RemoteLeaseState>>> {
        let mut state = self.state();
        let offer = if is_turn { state.offers.pop_front() } else { None };
        let over = state.over;
        drop(state);
        offer.map(Ok).or_else(|| over.then(|| Err(Error::Disconnected(self.reason()))))
    }
}

impl LeaseSource for Control {
    fn give_back(&self, lease: u64) {
        let mut state = self.state();
        // The owner may have ended it and said so.
        if state.held.remove(&lease).is_some() && !state.over {
            self.send(&mut state, &LeaseMessage::Release { lease });
        }
    }
}
