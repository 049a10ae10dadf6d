//! Entry points of the fuzzers in `fuzz/`: the decoders, one link as the target of a peer's bytes, handshakes, and records
//! that are encrypted.

mod handshakes;
mod link;
#[cfg(feature = "encryption")]
mod records;

pub use handshakes::handshake;
pub use link::{decode, link};
#[cfg(feature = "encryption")]
pub use records::records;
