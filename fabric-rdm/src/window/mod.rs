//! Flow control: how many messages without a receive there may be, and how much memory they have.
//!
//! A receiver has so many places for the envelopes of unmatched messages and so many bytes for their payload, for all peers
//! together. It grants them to peers, and a sender spends what it was granted: so a message whose post succeeded always has
//! a place at the receiver and reaches matching, and what has a place never waits for another one. A sender without a grant
//! is [`Blocked`] and knows why. Without bytes it is not: the envelope goes, and the payload waits at the sender.
//!
//! - A peer has at most [`Resource::window`] places, and as many bytes as that says.
//! - [`Resource::reserved`] places are each peer's own, whatever others do. The rest is a pool for those that ask.
//! - What is granted together, used or not, is never more than what there is.
//! - A peer that is blocked asks once. If the pool is empty, peers that were granted more than is reserved are asked to give
//!   back what they do not use, the first one first.
//!
//! All numbers on the wire count from the beginning and never go back. What is given back counts as used and freed at
//! once. They belong to the pair of endpoints, and not to a connection.
//!
//! ```text
//!  SendWindow                                   ReceiveWindows
//!  post           ── the message ──▶            on_message
//!                                               on_matched, once a receive has it
//!  on_grant       ◀── Grant ──                  take_grant
//!  take_notice    ── Notice ──▶                 on_notice
//! ```

mod ledger;
mod meter;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use meter::{Allowance, Notice, WindowError};
pub use receiver::{Account, Grant, Notices, ReceiveWindows, Resource, WindowLimits};
pub use sender::{Blocked, SendWindow, Sending};
