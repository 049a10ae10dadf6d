//! Fault injection, for tests: everything that the contract permits and that nature rarely does.
//!
//! - [`FaultTransport`] wraps a transport. Each call moves only part of what it could, down to single bytes, so that frames
//!   are cut anywhere; and the stream seems full when it is not, so that posts wait. [`MaybeFaulty`] does so if a setting says.
//! - [`RandomSchedule`] leaves a connection alone for a while, lets polls do nothing, delays the progress thread and serves
//!   connections in random order. It withholds acknowledgements and credits, even from frames that could carry them, and
//!   responses to reads and atomics, while everything else goes on.
//!
//! Nothing is delayed without limit. While a connection ends, nothing is withheld from the peer that a network would not
//! withhold either. All choices follow from a seed; which of them meet which bytes depends on the threads.

mod schedule;
mod transport;

pub use schedule::RandomSchedule;
pub use transport::{FaultTransport, MaybeFaulty};
