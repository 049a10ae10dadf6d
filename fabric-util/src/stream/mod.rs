//! One connection's protocol over any stream of bytes, without sockets.
//!
//! Posts and received bytes go in; bytes to transmit, completions and events come out. A link knows no
//! socket, no clock and no thread, so tests drive two of them against each other byte by byte.
//!
//! - `sends`: the send queue and what of it is on its way; `recvs`: the receive queue; `segments` of both;
//! - `outgoing`: the stream to the peer, as runs of memory; `transmit`: cutting requests and answers into it;
//! - `acks`: when the peer is asked for acknowledgements, and when it gets them;
//! - `incoming`: frames from the peer; `target`: executing its requests; `answers`: taking its answers;
//! - `close`: how a connection ends;
//! - [`wire`]: the format of the bytes.

mod acks;
mod answers;
mod close;
mod incoming;
mod outgoing;
mod recvs;
mod segments;
mod sends;
mod target;
// Miri has no madvise(2), by which registrations probe.
#[cfg(not(miri))]
#[cfg(test)]
mod tests;
mod transmit;
pub mod wire;

use std::sync::Arc;

use crate::stats::Stats;
use fabric_core::{
    DisconnectReason, EndpointId, Error, Event, RawCompletion, RecvWork, Result, SendFlags, SendOp,
    SendWork, Status, Token,
};
use smallvec::SmallVec;

pub use close::End;

use crate::completion_ring::CompletionRing;
use crate::region_table::RegionTable;
use crate::stream::wire::frame::Header;
use close::LastWord;
use incoming::Incoming;
use outgoing::Outgoing;
use recvs::Recvs;
use sends::Sends;
use target::Answers;

/// Reads and atomics that one side answers at a time.
pub const READS: u32 = 128;

/// No more posts are held back when this many bytes wait.
const HELD: usize = 2 << 10;
/// Posts that are enough for a system call of their own.
const BATCH: usize = 8;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No connection yet.
    Idle,
    /// It stands; on the accepting side perhaps not yet known to the peer.
    Open,
    /// It ended for this side; what the peer must still get is on its way, what comes in is discarded.
    Ending,
    /// Nothing goes in or out.
    Closed,
}

/// For tests: what a link puts off, as long as the contract lets it.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOff {
    /// Telling the peer of what was accepted and of receives that were posted.
    pub news: bool,
    /// Answering reads and atomics.
    pub answers: bool,
}

/// A run of memory, of an operation or a region: address and length.
pub type Run = (*mut u8, usize);

/// The most runs that a link gives at a time.
pub const MAX_RUNS: usize = 64;

/// What a link is part of.
pub struct Surroundings {
    /// The endpoint, for events and log lines.
    pub id: EndpointId,
    /// What the peer may reach.
    pub regions: Arc<RegionTable>,
    /// Where completions of the send queue go.
    pub send_ring: Arc<CompletionRing>,
    /// Where completions of receives go.
    pub recv_ring: Arc<CompletionRing>,
    /// The domain's counters.
    pub stats: Arc<Stats>,
}

/// Completions that were made under the link's lock and go to a ring together.
type Made = SmallVec<[RawCompletion; 8]>;

/// One connection's protocol.
pub struct Link {
    around: Surroundings,
    phase: Phase,
    /// Whether the application heard `Connected`.
    announced: bool,
    sends: Sends,
    recvs: Recvs,
    outgoing: Outgoing,
    incoming: Incoming,
    answers: Answers,
    last_word: LastWord,
    put_off: PutOff,
    made_sends: Made,
    made_recvs: Made,
    /// The last operation that succeeded without a completion, if it came after the last that had one.
    unsaid: Option<Token>,
    /// Events to report, and how many of the link's the application has not been told of yet: completions wait for them.
    events: SmallVec<[Event; 1]>,
    unreported: usize,
}

impl Link {
    /// A link without a connection.
    pub fn new(around: Surroundings) -> Self {
        Link {
            around,
            phase: Phase::Idle,
            announced: false,
            sends: Sends::default(),
            recvs: Recvs::default(),
            outgoing: Outgoing::default(),
            incoming: Incoming::default(),
            answers: Answers::default(),
            last_word: LastWord::default(),
            put_off: PutOff::default(),
            made_sends: Made::new(),
            made_recvs: Made::new(),
            unsaid: None,
            events: SmallVec::new(),
            unreported: 0,
        }
    }

    /// Where the connection stands.
    #[inline]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The endpoint.
    pub fn id(&self) -> EndpointId {
        self.around.id
    }

    /// The receives posted so far, for the handshake.
    pub fn credit(&mut self) -> u32 {
        self.recvs.announce()
    }

    /// The handshake is over; the peer answers `reads` at a time and has posted `credit` receives.
    pub fn open(&mut self, reads: u32, credit: u32) {
        self.phase = Phase::Open;
        self.sends.open(reads.min(READS), credit);
    }

    /// Tells the application that the connection stands.
    pub fn announce(&mut self, data: &[u8]) {
        if !std::mem::replace(&mut self.announced, true) {
            let (endpoint, data) = (self.around.id, data.into());
            self.report(Event::Connected { endpoint, data });
        }
    }

    /// Whether the application heard `Connected`.
    #[inline]
    pub fn is_announced(&self) -> bool {
        self.announced
    }

