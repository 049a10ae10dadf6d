//! The connection beside the application's: over it the two ends agree on leases.
//!
//! It has an endpoint of its own, on a completion queue of its own, which the node's thread serves: so leases are granted,
//! renewed and ended whatever the application's tasks do, and no message of theirs mixes with these. What a peer can make
//! this side hold is bounded: by the policy, by the depth of the endpoint, and by a bound on answers that it does not
//! take (`outbox`), beyond which it is cut off.
//!
//! Locks: a control's state, then its endpoint's. Loans begin and end, and wakers run, outside of it (`wakers`).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use fabric::{Completion, DisconnectReason, Domain, Endpoint, EndpointBuilder, OpKind};
use fabric_util::log_line;
use fabric_util::sync::{Mutex, MutexGuard};

use super::asked::{Answer, Asked};
use super::grant::{Granted, Lending};
use super::held::{Held, Remote};
use super::outbox::Outbox;
use super::policy::LeasePolicy;
use super::receives::Receives;
use super::terms::{after, nanos};
use super::wire::{MOST, Word};
use crate::error::{Error, LeaseEnd, Refusal, Result};
use crate::lane::Lane;
use crate::line::Line;
use crate::node::NodeInner;
use crate::peer_log::PeerLines;
use crate::pool::Pool;
use crate::wakers::Wakers;

/// Messages of one direction that are under way.
const DEPTH: usize = 16;
/// Room of a completion queue that one of these endpoints takes.
pub(crate) const ROOM: usize = 2 * DEPTH;
/// Leases that were lent unasked and wait for the application.
const OFFERS: usize = 64;
/// So long messages are heard before leases are looked after once more, however many come.
const HEARING: Duration = Duration::from_millis(1);

/// What one of these endpoints is made with.
pub(crate) fn endpoint(builder: EndpointBuilder<'_>) -> EndpointBuilder<'_> {
    let builder = builder.send_depth(DEPTH).send_segments(1).inject(fabric::MIN_INJECT);
    builder.recv_depth(DEPTH).recv_segments(1)
}

pub(crate) struct Control {
    pub(super) endpoint: Endpoint,
    receives: Arc<Receives>,
    pub(super) lane: Arc<Lane>,
    /// Of the application's connection.
    user: Arc<Lane>,
    pub(super) node: Weak<NodeInner>,
    pub(super) pool: Pool,
    pub(super) domain: Domain,
    pub(super) policy: LeasePolicy,
    pub(super) lending: Arc<Lending>,
    pub(super) lines: Arc<PeerLines>,
    state: Mutex<State>,
    /// Who waits for a lease that is lent unasked.
    pub(super) borrowers: Arc<Line>,
    /// Who waits for room to ask the peer something.
    pub(super) askers: Arc<Line>,
    pub(super) me: OnceLock<Weak<Control>>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) outbox: Outbox,
    pub(super) next: u64,
    /// What this side lends.
    pub(super) loans: HashMap<u64, Granted>,
    /// Bytes of those that the peer asked for, and how many they are, with the one that is being made.
    pub(super) requested: u64,
    pub(super) asked: usize,
    /// What this side holds.
    pub(super) held: HashMap<u64, Weak<Held>>,
    pub(super) requests: HashMap<u64, Asked>,
    pub(super) renewals: HashMap<u64, (Answer<Instant>, Instant)>,
    pub(super) offers: VecDeque<Remote>,
    pub(super) over: bool,
}

impl State {
    /// A lease that the peer asked for is no more, or was never made.
    pub(super) fn free(&mut self, len: u64, lending: &Lending) {
        self.requested -= len;
        self.asked -= 1;
        lending.give_back(len);
    }
}

