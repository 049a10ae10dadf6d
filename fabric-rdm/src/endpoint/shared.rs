//! What all links of an endpoint share: its queues, its tables, and what has ended.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fabric::{Capabilities, CompletionQueue, Domain, EventQueue, Op, OwnedOp};
use fabric_core::{EndpointAttr, Result, unlikely};
use fabric_util::endpoint_map::EndpointMap;

use super::attr::RdmAttr;
use super::completion::{Completion, Kind, Status};
use super::counters::Counters;
use super::hello_data::Windows;
use super::op::Send;
use super::ops::{Arrival, Body, Delivery, Outgoing, RecvOp, SendOp};
use super::slots::{Heads, Slots};
use super::table::{OpKey, Table};
use super::wire::Way;
use crate::address::Address;
use crate::connection::{ConnId, DeathCause};
use crate::identity::EndpointIdentity;
use crate::matching::{MatchLimits, Matcher, Released};
use crate::peers::Peer;
use crate::window::{Account, ReceiveWindows};

/// Something that happened to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum PeerEvent {
    /// A stranger connected, and is a peer now.
    Admitted(Peer),
    /// The peer is down: posts to it fail until it is revived.
    Down(Peer, DeathCause),
}

/// So many boxes of messages are kept for the next ones, and of one-sided operations.
const SPARES: usize = 64;

/// What was ended and not taken, and what is given back when it is.
struct Ended {
    completion: Completion,
    /// It counts against a depth.
    counts: bool,
    /// A place in the window, and bytes.
    credit: Option<(Account, u64)>,
}

pub(super) struct Shared {
    pub(super) me: EndpointIdentity,
    /// For peers.
    pub(super) address: Vec<u8>,
    pub(super) domain: Domain,
    pub(super) events: EventQueue,
    pub(super) queue: CompletionQueue,
    pub(super) attr: RdmAttr,
    pub(super) connection_attr: EndpointAttr,
    pub(super) has_grants: bool,
    pub(super) slots: Slots,
    pub(super) heads: Heads,
    pub(super) matcher: Matcher<OpKey, OpKey>,
    pub(super) windows: ReceiveWindows,
    /// Whose they are.
    accounts: Vec<Option<Peer>>,
    pub(super) sends: Table<SendOp>,
    /// Of messages that are over.
    #[allow(clippy::vec_box)] // it is the boxes that are kept
    spare_messages: Vec<Box<Outgoing>>,
    /// Of one-sided operations that are over.
    #[allow(clippy::vec_box)] // as above
    spare_ops: Vec<Box<OwnedOp>>,
    pub(super) recvs: Table<RecvOp>,
    pub(super) arrivals: Table<Arrival>,
    pub(super) deliveries: Table<Delivery>,
    ended: VecDeque<Ended>,
    /// The same of writes to memory here, where they are taken apart.
    written: VecDeque<Ended>,
    /// Operations that count against the depths.
    pub(super) sends_out: u32,
    pub(super) recvs_out: u32,
    /// Writes with data of the endpoint to itself, whose completions as their target it has not taken.
    pub(super) own_written: u64,
    pub(super) counters: Counters,
    /// At most two of a peer: those that were not taken.
    pub(super) peer_events: VecDeque<PeerEvent>,
    pub(super) conns: EndpointMap<(Peer, ConnId)>,
    /// Links that are to be looked at.
    pub(super) dirty: VecDeque<Peer>,
    pub(super) strangers: u32,
    /// The highest number of any attempt of, or to, a peer that was removed.
    pub(super) removed_attempts: u64,
    /// Attempts at connections that this side made, and connections that there were, for reports.
    pub(super) attempts: u64,
    pub(super) connected: u64,
    /// Counts uses of links.
    pub(super) uses: u64,
    pub(super) start: Instant,
    pub(super) device_lost: bool,
    /// Messages that came for peers that were removed.
    pub(super) dropped: u64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.counters.end();
    }
}

