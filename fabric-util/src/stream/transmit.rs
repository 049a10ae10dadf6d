//! Cutting requests and answers into frames.

use fabric_core::{RemoteAddr, SendFlags, SendOp};

use super::link::{Link, ack_and_credit};
use super::phase::Phase;
use super::requests::Answer;
use super::sends::{Beside, Entry};
use crate::stream::wire::frame::{Header, Kind, MAX_HEADER};

/// The payload of one frame: long enough to be worth its header, short enough that an acknowledgement does not
/// wait long behind it.
const FRAGMENT: usize = 256 << 10;
/// The beginning of a message whose rest is lent, and as much of that as the peer takes at a time.
const BEGINNING: usize = 64;
const LENT_FRAGMENT: usize = 1 << 20;
/// Payloads are copied behind their header, which is cheaper than a run of their own, while the buffer stays as short as this.
const COPY_MAX: usize = 2048 + MAX_HEADER;
/// Payloads up to this are copied however much is in the buffer.
const COPY_ALWAYS: usize = 256;
/// Answers up to this are copied: their region need not be held open then.
const COPY_MAX_READ: usize = 2048;

/// Which frames without a payload go, if no other frame carries what they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckPolicy {
    /// None: acknowledgements, and requests for them, wait for a frame that carries them.
    Piggyback,
    /// A request for acknowledgements: the application waits for what it sent.
    Ask,
    /// An acknowledgement that is due; a request for them only if anything is transmitted at all.
    Due,
    /// Both: nothing may come by that carries them.
    Now,
}

impl Link {
    /// Encodes as much as may be transmitted now: answers and requests, and behind them what `policy` says.
    #[inline]
    pub fn encode(&mut self, policy: AckPolicy) {
        let nothing = self.answers.is_empty() && self.sends.nothing_waits();
        if !nothing || self.phase != Phase::Open {
            self.encode_pending();
        }
        if matches!(policy, AckPolicy::Due | AckPolicy::Now) {
            self.pay();
        }
        if matches!(policy, AckPolicy::Ask | AckPolicy::Now) {
            self.sends.want_all();
        }
        let ask = match policy {
            // What waits for an acknowledgement wants it soon.
            _ if self.sends.waits_to_reach() => true,
            AckPolicy::Piggyback => false,
            AckPolicy::Due => self.has_output(),
            AckPolicy::Ask | AckPolicy::Now => true,
        };
        if ask {
            self.ask();
        }
    }

    /// Cuts as much as may be transmitted now into the stream.
    pub(super) fn encode_pending(&mut self) {
        while self.outgoing.has_room() {
            // In turn, so that neither direction of work starves the other.
            let answer = !self.deferral.answers && self.encode_answer();
            let request = self.phase == Phase::Open && self.encode_request();
            if !answer && !request {
                break;
            }
        }
        if self.phase == Phase::Ending && self.answers.is_empty() {
            self.queue_final_frame();
        }
    }

    /// Appends a frame that only carries ack and credit, if either is due.
    pub(super) fn pay(&mut self) {
        if self.owes() {
            self.push_ack();
        }
    }

    /// Asks the peer for what it has not acknowledged and was not asked for, if there is any: somebody may wait for it.
    pub(super) fn ask(&mut self) {
        if self.phase == Phase::Open && self.outgoing.has_room() && self.sends.ask() {
            let header = Header { ask: true, ..self.header(Kind::Ack, 0, 0) };
            self.push(header);
        }
    }

    /// Appends a frame that only carries ack and credit.
    pub(super) fn push_ack(&mut self) {
        self.push_plain(Kind::Ack, 0);
    }

    /// Appends a frame that has only a header.
    pub(super) fn push_plain(&mut self, kind: Kind, seq: u32) {
        let header = self.header(kind, 0, seq);
        self.push(header);
    }

    fn push(&mut self, header: Header) {
        self.outgoing.copied(|buffer| header.encode(buffer));
    }

