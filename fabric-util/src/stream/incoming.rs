//! The stream from the peer: frames, and where their payload goes.

use std::io;

use fabric_core::{cold_path, likely, unlikely};
use smallvec::SmallVec;

use super::io_vec::{IoVec, MAX_IO_VECS, store};
use super::link::Link;
use super::payload::{DIRECT, FrameDone, To};
use super::phase::Phase;
use super::protocol_error::{Breach, ProtocolError};
use super::requests::{Message, Place};
use super::transport::{Transport, Unconnected};
use crate::region_table::RegionEntry;
use crate::stream::wire::frame::{self, Header, Kind};

/// How much may come into the scratch buffer where payloads are received where they belong: the next header, and
/// little of its payload.
const BEHIND: usize = 512;
/// Once so many bytes were taken from the peer's memory others have their turn.
const FETCHED_A_TURN: usize = 1 << 20;

/// What came in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes, those of the peer's memory too; 0: the stream has ended.
    pub bytes: usize,
    /// Those of them that came into the scratch buffer: frames, which take time to process, and short payloads; and bytes that
    /// were taken from the peer's memory.
    pub scratched: usize,
    /// Whether more may wait.
    pub more: bool,
}

impl Link {
    /// Receives once, and processes what came. Operations that the peer has accepted, as it says there, are to be completed by
    /// [`complete_finished`](Link::complete_finished).
    ///
    /// # Errors
    /// Those of the transport.
    #[inline]
    pub fn recv_from(
        &mut self,
        scratch: &mut [u8],
        transport: &mut impl Transport,
    ) -> io::Result<Received> {
        if unlikely(self.incoming.lent.is_some())
            && let Some(fetched) = self.fetch_more(transport)
        {
            return Ok(fetched);
        }
        if self.incoming.expects_direct() {
            return self.recv_direct(scratch, transport);
        }
        // Before a long payload little more than its header: what comes with that has to be copied.
        let room = if self.incoming.long { BEHIND.min(scratch.len()) } else { scratch.len() };
        // SAFETY: the scratch buffer is ours during the call.
        let got = unsafe { transport.recv(&[(scratch.as_mut_ptr(), room)]) }?;
        self.consume_from(0, &scratch[..got], transport);
        let more = unlikely(got == room) || transport.gave_up();
        Ok(self.received(got, got, more))
    }

    /// What came by the stream, with what was taken from the peer's memory for it.
    #[inline]
    fn received(&mut self, bytes: usize, scratched: usize, more: bool) -> Received {
        let fetched = std::mem::take(&mut self.incoming.fetched);
        let more = more || self.incoming.lent.is_some();
        Received { bytes: bytes + fetched, scratched: scratched + fetched, more }
    }

    /// As `recv_from`, with the payload where it belongs and the next header behind it.
    #[inline(never)]
    fn recv_direct(
        &mut self,
        scratch: &mut [u8],
        transport: &mut impl Transport,
    ) -> io::Result<Received> {
        let long = self.incoming.long;
        let mut runs: SmallVec<[IoVec; 8]> = SmallVec::new();
        let (mut direct, region) = self.direct(&mut runs);
        // Holds the region open during the read. If it has closed, what comes goes through the scratch buffer,
        // and is refused from there.
        let pass = region.and_then(RegionEntry::enter);
        if region.is_some() && pass.is_none() {
            runs.clear();
            direct = 0;
        }
        // Little more than a header, as in `recv_from`.
        let short = direct > 0 || long;
        let behind = if short { BEHIND.min(scratch.len()) } else { scratch.len() };
        runs.push((scratch.as_mut_ptr(), behind));
        // SAFETY: the memory is of operations that have not completed, or of a region that the pass holds open; and the
        // scratch buffer, which is ours during the call.
        let got = unsafe { transport.recv(&runs) }?;
        drop(pass);
        let placed = got.min(direct);
        self.consume_from(placed, &scratch[..got - placed], transport);
        let more = got == direct + behind || transport.gave_up();
        Ok(self.received(got, got - placed, more))
    }

