//! The link: what it consists of, what is posted to it, and what it hands out.

use std::io;
use std::sync::Arc;

use crate::stats::Stats;
use fabric_core::{
    DisconnectReason, EndpointId, Error, Event, RawCompletion, RecvWork, Result, SendFlags, SendOp,
    SendWork, Status, Token,
};
use smallvec::SmallVec;

use crate::completion_ring::{CompletionRing, Outbox};
use crate::region_table::RegionTable;
use crate::stream::wire::frame::Header;

use super::outgoing::Outgoing;
use super::payload::Incoming;
use super::phase::{FinalFrame, Phase};
use super::recv_queue::RecvQueue;
use super::requests::{READS, Responses};
use super::sends::{Beside, Sends};
use super::shared_receives::SharedReceives;
use super::transport::{Transport, Unconnected};

/// For tests: what a link defers, as long as the contract lets it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deferral {
    /// Acknowledging accepted requests and announcing posted receives.
    pub updates: bool,
    /// Answering reads and atomics.
    pub answers: bool,
}

/// What a link is part of.
pub struct LinkContext {
    /// The endpoint, for events and log lines.
    pub id: EndpointId,
    /// What the peer may reach.
    pub regions: Arc<RegionTable>,
    /// Where completions of the send queue go.
    pub send_ring: Arc<CompletionRing>,
    /// Where completions of receives go.
    pub recv_ring: Arc<CompletionRing>,
    /// The queue that receives come from, if that is not the link's own.
    pub receives: Option<Arc<SharedReceives>>,
    /// The domain's counters.
    pub stats: Arc<Stats>,
}

/// What a link has to transmit after a post, for the decision when it goes.
#[derive(Clone, Copy, Debug)]
pub struct Pending {
    /// The operations of the post.
    pub posts: usize,
    /// Bytes that wait, of this post and of earlier ones.
    pub bytes: usize,
    /// Those of them that were copied.
    pub copied: usize,
    /// The peer owes an acknowledgement of earlier posts: it is busy with those.
    pub peer_busy: bool,
    /// The peer was not asked to acknowledge everything that was posted.
    pub ack_wanted: bool,
}

/// Completions that were made under the link's lock and go to a ring together.
type Made = Vec<RawCompletion>;

/// One connection's protocol.
pub struct Link {
    pub(super) context: LinkContext,
    pub(super) phase: Phase,
    /// Whether the application heard `Connected`.
    pub(super) announced: bool,
    pub(super) sends: Sends,
    pub(super) recvs: RecvQueue,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Incoming,
    pub(super) answers: Responses,
    pub(super) final_frame: FinalFrame,
    pub(super) deferral: Deferral,
    pub(super) made_sends: Made,
    pub(super) made_recvs: Made,
    /// The last operation that succeeded without a completion, if it came after the last that had one.
    pub(super) unsaid: Option<Token>,
    /// Events to report, and how many of the link's have not reached the application yet: completions wait for them.
    pub(super) events: SmallVec<[Event; 1]>,
    pub(super) unreported: usize,
}

impl Link {
    /// A link without a connection.
    pub fn new(context: LinkContext) -> Self {
        let recvs = context.receives.clone().map_or_else(RecvQueue::default, RecvQueue::sharing);
        Link {
            context,
            phase: Phase::Idle,
            announced: false,
            sends: Sends::default(),
            recvs,
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            answers: Responses::default(),
            final_frame: FinalFrame::default(),
            deferral: Deferral::default(),
            made_sends: Made::new(),
            made_recvs: Made::new(),
            unsaid: None,
            events: SmallVec::new(),
            unreported: 0,
        }
    }

    /// How far the connection is.
    #[inline]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The endpoint.
    pub fn id(&self) -> EndpointId {
        self.context.id
    }

    /// The domain's counters.
    pub(super) fn stats(&self) -> &Stats {
        &self.context.stats
    }

    /// The receives posted so far, for the handshake.
    pub(crate) fn credit(&mut self) -> u32 {
        self.recvs.announce()
    }

    /// The handshake is over; the peer answers `reads` at a time and has posted `credit` receives.
    pub fn open(&mut self, reads: u32, credit: u32) {
        self.phase = Phase::Open;
        self.context.regions.begin_connection(self.context.id);
        self.sends.open(reads.min(READS), credit);
    }

    /// Reports to the application that the connection is established.
    pub fn announce(&mut self, data: &[u8]) {
        if !std::mem::replace(&mut self.announced, true) {
            let (endpoint, data) = (self.context.id, data.into());
            self.report(Event::Connected { endpoint, data });
        }
    }

    /// Whether the application heard `Connected`.
    #[inline]
    pub fn is_announced(&self) -> bool {
        self.announced
    }

