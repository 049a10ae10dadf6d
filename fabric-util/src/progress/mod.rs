//! Progress: which connections are served when, and by which thread.
//!
//! - `turns`: the hand-over between polling applications and the domain's thread;
//! - `drive`: steps over the connections that have something to do; `heat`: which those are; `step`: what one found;
//! - `flush`: when a post is transmitted; `naps`, `linger`: how the thread sleeps, and how it waits awake;
//! - `schedule`: a seam for tests.

mod drive;
mod flush;
mod heat;
mod linger;
mod naps;
mod schedule;
mod step;
mod turns;

pub use flush::Flush;
pub use heat::Heat;
pub use schedule::{Hold, Schedule};
pub use step::Step;
pub use turns::{Turns, Work};