    /// The memory that the present payload belongs into; gives its length, and the region that must be held open.
    fn direct(&mut self, runs: &mut SmallVec<[IoVec; 8]>) -> (usize, Option<&RegionEntry>) {
        let Some((to, left)) = self.incoming.payload else { return (0, None) };
        if self.phase != Phase::Open {
            return (0, None);
        }
        let len = match to {
            To::Message => match &self.incoming.message {
                Some(Message { place: Place::Receive(receive), done, .. }) => self
                    .recvs
                    .receives
                    .segments
                    .scatter(receive.span, *done, left, MAX_IO_VECS - 1, runs),
                Some(Message { place: Place::Write { entry, addr, .. }, done, .. }) => {
                    runs.push((entry.at(addr + *done as u64), left));
                    return (left, Some(entry));
                }
                _ => 0,
            },
            To::Read { seq, .. } => match self.sends.answering(seq) {
                Ok(entry) => {
                    let (span, skip) = (entry.span, entry.answered);
                    self.sends.segments.scatter(span, skip, left, MAX_IO_VECS - 1, runs)
                }
                Err(_) => 0,
            },
            To::Old { .. } | To::Discard => 0,
        };
        (len, None)
    }

    /// Processes `placed` bytes of payload that came where they belong, and those in the scratch buffer behind them. The one place
    /// where a link fails for what the peer sent.
    #[inline]
    fn consume_from(&mut self, placed: usize, bytes: &[u8], transport: &mut impl Transport) {
        let result = if placed > 0 { self.placed(placed) } else { Ok(()) };
        self.consume_behind(result, bytes, transport);
    }

    /// As `consume_from`, with what became of the bytes before these.
    #[inline(always)] // one place that is executed for each message calls it
    fn consume_behind(
        &mut self,
        before: Result<(), Breach>,
        mut bytes: &[u8],
        transport: &mut impl Transport,
    ) {
        let mut result = before.map_err(Into::into);
        while result.is_ok() && !bytes.is_empty() && self.phase == Phase::Open {
            result = match self.incoming.payload {
                Some((to, left)) => {
                    let (now, rest) = bytes.split_at(left.min(bytes.len()));
                    bytes = rest;
                    self.place(to, now).map_err(Into::into)
                }
                None => match self.take_short(&mut bytes) {
                    Ok(true) => Ok(()),
                    Ok(false) => self.take_header(&mut bytes),
                    Err(breach) => Err(breach.into()),
                },
            };
            if unlikely(self.incoming.lent.is_some()) {
                if self.incoming.fetched >= FETCHED_A_TURN {
                    self.incoming.behind.extend_from_slice(bytes);
                    break;
                }
                result = result.and_then(|()| self.fetch(transport).map_err(Into::into));
            }
            if likely(bytes.is_empty()) {
                break;
            }
        }
        if let Err(error) = result {
            cold_path();
            self.breach(&error);
        }
    }

    /// As `consume_from`, of bytes before which nothing can have been lent; completes what is finished then.
    pub(crate) fn consume(&mut self, placed: usize, bytes: &[u8]) {
        self.consume_from(placed, bytes, &mut Unconnected);
        self.complete_finished();
    }

    /// Goes on where others had their turn; `None`: nothing could be taken.
    #[cold]
    fn fetch_more(&mut self, transport: &mut impl Transport) -> Option<Received> {
        let behind = std::mem::take(&mut self.incoming.behind);
        let result = self.fetch(transport);
        self.consume_behind(result, &behind, transport);
        let received = self.received(0, 0, true);
        (received.bytes > 0).then_some(received)
    }

