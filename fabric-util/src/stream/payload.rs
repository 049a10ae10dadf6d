//! The stream from the peer: what of the present frame is there, and what of its message.

use smallvec::SmallVec;

use super::acks::Debt;
use super::protocol_error::Breach;
use super::requests::Message;
use crate::stream::wire::frame;

/// Payloads of which at least this much is missing are received where they belong, shorter ones through the
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
}

/// The stream from the peer.
#[derive(Default)]
pub(super) struct Incoming {
    /// The beginning of a header, or of an old value.
    pub(super) partial: SmallVec<[u8; frame::MAX_HEADER]>,
    pub(super) payload: Option<(To, usize)>,
    /// The latest payload was worth receiving where it belongs, and so will be the next one, presumably.
    pub(super) long: bool,
    pub(super) message: Option<Message>,
    /// Requests that have begun.
    pub(super) begun: u32,
    /// As many of them as are executed.
    pub(super) debt: Debt,
}

impl Incoming {
    pub(super) fn begin(&mut self, seq: u32) -> Result<(), Breach> {
        if self.message.is_some() {
            return Err(Breach("a request inside another"));
        }
        if seq != self.begun {
            return Err(Breach("a request out of its order"));
        }
        self.begun = seq.wrapping_add(1);
        Ok(())
    }

    /// Whether receiving the rest of the payload where it belongs pays.
    pub(super) fn expects_direct(&self) -> bool {
        self.payload.is_some_and(|(_, left)| left >= DIRECT)
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
