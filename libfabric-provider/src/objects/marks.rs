//! Contexts that no application can give: addresses of this library's own.

/// Their addresses are the contexts.
static MARKS: [u8; 2] = [0; 2];

/// Of an operation that has no completion unless it fails, though ours has one: counters count it.
pub(crate) fn silent() -> u64 {
    &raw const MARKS[0] as u64
}

/// Of an injected operation: it has no completion at all (`fi_msg(3)`), and a layer above may take the context of one for its own.
pub(crate) fn injected() -> u64 {
    &raw const MARKS[1] as u64
}