    /// Takes the payload of the present frame from the peer's memory.
    #[cold]
    fn fetch(&mut self, transport: &mut impl Transport) -> Result<(), Breach> {
        let Some(from) = self.incoming.lent.take() else { return Ok(()) };
        let mut runs: SmallVec<[IoVec; 8]> = SmallVec::new();
        let Some(Message { place: Place::Receive(receive), done, .. }) = &self.incoming.message
        else {
            return Err(Breach::of("lends what is no message's"));
        };
        let len = self.incoming.payload.take().map_or(0, |(_, len)| len);
        let segments = &self.recvs.receives.segments;
        segments.scatter(receive.span, *done, len, usize::MAX, &mut runs);
        // SAFETY: the receive has not completed, so its segments are valid; they have room for the whole message.
        match unsafe { transport.fetch(from, &runs) } {
            None => Err(Breach::of("lends memory to a side that reaches none")),
            // The peer has taken it back: the end of the connection follows.
            Some(false) => {
                self.incoming.discards = true;
                Ok(())
            }
            Some(true) => {
                self.incoming.fetched += len;
                self.incoming.payload = Some((To::Message, len));
                self.placed(len)
            }
        }
    }

    #[inline(never)] // not to be in the way of short messages
    fn take_header(&mut self, bytes: &mut &[u8]) -> Result<(), ProtocolError> {
        if !self.incoming.partial.is_empty() {
            return self.complete_header(bytes);
        }
        match Header::decode(bytes)? {
            Some((header, len)) => {
                *bytes = &bytes[len..];
                Ok(self.take_frame(&header)?)
            }
            None => {
                self.incoming.partial.extend_from_slice(std::mem::take(bytes));
                Ok(())
            }
        }
    }

    /// As `take_header`, of a header whose beginning came before.
    #[cold]
    fn complete_header(&mut self, bytes: &mut &[u8]) -> Result<(), ProtocolError> {
        let partial = &mut self.incoming.partial;
        let need = frame::header_len(partial[0]).unwrap_or(1).saturating_sub(partial.len());
        let (now, rest) = bytes.split_at(need.min(bytes.len()));
        partial.extend_from_slice(now);
        *bytes = rest;
        match Header::decode(partial)? {
            Some((header, _)) => {
                partial.clear();
                Ok(self.take_frame(&header)?)
            }
            None => Ok(()),
        }
    }

    fn take_frame(&mut self, header: &Header) -> Result<(), Breach> {
        self.sends.hear(header.ack, header.credit, self.outgoing.transmitted())?;
        if !self.announced {
            self.announce(&[]);
        }
        let len = header.len as usize;
        if self.incoming.discards && header.kind.is_request() {
            return self.expect(To::Message, header.payload() as usize);
        }
        match header.kind {
            Kind::Send { total, imm } => {
                self.incoming.begin(header.seq)?;
                self.begin_send(header.seq, total, imm)?;
                self.expect(To::Message, len)?;
            }
            Kind::Write { total, imm, to } => {
                self.incoming.begin(header.seq)?;
                self.begin_write(header.seq, total, imm, to)?;
                self.expect(To::Message, len)?;
            }
            Kind::Data { more } => {
                let Some(message) = &self.incoming.message else {
                    return Err(Breach::of("a fragment of no message"));
                };
                let end = message.done + len;
                if len == 0 || end > message.total || more != (end < message.total) {
                    return Err(Breach::of("a fragment that does not fit its message"));
                }
                self.expect(To::Message, len)?;
            }
            Kind::Lent { from, more } => {
                let Some(message) = &self.incoming.message else {
                    return Err(Breach::of("a fragment of no message"));
                };
                let end = message.done + len;
                if end > message.total || more != (end < message.total) {
                    return Err(Breach::of("a fragment that does not fit its message"));
                }
                self.expect(To::Message, len)?;
                self.incoming.lent = (self.phase == Phase::Open).then_some(from);
                // What follows is lent as well, mostly.
                self.incoming.long = true;
            }
            Kind::Read { from } => {
                self.incoming.begin(header.seq)?;
                self.execute_read(header.seq, from, len)?;
            }
            Kind::Atomic { at, call, fetch } => {
                self.incoming.begin(header.seq)?;
                self.execute_atomic(header.seq, at, &call, fetch)?;
            }
            Kind::ReadData { last } => {
                self.check_chunk(header.seq, len, last)?;
                self.expect(To::Read { seq: header.seq, last }, len)?;
            }
            Kind::OldValue => {
                self.check_old(header.seq)?;
                self.expect(To::Old { seq: header.seq }, len)?;
            }
            Kind::Ack => {}
            Kind::Nak { status } => self.take_nak(header.seq, status)?,
            Kind::Bye => self.take_bye(),
            Kind::NotReady => {
                self.sends.go_back(header.seq)?;
                self.push_plain(Kind::Resume, 0);
            }
            Kind::Resume => {
                if !std::mem::take(&mut self.incoming.discards) {
                    return Err(Breach::of("goes on where nothing was refused"));
                }
            }
            Kind::Ready => self.sends.go_on()?,
        }
        if header.ask {
            let begun = self.incoming.begun;
            match header.kind {
                Kind::Send { .. } => self.incoming.debt.ask(begun),
                _ => self.incoming.debt.ask_urgently(begun),
            }
        }
        Ok(())
    }