impl Control {
    pub(super) fn new(node: &Arc<NodeInner>, user: &Arc<Lane>) -> Result<Arc<Control>> {
        let endpoint = node.control_endpoint()?;
        let lane = Lane::new(&node.reactor.timers);
        node.router.register(endpoint.id(), &lane);
        let control = Arc::new(Control {
            endpoint,
            receives: Arc::default(),
            lane,
            user: user.clone(),
            node: Arc::downgrade(node),
            pool: node.pool.clone(),
            domain: node.domain.clone(),
            policy: node.options.policy.clone(),
            lending: node.lending.clone(),
            lines: node.lines.clone(),
            state: Mutex::default(),
            borrowers: Line::new(&node.reactor.timers),
            askers: Line::new(&node.reactor.timers),
            me: OnceLock::new(),
        });
        let _ = control.me.set(Arc::downgrade(&control));
        node.controls.lock().add(control.endpoint.id(), &control, &control.receives);
        for context in 0..DEPTH {
            let buffer = control.pool.alloc_dirty(MOST)?;
            control.receives.post(&control.endpoint, context, buffer)?;
        }
        // The connection may have ended before anybody knew of this.
        node.reactor.look_at_leases();
        Ok(control)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn reason(&self) -> DisconnectReason {
        let end = self.user.end().or_else(|| self.lane.end());
        end.unwrap_or(DisconnectReason::Local)
    }

    /// Puts a message on its way.
    pub(super) fn say(&self, state: &mut State, word: &Word) {
        state.outbox.say(word);
        state.outbox.flush(&self.endpoint);
    }

    /// Puts a message on its way that the peer has caused.
    pub(super) fn answer(&self, state: &mut State, word: &Word) {
        if !state.outbox.answer(word) {
            self.cut_off("takes no answers");
        }
        state.outbox.flush(&self.endpoint);
    }

    fn cut_off(&self, why: &str) {
        self.lines.tell(format_args!("{} {why}: cut off", self.endpoint.id()));
        self.endpoint.disconnect();
    }

    /// With a new number: `next`.
    pub(super) fn begin(&self) -> Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        if state.over {
            return Err(Error::Disconnected(self.reason()));
        }
        state.next += 1;
        Ok(state)
    }

    /// As [`begin`](Control::begin), to say something that the peer did not cause.
    pub(super) fn begin_offer(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.begin()?;
        if state.outbox.has_room() { Ok(state) } else { Err(fabric::Error::Again.into()) }
    }

    /// A message has come.
    fn hear(&self, bytes: &[u8]) {
        let Some(word) = Word::from_bytes(bytes) else {
            return self.cut_off("breaks the protocol");
        };
        let now = Instant::now();
        let mut state = self.state();
        match word {
            Word::Request { id, len, time, rights } => {
                drop(state);
                self.grant(id, len, time, rights);
            }
            Word::Renew { id, lease, time } => {
                let most = self.policy.longest;
                let answer = match state.loans.get_mut(&lease) {
                    None => Word::Refuse { id, why: Refusal::Unknown },
                    Some(one) if now >= one.until => Word::Refuse { id, why: Refusal::Unknown },
                    // For how long, its owner said.
                    Some(granted) if !granted.asked => Word::Refuse { id, why: Refusal::Fixed },
                    Some(_) if time > most => Word::Refuse { id, why: Refusal::TooLong { most } },
                    Some(granted) => {
                        granted.until = after(now, time);
                        Word::Renewed { id, time }
                    }
                };
                self.answer(&mut state, &answer);
            }
            Word::Release { lease } => {
                let ended = self.strike(&mut state, lease);
                drop(state);
                ended.into_iter().for_each(|loan| loan.end_by_itself());
            }
            Word::Grant { id, lease, time, region } => {
                let Some(asked) = state.requests.remove(&id) else {
                    // Nobody waits for it any more.
                    return self.answer(&mut state, &Word::Release { lease });
                };
                if !asked.fits(time, &region) {
                    drop(state);
                    let why = "grants what was not asked for";
                    self.cut_off(why);
                    let error = Error::Protocol(format!("the peer {why}"));
                    return asked.answer.keep(Err(error), &mut Wakers::new());
                }
                // The owner counts from a moment after the request, so this side stops no later than it.
                let remote = self.hold(&mut state, lease, region, after(asked.sent, time));
                drop(state);
                asked.answer.keep(Ok(remote), &mut Wakers::new());
            }
            Word::Refuse { id, why } => {
                let request = state.requests.remove(&id);
                let renewal = state.renewals.remove(&id);
                drop(state);
                let mut wakers = Wakers::new();
                if let Some(asked) = request {
                    asked.answer.keep(Err(Error::NotGranted(why)), &mut wakers);
                }
                if let Some((answer, _)) = renewal {
                    answer.keep(Err(Error::NotGranted(why)), &mut wakers);
                }
            }
            Word::Renewed { id, time } => {
                let renewal = state.renewals.remove(&id);
                drop(state);
                if let Some((answer, sent)) = renewal {
                    answer.keep(Ok(after(sent, time)), &mut Wakers::new());
                }
            }
            Word::Lend { lease, .. } if state.offers.len() >= OFFERS => {
                self.answer(&mut state, &Word::Release { lease });
            }
            Word::Lend { lease, time, region } => {
                let remote = self.hold(&mut state, lease, region, after(now, time));
                self.offer(state, remote);
            }
            Word::Pass { .. } if state.offers.len() >= OFFERS => {}
            Word::Pass { time, region } => {
                let until = nanos(after(now, time)).into();
                let held = Held { region, lease: 0, until, ended: 0.into(), control: None };
                self.offer(state, Remote { held: Arc::new(held) });
            }
            Word::Ended { lease } => {
                let held = state.held.remove(&lease).and_then(|held| held.upgrade());
                drop(state);
                if let Some(held) = held {
                    let end = held.end().unwrap_or(LeaseEnd::Revoked);
                    held.set_end(end);
                }
            }
        }
    }

