//! A peer that breaks the protocol.

/// The peer acknowledged, or answered, what was never sent.
#[derive(Debug)]
pub(super) struct Breach(pub(super) &'static str);