    /// The frame has `len` bytes of payload, for `to`.
    fn expect(&mut self, mut to: To, len: usize) -> Result<(), Breach> {
        if self.phase != Phase::Open {
            return Ok(());
        }
        if self.incoming.discards && to == To::Message {
            to = To::Discard;
        }
        self.incoming.payload = Some((to, len));
        self.incoming.long = len > BEHIND + DIRECT && to != To::Discard;
        if len == 0 { self.placed(0) } else { Ok(()) }
    }

    /// Puts payload bytes where they belong.
    fn place(&mut self, to: To, bytes: &[u8]) -> Result<(), Breach> {
        let mut runs: SmallVec<[IoVec; 8]> = SmallVec::new();
        match to {
            To::Message => match &self.incoming.message {
                Some(Message { place: Place::Receive(receive), done, .. }) => {
                    let (span, len) = (receive.span, bytes.len());
                    self.recvs.receives.segments.scatter(span, *done, len, usize::MAX, &mut runs);
                    // SAFETY: the receive has not completed, so its segments are valid; they have room for the message.
                    unsafe { store(runs, bytes) };
                }
                Some(Message { place: Place::Write { entry, addr, .. }, done, seq, .. }) => {
                    let (seq, at) = (*seq, entry.at(addr + *done as u64));
                    let Some(_pass) = entry.enter() else {
                        self.refuse(seq, fabric_core::Status::RemoteAccess, None);
                        return Ok(());
                    };
                    // SAFETY: the range was checked when the message began, and the pass holds the region open.
                    unsafe { store([(at, bytes.len())], bytes) };
                }
                _ => {}
            },
            To::Read { seq, .. } => {
                let entry = self.sends.answering(seq)?;
                let (span, skip) = (entry.span, entry.answered);
                self.sends.segments.scatter(span, skip, bytes.len(), usize::MAX, &mut runs);
                // SAFETY: the read has not completed, so its segments are valid; they have room for the answer.
                unsafe { store(runs, bytes) };
            }
            To::Old { .. } => self.incoming.partial.extend_from_slice(bytes),
            To::Discard => return self.placed(bytes.len()),
        }
        self.context.stats.copied_bytes.add(bytes.len() as u64);
        self.placed(bytes.len())
    }

    /// `bytes` more of the payload are where they belong.
    fn placed(&mut self, bytes: usize) -> Result<(), Breach> {
        match self.incoming.advance(bytes) {
            None => {}
            Some(FrameDone::Message(message)) => self.finish_message(&message),
            Some(FrameDone::Chunk { seq, bytes, last }) => self.take_chunk(seq, bytes, last)?,
            Some(FrameDone::Old { seq, value }) => self.take_old(seq, value)?,
        }
        Ok(())
    }

    /// The peer's stream has ended.
    pub(super) fn forget_incoming(&mut self) {
        (self.incoming.payload, self.incoming.lent) = (None, None);
        self.incoming.behind = Vec::new();
        self.incoming.partial.clear();
    }
}
