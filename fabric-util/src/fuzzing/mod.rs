//! Entry points of the fuzzers in `fuzz/`: the decoders, one link as the target of a peer's bytes, two connections against each
//! other, handshakes, and records that are encrypted. And for each the inputs that it starts from.

#![allow(clippy::panic)] // that is how a fuzzer finds something

mod duel;
#[cfg(fuzzing)]
mod handshakes;
#[cfg(fuzzing)]
mod link;
#[cfg(all(fuzzing, feature = "encryption"))]
mod records;

pub use duel::{duel, duel_seeds};
#[cfg(fuzzing)]
pub use handshakes::{handshake, handshake_seeds};
#[cfg(fuzzing)]
pub use link::{decode, decode_seeds, link, link_seeds};
#[cfg(all(fuzzing, feature = "encryption"))]
pub use records::{records, records_seeds};
