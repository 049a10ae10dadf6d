//! `scripts/fuzz 60 records`: of records that were changed nothing is received that was not sent.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fabric_util::fuzzing::records(bytes));
