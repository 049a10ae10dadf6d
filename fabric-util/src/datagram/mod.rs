//! Datagram endpoints in software: what a provider over sockets and one in memory share.
//!
//! - [`header`]: what travels before a datagram's bytes, where the transport has no place for immediate data;
//! - [`receives`]: the receives that wait, and how one ends;
//! - [`drops`]: what was dropped, by reason.

pub mod drops;
pub mod header;
pub mod receives;

pub use drops::Drops;
pub use header::{DatagramHeader, HEADER_LEN};
pub use receives::{DatagramReceives, WaitingReceive};
