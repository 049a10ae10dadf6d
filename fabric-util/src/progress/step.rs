//! What a step found.

/// What a step of a connection found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing to read, nothing written.
    Quiet,
    /// Something moved, and then there was nothing more to read.
    Dry,
    /// There may be more to read.
    More,
    /// The connection is closed.
    Over,
}