    /// Takes operations for the send queue, and encodes what of them may be transmitted; says what there is to transmit.
    ///
    /// # Errors
    /// `NotConnected`, or `Unsupported` for an operation that the protocol does not have: none was taken.
    ///
    /// # Safety
    /// As [`EndpointOps::post_send`](fabric_core::EndpointOps::post_send), where `quiesce` is
    /// [`End::Quiet`](super::End::Quiet).
    #[inline]
    pub unsafe fn post_send(&mut self, work: &[SendWork<'_>]) -> Result<Pending> {
        // SAFETY: the caller's promise.
        unsafe { self.post_beside(work, None::<&Unconnected>) }
    }

    /// As [`post_send`](Link::post_send), on a transport by which each side reaches memory of the other's by itself: what is long
    /// goes so.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn post_beside(
        &mut self,
        work: &[SendWork<'_>],
        transport: Option<&impl Transport>,
    ) -> Result<Pending> {
        if self.phase != Phase::Open || !self.announced {
            return Err(Error::NotConnected);
        }
        if !work.iter().all(|one| is_known(&one.op)) {
            return Err(Error::unsupported("post", "fabric", "an operation of a later version"));
        }
        let peer_busy = self.sends.awaits_ack();
        for one in work {
            let beside = transport.map_or(Beside::No, |transport| self.beside(one, transport));
            self.sends.push(one, beside);
        }
        self.encode_pending();
        if self.sends.needs_injected() {
            self.sends.keep_injected(work.len());
        }
        Ok(Pending {
            posts: work.len(),
            bytes: self.outgoing.queued(),
            copied: self.outgoing.buffered(),
            peer_busy,
            ack_wanted: self.sends.has_questions() || self.sends.leaves_unasked(),
        })
    }

    /// Takes receives.
    ///
    /// # Errors
    /// `NotConnected`: none was taken.
    ///
    /// # Safety
    /// As [`EndpointOps::post_recv`](fabric_core::EndpointOps::post_recv), where `quiesce` is
    /// [`End::Quiet`](super::End::Quiet).
    #[inline]
    pub unsafe fn post_recv(&mut self, work: &[RecvWork<'_>]) -> Result<()> {
        if !matches!(self.phase, Phase::Idle | Phase::Open) {
            return Err(Error::NotConnected);
        }
        if self.recvs.is_shared() {
            return Err(Error::state(
                "recv",
                "the endpoint takes its receives from a shared queue",
            ));
        }
        work.iter().for_each(|one| self.recvs.push(one));
        Ok(())
    }

    #[inline]
    pub(super) fn complete_recv(&mut self, mut completion: RawCompletion) {
        completion.endpoint = self.recvs.is_shared().then_some(self.context.id);
        self.made_recvs.push(completion);
    }

    #[inline]
    pub(super) fn complete_send(&mut self, token: Token, flags: SendFlags, status: Status) {
        if !flags.contains(SendFlags::SIGNALED) && status == Status::Ok {
            self.unsaid = Some(token);
            return;
        }
        self.unsaid = None;
        let mut completion = RawCompletion::new(token, status);
        completion.provider_code = code_of(status);
        self.made_sends.push(completion);
    }

    /// Whether a receive has completed whose completion has not gone to its ring.
    #[inline]
    pub(super) fn has_received(&self) -> bool {
        !self.made_recvs.is_empty()
    }

    /// Whether there are completions that can go to their rings: no event has to be reported before.
    #[inline]
    pub(super) fn has_completions(&self) -> bool {
        !(self.made_recvs.is_empty() && self.made_sends.is_empty()) && self.unreported == 0
    }

    /// Hands these to them. To be called before the lock of the link is released.
    #[inline]
    pub fn deliver(&mut self) {
        self.deliver_to(&mut Outbox::none());
    }

    /// The same, to a poll that has them at once.
    #[inline]
    pub(super) fn deliver_to(&mut self, outbox: &mut Outbox<'_>) {
        if self.has_completions() {
            self.push_made(outbox);
        }
    }

    #[inline(never)] // not to be in the way of a turn that found nothing
    fn push_made(&mut self, outbox: &mut Outbox<'_>) {
        let LinkContext { send_ring, recv_ring, .. } = &self.context;
        if Arc::ptr_eq(send_ring, recv_ring) {
            recv_ring.push_or_hand([&self.made_recvs, &self.made_sends], outbox);
        } else {
            recv_ring.push_or_hand([&self.made_recvs, &[]], outbox);
            send_ring.push_or_hand([&self.made_sends, &[]], outbox);
        }
        self.made_recvs.clear();
        self.made_sends.clear();
    }

    /// Appends bytes of the handshake.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.outgoing.copied(|buffer| buffer.extend_from_slice(bytes));
    }

    /// Whether bytes wait to be transmitted.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.outgoing.has_output()
    }