    fn encode_request(&mut self) -> bool {
        let Some((entry, seq, cut)) = self.sends.next() else { return false };
        let ask = cut == 0 && !entry.has_answer() && !entry.is_lazy() && !self.sends.awaits_ack();
        let message = matches!(entry.op, SendOp::Send { .. } | SendOp::Write { .. });
        let max = match entry.beside {
            // A message begins in the stream.
            Beside::Lent(_) if cut == 0 => BEGINNING,
            Beside::Lent(_) => LENT_FRAGMENT,
            _ => FRAGMENT,
        };
        let payload = if message { (entry.len - cut).min(max) } else { 0 };
        let all = !message || cut + payload == entry.len;
        let len = if message { payload } else { entry.len };
        let kind = kind_of(entry, cut, all);
        let (ack, credit) = ack_and_credit(&mut self.incoming, &mut self.recvs, self.deferral);
        // Lengths fit: a message has at most `MAX_MESSAGE` bytes, an atomic none.
        let len = if matches!(kind, Kind::Atomic { .. }) { 0 } else { len as u32 };
        let header = Header { kind, ask, len, ack, credit, seq };
        self.outgoing.copied(|buffer| header.encode(buffer));
        let copy = payload <= COPY_ALWAYS
            || payload + self.outgoing.buffered() <= COPY_MAX
            || entry.flags.contains(SendFlags::INJECT);
        let (mut skip, mut left) = (cut, header.payload() as usize);
        for segment in self.sends.segments.of(entry.span) {
            if left == 0 {
                break;
            }
            if skip >= segment.len {
                skip -= segment.len;
                continue;
            }
            let (addr, part) = (segment.addr.wrapping_add(skip), left.min(segment.len - skip));
            if copy {
                // SAFETY: the operation has not completed, so its segments are valid; an inject's are the
                // caller's during the post, and the entry's own afterwards.
                unsafe { self.outgoing.copy(addr, part) };
                self.context.stats.copied_bytes.add(part as u64);
            } else {
                self.outgoing.local(addr, part);
            }
            (skip, left) = (0, left - part);
        }
        self.sends.advance(payload, all.then(|| self.outgoing.end()), ask);
        true
    }

    fn encode_answer(&mut self) -> bool {
        let Some(answer) = self.answers.front_mut() else { return false };
        match answer {
            Answer::Old { seq, value } => {
                let (seq, value) = (*seq, *value);
                self.answers.pop_front();
                let header = self.header(Kind::OldValue, 8, seq);
                self.outgoing.copied(|buffer| {
                    header.encode(buffer);
                    buffer.extend_from_slice(&value.to_le_bytes());
                });
            }
            Answer::Read { seq, from, addr, left } => {
                let (seq, at, part) = (*seq, *addr, (*left).min(FRAGMENT));
                let from = from.clone();
                *addr += part as u64;
                *left -= part;
                let last = *left == 0;
                if last {
                    self.answers.pop_front();
                }
                let Some(entry) = from else {
                    let header = self.header(Kind::ReadData { last }, 0, seq);
                    self.outgoing.copied(|buffer| header.encode(buffer));
                    return true;
                };
                if part <= COPY_MAX_READ {
                    // Copied whole or not at all, so the header can say that it is.
                    let header = self.header(Kind::ReadData { last }, part as u32, seq);
                    let Some(_pass) = entry.enter() else {
                        self.refuse_answer(seq);
                        return false;
                    };
                    self.outgoing.copied(|buffer| header.encode(buffer));
                    // SAFETY: the range was checked when the read came, and the pass holds the region open.
                    unsafe { self.outgoing.copy(entry.at(at), part) };
                    self.context.stats.copied_bytes.add(part as u64);
                } else {
                    // The region may close before its bytes are transmitted, so the good end comes behind them.
                    let header = self.header(Kind::ReadData { last: false }, part as u32, seq);
                    self.outgoing.copied(|buffer| header.encode(buffer));
                    self.outgoing.region(&entry, at, part, seq);
                    if last {
                        let header = self.header(Kind::ReadData { last }, 0, seq);
                        self.outgoing.copied(|buffer| header.encode(buffer));
                    }
                }
            }
        }
        true
    }
}

fn kind_of(entry: &Entry, cut: usize, all: bool) -> Kind {
    let total = entry.len as u32;
    match entry.op {
        SendOp::Send { .. } | SendOp::Write { .. } if cut > 0 => match &entry.beside {
            Beside::Lent(lent) => {
                let RemoteAddr { key, addr } = lent.at();
                Kind::Lent { from: RemoteAddr { key, addr: addr + cut as u64 }, more: !all }
            }
            _ => Kind::Data { more: !all },
        },
        SendOp::Send { imm } => Kind::Send { total, imm },
        SendOp::Write { to, imm } => Kind::Write { total, imm, to },
        SendOp::Read { from } => Kind::Read { from },
        SendOp::Atomic { at, call, fetch } => Kind::Atomic { at, call, fetch },
        // `Link::post_send` takes no other.
        _ => Kind::Ack,
    }
}
