//! What datagram endpoints promise, as a model beside which a program runs.
//!
//! The model sees each call with what it returned, and each completion. Some of it can be judged at once: a refusal, a length, a
//! status. Which receive takes which message depends on when messages arrive, which is not seen: that is judged at the end, by a
//! search for a time of arrival of each that explains all that was seen. Where one endpoint sends, and each message was seen to
//! have arrived, there is one such time, and so one outcome. The model has no clock, and looks at no endpoint.
//!
//! Read as a specification, by file:
//!
//! | file | the rules in it |
//! |---|---|
//! | `matching` | which receive takes which message; probes, claims, cancels; what the loss of a peer does to that |
//! | `posts` | what posts return: depth, windows, peers that are down or removed |
//! | `ending` | how what was posted to a peer ends: once, and by the loss of the peer in order |
//! | `receives` | how receives end: length, truncation, offset, once; the release of receives of many |
//! | `bytes` | one-sided operations: what they leave and find, and what messages behind them find |
//! | `owed` | what has to come, counters, and that no window is exceeded |
//! | `search` | whether there is a time of arrival of each message |
//! | `record` | what is known |
//!
//! What is open is accepted: which sender's message comes first; whether a cancel or a message does; which operations of a lost
//! peer were executed; when a peer that removed this one, or was dropped, is found to be down.

mod bytes;
mod ending;
mod matching;
mod owed;
mod posts;
mod receives;
mod record;
mod search;
#[cfg(test)]
mod tests;

pub(super) use bytes::written;
pub(super) use ending::SeenEnd;
pub(super) use posts::Posting;
pub(super) use record::{Initiating, RdmModel, Sight};
