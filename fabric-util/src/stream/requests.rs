//! The peer's requests that are under way, and the answers that they still get.

use std::collections::VecDeque;
use std::sync::Arc;

use super::protocol_error::Breach;
use super::receives::Receive;
use crate::region_table::RegionEntry;

/// Reads and atomics that one side answers at a time.
pub const READS: u32 = 128;

/// A send or write of the peer that is coming in.
pub(super) struct Message {
    pub(super) seq: u32,
    pub(super) total: usize,
    pub(super) done: usize,
    pub(super) imm: Option<u32>,
    pub(super) place: Place,
}

/// Where a message goes.
pub(super) enum Place {
    /// Into a receive.
    Receive(Receive),
    /// Into a region; with immediate data it consumes a receive.
    Write { entry: Arc<RegionEntry>, addr: u64, receive: Option<Receive> },
    /// It has no bytes; with immediate data it consumes a receive.
    Empty(Option<Receive>),
}

impl Message {
    /// The receive it took.
    pub(super) fn into_receive(self) -> Option<Receive> {
        match self.place {
            Place::Receive(receive) => Some(receive),
            Place::Write { receive, .. } | Place::Empty(receive) => receive,
        }
    }
}

/// An answer that is still to be given.
pub(super) enum Answer {
    /// Bytes of a region; none of any region if the read is empty.
    Read { seq: u32, from: Option<Arc<RegionEntry>>, addr: u64, left: usize },
    /// The old value of an atomic.
    Old { seq: u32, value: u64 },
}

/// The answers that are still to be given, in order; at most [`READS`].
#[derive(Default)]
pub(super) struct Responses(VecDeque<Answer>);

impl Responses {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub(super) fn front_mut(&mut self) -> Option<&mut Answer> {
        self.0.front_mut()
    }
    pub(super) fn pop_front(&mut self) {
        self.0.pop_front();
    }
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    pub(super) fn push(&mut self, answer: Answer) -> Result<(), Breach> {
        if self.0.len() >= READS as usize {
            return Err(Breach::of("more reads at a time than this side answers"));
        }
        self.0.push_back(answer);
        Ok(())
    }
}
