//! Tag matching: which receive takes which message.
//!
//! A [`Matcher`] has the posted receives of an endpoint and its messages without a receive. It moves no bytes and knows no
//! connection: a receive has a context of the caller's, a message a payload of the caller's, and a match hands out both.
//!
//! - A message goes to the oldest posted receive that takes it; a receive takes the oldest message that there is for it,
//!   and the messages of one peer are as old as they arrived. So matching is in the order of posts, and in the order in
//!   which each peer sent.
//! - The cost of each operation depends neither on how many receives are posted nor on how many messages wait, also with
//!   bits of the tag to ignore, for up to eight different masks at a time (a mask from any source and the same from one
//!   count as two); beyond these lists are gone through. [`Matcher::end_peer`] and [`Matcher::remove_peer`] go through all.
//! - Nothing is allocated in the steady state: tables keep the memory that they once had. [`MatchLimits`] says how many
//!   receives and messages there may be.
//! - Peers choose tags. The hashes have a key that they do not know, so they cannot make matching slow.
//!
//! Within: `pattern` says what matches, `posted` and `unexpected` have the two sides, each by `index` for what it is asked
//! often, over the chains of `links` and the places of a `slab`; `outcome` is what the `engine` gives out.
//!
//! ```
//! use fabric_rdm::Peer;
//! use fabric_rdm::matching::{Arrived, Envelope, MatchLimits, Matcher, Pattern, Receive};
//!
//! let mut matcher = Matcher::new(MatchLimits::default())?;
//! let peer = Peer::from_bits(0);
//! let receive = Receive::new(Pattern::tagged(0x1200).ignoring(0xff), 4096);
//! matcher.post(receive, "context", |_| unreachable!("no message is there"))?;
//! let envelope = Envelope { source: peer, tag: Some(0x1234), len: 100 };
//! match matcher.arrive(envelope, "payload") {
//!     Ok(Arrived::Matched(it)) => assert_eq!((it.context, it.payload, it.len), ("context", "payload", 100)),
//!     other => unreachable!("{other:?}"),
//! }
//! # Ok::<(), fabric_core::Error>(())
//! ```

mod engine;
mod index;
mod links;
mod outcome;
mod pattern;
mod posted;
mod slab;
#[cfg(test)]
mod tests;
mod unexpected;

pub use engine::{MatchLimits, Matcher, Receive};
pub use outcome::{Arrived, Ending, Match, MessageId, ReceiveId, ReleaseReason, Released};
pub use pattern::{Envelope, Pattern};
pub use unexpected::Message;