    /// Ends what is over; says when the next lease ends.
    fn tick(&self, now: Instant) -> Option<Instant> {
        if self.user.end().is_some() || self.lane.end().is_some() {
            self.finish();
            return None;
        }
        let mut state = self.state();
        state.outbox.flush(&self.endpoint);
        let has_room = state.outbox.has_room();
        let due: Vec<u64> = (state.loans.iter())
            .filter(|(_, granted)| granted.until <= now || !granted.loan.is_out())
            .map(|(lease, _)| *lease)
            .collect();
        let ended: Vec<_> = due.iter().filter_map(|l| self.strike(&mut state, *l)).collect();
        let next = state.loans.values().map(|granted| granted.until).min();
        drop(state);
        if has_room {
            self.askers.call(&mut Wakers::new());
        }
        ended.iter().for_each(|loan| loan.end_by_itself());
        // Said when it is so.
        let mut state = self.state();
        due.into_iter().for_each(|lease| self.say(&mut state, &Word::Ended { lease }));
        next
    }

    /// The connection has ended, and all leases with it.
    fn finish(&self) {
        let mut state = self.state();
        if std::mem::replace(&mut state.over, true) {
            return;
        }
        let all = std::mem::take(&mut *state);
        state.over = true;
        drop(state);
        self.lending.give_back(all.requested);
        all.loans.into_values().for_each(|granted| granted.loan.end_by_itself());
        for held in all.held.into_values().filter_map(|held| held.upgrade()) {
            held.set_end(LeaseEnd::Disconnected);
        }
        let reason = self.reason();
        let mut wakers = Wakers::new();
        for asked in all.requests.into_values() {
            asked.answer.keep(Err(Error::Disconnected(reason)), &mut wakers);
        }
        for (answer, _) in all.renewals.into_values() {
            answer.keep(Err(Error::Disconnected(reason)), &mut wakers);
        }
        drop(all.offers);
        self.borrowers.call_all(&mut wakers);
        self.askers.call_all(&mut wakers);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.finish();
        if let Some(node) = self.node.upgrade() {
            node.router.unregister(self.endpoint.id());
            // Its endpoint goes behind this, and leaves completions of the receives.
            node.reactor.look_at_leases();
        }
    }
}

impl NodeInner {
    /// Does what is to be done about leases; says when the next one ends. The node's thread calls it: with whether one has
    /// changed, and what it said last time.
    pub(crate) fn serve_leases(&self, mut changed: bool, next: Option<Instant>) -> Option<Instant> {
        // What is left is heard in the next round: arming the queue says so.
        let begun = Instant::now();
        while let Ok(Some(completion)) = self.control.poll_one() {
            self.control_completion(&completion);
            changed = true;
            if begun.elapsed() >= HEARING {
                break;
            }
        }
        let now = Instant::now();
        // Mostly the thread was woken for something else, and there may be many connections.
        if !changed && next.is_none_or(|next| now < next) {
            return next;
        }
        let controls = self.controls.lock().all();
        controls.iter().filter_map(|control| control.tick(now)).min()
    }

    fn control_completion(&self, completion: &Completion) {
        if !completion.kind.is_receive() {
            return; // there is room again, which the next tick uses
        }
        let known = self.controls.lock().get(completion.endpoint);
        let Some((control, receives)) = known else { return };
        let context = completion.context as usize;
        let Some(buffer) = receives.ended(context) else { return };
        let Some(control) = control.filter(|_| completion.is_ok()) else {
            drop(buffer);
            self.controls.lock().forget(completion.endpoint);
            return;
        };
        if completion.kind != OpKind::Recv {
            return control.cut_off("writes where it may not");
        }
        let mut bytes = [0; MOST];
        let len = completion.len.min(MOST);
        bytes[..len].copy_from_slice(&buffer[..len]);
        // Its end is told by an event.
        let _ = receives.post(&control.endpoint, context, buffer);
        control.hear(&bytes[..len]);
    }

    /// The node ends: takes what is left of receives of connections that are gone. Those that have no completion keep their
    /// memory, which the peer could still write to.
    pub(crate) fn end_control(&self) {
        while let Ok(Some(completion)) = self.control.poll_one() {
            self.control_completion(&completion);
        }
        let left = self.controls.lock().leak();
        if left > 0 && self.driver.refusal().is_none() {
            log_line!(
                Error,
                "fabric-async: the memory of {left} receives for leases leaks: they were not completed, so it may still be in use"
            );
        }
    }
}
