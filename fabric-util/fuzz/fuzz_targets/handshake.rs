//! `scripts/fuzz 60 handshake`: a stranger makes no connection of an end that has a secret, and nothing panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fabric_util::fuzzing::handshake(bytes));