    /// Sends once; returns how many bytes went.
    ///
    /// # Errors
    /// Those of the transport.
    #[inline]
    pub fn send_to(&mut self, transport: &mut impl Transport) -> io::Result<usize> {
        loop {
            if let Some(sent) = self.outgoing.send_to(transport)? {
                return Ok(sent);
            }
            match self.outgoing.spoil() {
                Some(seq) => self.refuse_answer(seq),
                None => return Ok(0),
            }
        }
    }

    /// Whether the peer waits for an ack or a credit that has no frame to ride on. A peer that does not read what
    /// is there for it gets them later.
    #[inline]
    pub fn owes(&self) -> bool {
        self.phase == Phase::Open
            && !self.deferral.updates
            && self.outgoing.has_room()
            && (self.incoming.debt.is_due() || self.recvs.owes_credit())
    }

    /// Whether an acknowledgement is all that it has to transmit, and may wait for a message that carries it.
    #[inline]
    pub fn may_hold_ack(&self) -> bool {
        self.incoming.debt.is_due() // first: mostly it is not
            && self.has_nothing_to_send()
            && !self.sends.wants_to_ask()
            && !self.recvs.owes_credit()
            && self.incoming.debt.is_patient()
    }

    /// Whether the peer was not asked for all that went, and no one waits for what is left.
    #[inline]
    pub(super) fn leaves_unasked(&self) -> bool {
        self.sends.leaves_unasked()
    }

    /// Whether it has nothing to transmit, and nothing to say that no other frame carries, until something is posted or comes.
    #[inline]
    pub fn is_at_rest(&self) -> bool {
        self.has_nothing_to_send()
            && !self.sends.wants_to_ask()
            && !self.sends.leaves_unasked()
            && !self.owes()
    }

    /// Whether nothing waits to be encoded or transmitted, but for what other frames may carry.
    #[inline]
    pub(super) fn has_nothing_to_send(&self) -> bool {
        self.phase == Phase::Open
            && self.answers.is_empty()
            && self.sends.nothing_waits()
            && !self.outgoing.has_output()
    }

    /// Its state, for a bug report.
    pub fn dump(&self) -> String {
        format!(
            "{} {:?}: {}; {}; {}; {} answers to give; {} bytes to transmit",
            self.context.id,
            self.phase,
            self.sends.dump(),
            self.recvs.dump(),
            self.incoming.dump(),
            self.answers.len(),
            self.outgoing.queued(),
        )
    }
}

/// Whether the protocol has the operation.
#[inline]
fn is_known(op: &SendOp) -> bool {
    matches!(
        op,
        SendOp::Send { .. } | SendOp::Write { .. } | SendOp::Read { .. } | SendOp::Atomic { .. }
    )
}

/// The provider's own code: the wire's number of the status.
pub(super) fn code_of(status: Status) -> u32 {
    match status {
        Status::Ok => 0,
        status => crate::stream::wire::frame::nak_code(status).into(),
    }
}

impl Link {
    /// A header with the present ack and credit, which thereby go to the peer.
    pub(super) fn header(
        &mut self,
        kind: crate::stream::wire::frame::Kind,
        len: u32,
        seq: u32,
    ) -> Header {
        let (ack, credit) = (self.incoming.debt.acknowledge(), self.recvs.announce());
        Header { kind, ask: false, len, ack, credit, seq }
    }

    /// Tests only: defers what may be, until the next call or the end of the connection.
    pub fn defer(&mut self, what: Deferral) {
        if self.phase == Phase::Open {
            self.deferral = what;
        }
    }

    pub(super) fn report_end(&mut self, reason: DisconnectReason) {
        let endpoint = self.context.id;
        self.report(Event::Disconnected { endpoint, reason });
    }

    pub(super) fn report(&mut self, event: Event) {
        self.events.push(event);
        self.unreported += 1;
    }

    /// Whether there are events to report.
    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes the events to report, in order; each is to be followed by [`reported`](Link::reported).
    pub fn take_events(&mut self) -> SmallVec<[Event; 1]> {
        std::mem::take(&mut self.events)
    }

    /// An event has reached the application.
    pub fn reported(&mut self) {
        self.unreported = self.unreported.saturating_sub(1);
        self.deliver();
    }
}

/// What a request's header carries: the requests accepted and the receives posted so far.
pub(super) fn ack_and_credit(
    incoming: &mut Incoming,
    recvs: &mut RecvQueue,
    deferral: Deferral,
) -> (u32, u32) {
    if deferral.updates {
        return (incoming.debt.acked(), recvs.announced());
    }
    (incoming.debt.acknowledge(), recvs.announce())
}