    /// Takes operations for the send queue and begins to send them.
    ///
    /// # Errors
    /// `NotConnected`, or `Unsupported` for an operation that the protocol does not have: none was taken.
    ///
    /// # Safety
    /// As [`EndpointOps::post_send`](fabric_core::EndpointOps::post_send), where `quiesce` is [`End::Quiet`].
    pub unsafe fn post_send(&mut self, work: &[SendWork<'_>]) -> Result<()> {
        if self.phase != Phase::Open || !self.announced {
            return Err(Error::NotConnected);
        }
        if !work.iter().all(|one| is_known(&one.op)) {
            return Err(Error::unsupported("post", "fabric", "an operation of a later version"));
        }
        work.iter().for_each(|one| self.sends.push(one));
        self.fill();
        self.sends.keep_injected(work.len());
        Ok(())
    }

    /// Takes receives.
    ///
    /// # Errors
    /// `NotConnected`: none was taken.
    ///
    /// # Safety
    /// As [`EndpointOps::post_recv`](fabric_core::EndpointOps::post_recv), where `quiesce` is [`End::Quiet`].
    pub unsafe fn post_recv(&mut self, work: &[RecvWork<'_>]) -> Result<()> {
        if !matches!(self.phase, Phase::Idle | Phase::Open) {
            return Err(Error::NotConnected);
        }
        work.iter().for_each(|one| self.recvs.push(one));
        Ok(())
    }

    fn complete_send(&mut self, token: Token, flags: SendFlags, status: Status) {
        if !flags.contains(SendFlags::SIGNALED) && status == Status::Ok {
            self.unsaid = Some(token);
            return;
        }
        self.unsaid = None;
        let mut completion = RawCompletion::new(token, status);
        completion.provider_code = code_of(status);
        self.made_sends.push(completion);
    }

    /// Hands the completions made to their rings, unless an event has to be reported before. The last thing that every
    /// entry point does.
    pub fn deliver(&mut self) {
        if self.unreported > 0 {
            return;
        }
        if !self.made_recvs.is_empty() {
            self.around.recv_ring.push(&self.made_recvs);
            self.made_recvs.clear();
        }
        if !self.made_sends.is_empty() {
            self.around.send_ring.push(&self.made_sends);
            self.made_sends.clear();
        }
    }

    /// Appends bytes of the handshake.
    pub fn say(&mut self, bytes: &[u8]) {
        self.outgoing.copied(|buffer| buffer.extend_from_slice(bytes));
    }

    /// Whether bytes wait to be transmitted.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.outgoing.has_output()
    }

    /// Transmits once: `write` takes runs of memory and says how many bytes went.
    pub fn transmit<E>(
        &mut self,
        mut write: impl FnMut(&[Run]) -> std::result::Result<usize, E>,
    ) -> std::result::Result<usize, E> {
        loop {
            if let Some(result) = self.outgoing.transmit(&mut write) {
                return result;
            }
            match self.outgoing.spoil() {
                Some(seq) => self.refuse_answer(seq),
                None => return Ok(0),
            }
        }
    }

    /// Whether there are operations for whose acknowledgement the peer was not asked.
    #[inline]
    pub fn has_questions(&self) -> bool {
        self.sends.has_questions()
    }

    /// Whether a post may be held back: the peer owes an acknowledgement, so it is busy with what came before, and
    /// little is held already. Who posts many at once has gathered them.
    #[inline]
    pub fn may_hold(&self, posts: usize) -> bool {
        posts < BATCH && self.sends.awaits_ack() && self.outgoing.queued() <= HELD
    }

    /// Whether the peer waits for an ack or a credit that has no frame to ride on. One that does not read what is there
    /// for it is told later.
    #[inline]
    pub fn owes(&self) -> bool {
        self.phase == Phase::Open
            && !self.put_off.news
            && self.outgoing.has_room()
            && (self.incoming.debt.is_due() || self.recvs.owes_credit())
    }

    /// Where it stands, for a bug report.
    pub fn dump(&self) -> String {
        format!(
            "{} {:?}: {}; {}; {}; {} answers to give; {} bytes to transmit",
            self.around.id,
            self.phase,
            self.sends.dump(),
            self.recvs.dump(),
            self.incoming.dump(),
            self.answers.len(),
            self.outgoing.queued(),
        )
    }
}

/// The provider's own code: the wire's number of the status.
/// Whether the protocol has the operation.
#[inline]
fn is_known(op: &SendOp) -> bool {
    matches!(
        op,
        SendOp::Send { .. } | SendOp::Write { .. } | SendOp::Read { .. } | SendOp::Atomic { .. }
    )
}

fn code_of(status: Status) -> u32 {
    match status {
        Status::Ok => 0,
        status => crate::stream::wire::frame::nak_code(status).into(),
    }
}

impl Link {
    /// A header with the present ack and credit, which it thereby tells the peer.
    fn header(&mut self, kind: crate::stream::wire::frame::Kind, len: u32, seq: u32) -> Header {
        let (ack, credit) = (self.incoming.debt.tell(), self.recvs.announce());
        Header { kind, ask: false, len, ack, credit, seq }
    }

    /// Tests only: puts off what may be, until told otherwise or the connection ends.
    pub fn put_off(&mut self, what: PutOff) {
        if self.phase == Phase::Open {
            self.put_off = what;
        }
    }

    fn report_end(&mut self, reason: DisconnectReason) {
        let endpoint = self.around.id;
        self.report(Event::Disconnected { endpoint, reason });
    }

    fn report(&mut self, event: Event) {
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

    /// The application was told of an event.
    pub fn reported(&mut self) {
        self.unreported = self.unreported.saturating_sub(1);
        self.deliver();
    }
}

/// What a request's header tells: the requests accepted and the receives posted so far.
fn news(incoming: &mut Incoming, recvs: &mut Recvs, put_off: PutOff) -> (u32, u32) {
    if put_off.news {
        return (incoming.debt.told(), recvs.told());
    }
    (incoming.debt.tell(), recvs.announce())
}
