//! The order in which connections are served, and what is left for later: a seam for tests. An engine without a schedule
//! serves every connection fully, in the order in which they became ready.

use std::time::Duration;

use crate::stream::Deferral;

/// What is left for later, of a connection that has something to do.
#[derive(Clone, Copy, Debug)]
pub enum Hold {
    /// Everything: it is not served.
    Connection,
    /// Some of the frames that are due.
    Frames(Deferral),
}

/// The choices of an engine. It may make them under its locks.
pub trait Schedule: Send + Sync {
    /// Whether a poll serves no connection.
    fn skips_poll(&self) -> bool;

    /// Which of `count` connections is served next; `count` is not zero.
    fn pick(&self, count: usize) -> usize;

    /// What to hold back, and how long, of a connection that moved bytes; `None`: nothing. The engine serves it fully when
    /// that time is over.
    fn hold(&self) -> Option<(Hold, Duration)>;

    /// How long the progress thread sleeps before it looks whether the application still polls.
    fn tick(&self, tick: Duration) -> Duration;
}
