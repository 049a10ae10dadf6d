//! `scripts/fuzz 60 decode`: the decoders never panic, and decode only what they would encode.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fabric_util::fuzzing::decode(bytes));