impl Shared {
    pub(super) fn new(
        (domain, attr): (&Domain, &RdmAttr),
        address: &Address,
        (events, queue): (EventQueue, CompletionQueue),
        slots: Slots,
    ) -> Result<Self> {
        let info = domain.info();
        let limits = MatchLimits {
            receives: attr.recv_depth,
            messages: (attr.window.places.total as u32).saturating_add(attr.send_depth),
        };
        Ok(Shared {
            me: address.identity(),
            address: address.to_bytes(),
            connection_attr: attr.connection_attr(domain),
            has_grants: info.capabilities.contains(Capabilities::GRANTS),
            heads: Heads::new(domain),
            domain: domain.clone(),
            events,
            queue,
            attr: attr.clone(),
            slots,
            matcher: Matcher::new(limits)?,
            windows: ReceiveWindows::new(&attr.window)?,
            accounts: Vec::new(),
            sends: Table::default(),
            spare_messages: Vec::new(),
            spare_ops: Vec::new(),
            recvs: Table::default(),
            arrivals: Table::default(),
            deliveries: Table::default(),
            ended: VecDeque::new(),
            written: VecDeque::new(),
            sends_out: 0,
            recvs_out: 0,
            own_written: 0,
            counters: Counters::new(),
            peer_events: VecDeque::new(),
            conns: EndpointMap::default(),
            dirty: VecDeque::new(),
            strangers: 0,
            removed_attempts: 0,
            attempts: 0,
            connected: 0,
            uses: 0,
            start: Instant::now(),
            device_lost: false,
            dropped: 0,
        })
    }

    /// The time, as the state machines of connections count it.
    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// How much one peer may have here.
    pub(super) fn own_windows(&self) -> Windows {
        let limits = &self.attr.window;
        let slot_len = self.attr.slot_len.into();
        Windows { places: limits.places.window, bytes: limits.bytes.window, slot_len }
    }

    /// A peer's part of the receive window.
    pub(super) fn open_account(&mut self, peer: Peer) -> Result<Account> {
        let account = self.windows.open()?;
        if self.accounts.len() <= account.index() {
            self.accounts.resize(account.index() + 1, None);
        }
        self.accounts[account.index()] = Some(peer);
        Ok(account)
    }

    pub(super) fn account_of(&self, account: Account) -> Option<Peer> {
        self.accounts.get(account.index()).copied().flatten()
    }

    /// A link is to be looked at.
    #[inline(never)]
    pub(super) fn add_dirty(&mut self, peer: Peer) {
        self.dirty.push_back(peer);
    }

    /// A message that was admitted has come, and takes a place until it is [freed](Self::free_place).
    #[inline(never)] // not to be in the way of those that take none
    pub(super) fn take_place(&mut self, account: Account, bytes: u64) -> Option<(Account, u64)> {
        self.windows.on_message(account, bytes).ok().map(|()| (account, bytes))
    }

    /// A message has met a receive, or was dropped: its place is free.
    pub(super) fn free_place(&mut self, credit: Option<(Account, u64)>) {
        if let Some((account, bytes)) = credit {
            self.windows.on_matched(account, bytes);
        }
    }

    /// A message that is not posted at once, or not all of it.
    pub(super) fn keep_message(&mut self, send: &Send<'_>, charged: Option<Way>) -> Result<Body> {
        let mut message = self.spare_messages.pop().unwrap_or_default();
        message.renew(send, charged)?;
        Ok(Body::Message(message))
    }

    /// A one-sided operation that is not posted at once.
    pub(super) fn keep_op(&mut self, op: &Op<'_>) -> Result<Box<OwnedOp>> {
        let (domain, attr) = (&self.domain, &self.connection_attr);
        match self.spare_ops.pop() {
            Some(mut spare) => {
                spare.renew(domain, attr, op)?;
                Ok(spare)
            }
            None => Ok(Box::new(OwnedOp::new(domain, attr, op)?)),
        }
    }

    /// Nothing of an operation is needed any more.
    pub(super) fn let_go(&mut self, body: Body) {
        match body {
            Body::Message(mut message) if self.spare_messages.len() < SPARES => {
                message.clear();
                self.spare_messages.push(message);
            }
            Body::OneSided(mut op) | Body::Notified(mut op, _) if self.spare_ops.len() < SPARES => {
                op.let_go();
                self.spare_ops.push(op);
            }
            _ => {}
        }
    }

