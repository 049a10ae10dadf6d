//! The stream from the peer: what of the present frame is there, and what of its message.

use fabric_core::RemoteAddr;
use smallvec::SmallVec;

use super::acks::Debt;
use super::protocol_error::Breach;
use super::requests::Message;
use crate::stream::wire::{frame, u64_at};

/// Payloads that miss at least this much are received where they belong, shorter ones through the
/// scratch buffer with whatever follows them.
pub(super) const DIRECT: usize = 4096;

/// Where the payload of the present frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// Into the message begun.
    Message,
    /// Into the read with this number.
    Read { seq: u32, last: bool },
    /// The old value of the atomic with this number.
    Old { seq: u32 },
    /// Nowhere: the peer will send it again.
    Discard,
}

/// What the latest bytes of a payload have completed, or moved on.
pub(super) enum FrameDone {
    /// All of a message.
    Message(Message),
    /// Bytes of the answer to a read; `last`: there are no more.
    Chunk { seq: u32, bytes: usize, last: bool },
    /// The old value of an atomic.
    Old { seq: u32, value: u64 },
}

/// The stream from the peer.
#[derive(Default)]
pub(super) struct Incoming {
    /// The beginning of a header, or of an old value.
    pub(super) partial: SmallVec<[u8; frame::MAX_HEADER]>,
    pub(super) payload: Option<(To, usize)>,
    /// That payload is not in the stream: it is still to be taken from there. What came behind it waits here.
    pub(super) lent: Option<RemoteAddr>,
    pub(super) behind: Vec<u8>,
    /// Bytes that were taken from the peer's memory.
    pub(super) fetched: usize,
    /// The latest payload was worth receiving where it belongs, and so will be the next one, presumably.
    pub(super) long: bool,
    pub(super) message: Option<Message>,
    /// Requests that have begun.
    pub(super) begun: u32,
    /// As many of them as are executed.
    pub(super) debt: Debt,
    /// A request was refused for now. Until the peer knows, what it sends is discarded: it comes again.
    pub(super) discards: bool,
    /// The peer waits for a receive.
    pub(super) waits: bool,
}

impl Incoming {
    /// Whether [`begin`](Incoming::begin) is in order.
    #[inline]
    pub(super) fn may_begin(&self, seq: u32) -> bool {
        self.message.is_none() && seq == self.begun
    }

    pub(super) fn begin(&mut self, seq: u32) -> Result<(), Breach> {
        if self.message.is_some() {
            return Err(Breach::of("a request inside another"));
        }
        if seq != self.begun {
            return Err(Breach::of("a request out of its order"));
        }
        self.begun = seq.wrapping_add(1);
        Ok(())
    }

    /// The request `seq` and those behind it are to come again.
    pub(super) fn discard_from(&mut self, seq: u32) {
        self.begun = seq;
        (self.discards, self.waits) = (true, true);
    }

    /// `bytes` more of the payload are where they belong; gives what they complete.
    #[inline]
    pub(super) fn advance(&mut self, bytes: usize) -> Option<FrameDone> {
        let (to, left) = self.payload.as_mut()?;
        *left -= bytes;
        let (to, left) = (*to, *left);
        if left == 0 {
            self.payload = None;
        }
        match to {
            To::Message => {
                let message = self.message.as_mut()?;
                message.done += bytes;
                if message.done < message.total {
                    return None;
                }
                self.message.take().map(FrameDone::Message)
            }
            To::Read { seq, last } => {
                Some(FrameDone::Chunk { seq, bytes, last: last && left == 0 })
            }
            To::Discard => None,
            To::Old { seq } => {
                if left > 0 {
                    return None;
                }
                let value = u64_at(&self.partial, 0);
                self.partial.clear();
                Some(FrameDone::Old { seq, value })
            }
        }
    }

    /// Whether part of a frame, or of a message, is here, and the rest is to come.
    pub(super) fn is_begun(&self) -> bool {
        self.payload.is_some() || self.message.is_some() || !self.partial.is_empty()
    }

    /// Whether receiving the rest of the payload where it belongs pays.
    pub(super) fn expects_direct(&self) -> bool {
        self.payload.is_some_and(|(to, left)| left >= DIRECT && to != To::Discard)
    }

    pub(super) fn dump(&self) -> String {
        let state = match (&self.payload, &self.message) {
            (Some((to, left)), _) => format!("{left} bytes to come for {to:?}"),
            (None, Some(message)) => {
                format!("{} of {} bytes of a message", message.done, message.total)
            }
            (None, None) => "between frames".to_owned(),
        };
        format!("{}, {state}", self.debt.dump())
    }
}
