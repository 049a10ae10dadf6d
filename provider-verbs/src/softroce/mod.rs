//! What Soft-RoCE needs beyond the specification, and no other device does. The switches are in `quirks.rs`.

pub(crate) mod probes;
pub(crate) mod read_verify;
pub(crate) mod refusal_scan;