    /// An operation to a peer has ended. Its link is another matter.
    pub(super) fn end_send(&mut self, op: SendOp, status: Status) {
        self.let_go(op.body);
        let is_ok = status == Status::Ok;
        self.counters.of(op.kind).add(is_ok);
        if is_ok && !op.signaled {
            self.sends_out -= 1;
            return;
        }
        let mut completion = Completion::new(op.context, op.kind, status);
        completion.peer = Some(op.peer);
        if is_ok {
            completion.len = op.len;
            completion.message_len = op.len;
        }
        self.ended.push_back(Ended { completion, counts: true, credit: None });
    }

    /// A receive, or one message of many, has ended.
    #[inline(always)] // one place that is executed for each message calls it
    pub(super) fn end_recv(
        &mut self,
        completion: Completion,
        signaled: bool,
        counts: bool,
        credit: Option<(Account, u64)>,
    ) {
        self.counters.of(completion.kind).add(completion.is_ok());
        if unlikely(!signaled) && completion.is_ok() {
            self.recvs_out -= u32::from(counts);
            self.free_place(credit);
            return;
        }
        let is_apart = unlikely(completion.kind == Kind::RecvWrite) && self.attr.writes_apart;
        let ended = if is_apart { &mut self.written } else { &mut self.ended };
        ended.push_back(Ended { completion, counts, credit });
    }

    /// A receive has ended without a message.
    pub(super) fn end_recv_without(&mut self, key: OpKey, status: Status) {
        if let Some(recv) = self.recvs.remove(key) {
            let completion = Completion::new(recv.context, Kind::Recv, status);
            self.end_recv(completion, recv.signaled, true, None);
        }
    }

    /// A receive of many messages is over.
    pub(super) fn end_released(&mut self, released: Released<OpKey>) {
        if let Some(recv) = self.recvs.remove(released.context) {
            let mut completion = Completion::new(recv.context, Kind::Released, Status::Ok);
            completion.len = released.used;
            // Also of one without completions: the buffer is the application's again.
            self.end_recv(completion, true, true, None);
        }
    }

    /// Takes completions; says how many, and whether places in the window are free by that.
    #[inline]
    pub(super) fn take(&mut self, out: &mut [Completion]) -> (usize, bool) {
        if self.has_ended() { self.take_from(|shared| &mut shared.ended, out) } else { (0, false) }
    }

    /// Takes completions of writes to memory here, as [`take`](Self::take) does.
    pub(super) fn take_written(&mut self, out: &mut [Completion]) -> (usize, bool) {
        self.take_from(|shared| &mut shared.written, out)
    }

    #[inline(never)] // not to be in the way of a poll that finds none
    fn take_from(
        &mut self,
        queue: impl Fn(&mut Self) -> &mut VecDeque<Ended>,
        out: &mut [Completion],
    ) -> (usize, bool) {
        let (mut taken, mut frees) = (0, false);
        while let Some(out) = out.get_mut(taken)
            && let Some(Ended { completion, counts, credit }) = queue(self).front()
        {
            // Each byte is copied once.
            *out = *completion;
            let (counts, credit) = (*counts, *credit);
            queue(self).pop_front();
            self.on_handed_out(out.kind, counts, credit);
            frees |= credit.is_some();
            taken += 1;
        }
        (taken, frees)
    }

    /// The application knows of it from now on.
    fn on_handed_out(&mut self, kind: Kind, counts: bool, credit: Option<(Account, u64)>) {
        let is_recv = matches!(kind, Kind::Recv | Kind::Released);
        self.recvs_out -= u32::from(counts & is_recv);
        self.sends_out -= u32::from(counts & !is_recv);
        // One of its own writes has no account.
        let is_own = kind == Kind::RecvWrite && credit.is_none();
        self.own_written = self.own_written.saturating_sub(u64::from(is_own));
        self.free_place(credit);
    }

    /// Whether there are completions of writes to memory here that are taken apart.
    pub(super) fn has_written(&self) -> bool {
        !self.written.is_empty()
    }

    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }
}
