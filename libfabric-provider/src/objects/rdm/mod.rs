//! Reliable datagram endpoints, over those of `fabric_rdm`.
//!
//! | file | what belongs there |
//! |---|---|
//! | `endpoint` | making, binding, closing |
//! | `enabled` | an endpoint that can transfer, and its completions on their way to the queues that they are for |
//! | `pending` | what the application is to read of each operation when it ends |
//! | `peers` | which peer of ours a number of an address vector is, and the other way round |
//! | `memory`, `copies` | buffers of the application as operations of ours take them |
//! | `behind` | atomics that what is posted behind them waits for |
//! | `messages`, `probe`, `one_sided`, `atomic` | what is posted |

pub(crate) mod atomic;
mod behind;
mod copies;
pub(crate) mod enabled;
pub(crate) mod endpoint;
mod memory;
mod messages;
mod one_sided;
mod peers;
mod pending;
mod probe;
