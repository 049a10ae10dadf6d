//! `scripts/fuzz 60 link`: whatever a peer sends, everything completes once and nothing panics.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fabric_util::fuzzing::link(bytes));
