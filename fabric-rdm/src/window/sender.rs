//! The sender's side: whether one more message may be posted to a peer, and if not, why.

use super::meter::{Meter, WindowError};
use super::receiver::{Grant, Notices, WindowLimits};
use fabric_core::unlikely;

/// Why one more message cannot be posted to a peer now. Another one can be once a grant has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Blocked {
    /// As many messages as the window allows have not met a receive: the peer's application has to post receives.
    #[error(
        "the peer has not matched as many messages as its window allows: it has to post receives"
    )]
    Window,
    /// The receiver has no place to give: other peers have them.
    #[error(
        "the receiver has no place for a message to give, as messages of others wait for receives there"
    )]
    Places,
}

/// How a message that may be posted goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// With its payload.
    Eager,
    /// The envelope only: the receiver asks for the payload when it has met a receive.
    EnvelopeOnly,
}

/// What a sender may send to one peer.
#[derive(Debug)]
pub struct SendWindow {
    places: Meter,
    bytes: Meter,
}

impl SendWindow {
    /// To a peer with these limits: those of its endpoint, which both have to know. Nothing is granted yet.
    pub fn new(limits: &WindowLimits) -> Self {
        let (places, bytes) = (limits.places.window, limits.bytes.window);
        SendWindow { places: Meter::new(places), bytes: Meter::new(bytes) }
    }

    /// One more message, with so many bytes to go along with its envelope; 0 if they are not to.
    ///
    /// # Errors
    /// Why it cannot be posted. Nothing was used, and the next [notice](Self::take_notice) asks for more.
    pub fn post(&mut self, eager_bytes: u64) -> Result<Sending, Blocked> {
        if !self.places.take(1) {
            let blocked =
                if self.places.is_exhausted() { Blocked::Window } else { Blocked::Places };
            return Err(blocked);
        }
        self.places.ask_ahead();
        Ok(if self.bytes.take(eager_bytes) { Sending::Eager } else { Sending::EnvelopeOnly })
    }

    /// A message that [`post`](Self::post) let, with these bytes, was not sent and will not be.
    pub fn take_back(&mut self, eager_bytes: u64) {
        self.places.give_back(1);
        self.bytes.give_back(eager_bytes);
    }

    /// So many messages could be posted, as far as places go.
    pub fn places(&self) -> u64 {
        self.places.left()
    }

    /// Whether a message could be posted.
    pub fn is_open(&self) -> bool {
        self.places.has(1)
    }

    /// What the receiver grants. Whether there are more places than before.
    ///
    /// # Errors
    /// [`WindowError::Grant`]: no honest receiver says that. Nothing was changed, or only the places.
    pub fn on_grant(&mut self, grant: Grant) -> Result<bool, WindowError> {
        let is_more = self.places.on_allowance(grant.places)?;
        self.bytes.on_allowance(grant.bytes)?;
        Ok(is_more)
    }

    /// The last word of the receiver before the connection is parked: so many places of messages are free again.
    ///
    /// # Errors
    /// [`WindowError::Grant`]: no honest receiver says that. Nothing was changed.
    pub fn on_freed(&mut self, places: u64) -> Result<(), WindowError> {
        self.places.on_freed(places)
    }

    /// Whether so many messages may wait here for their places. All that were posted have to reach matching, so they are no more
    /// than the window has, less those that have met no receive as far as is known.
    pub fn may_wait(&self, waiting: u64) -> bool {
        self.places.in_use() + waiting <= self.places.window()
    }

    /// What is to be sent to the receiver, behind all messages that were posted; `None`: nothing. To be asked after posts
    /// and grants.
    pub fn notice(&self) -> Option<Notices> {
        let notices = Notices { places: self.places.notice(), bytes: self.bytes.notice() };
        let is_empty = notices.places.is_empty() & notices.bytes.is_empty();
        unlikely(!is_empty).then_some(notices)
    }

    /// The same, which is as good as sent.
    pub fn take_notice(&mut self) -> Option<Notices> {
        let notices = self.notice();
        self.places.take_notice();
        self.bytes.take_notice();
        notices
    }

    /// The connection was [parked](crate::connection): all that was sent either way has arrived. What was granted and not
    /// used is the receiver's again. To be called on both sides.
    pub fn park(&mut self) {
        self.places.park();
        self.bytes.park();
    }
}
