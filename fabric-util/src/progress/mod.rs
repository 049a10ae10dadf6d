//! Progress: which connections are served when, and by which thread.
//!
//! A provider whose connections need a thread to move their bytes implements [`EventLoop`] and owns a [`ProgressEngine`].
//!
//! - `engine`: the hand-over between polling applications and the domain's thread;
//! - `stepper`: steps over the ready connections; `ready_list`, `ready_flag`: which those are;
//! - `event_loop`: what a provider gives the engine; `flush`: when a post is transmitted;
//! - `batch_timer`: how the thread sleeps while an application polls; `adaptive_spin`: how it waits awake before it sleeps;
//! - `schedule`: a seam for tests.

mod adaptive_spin;
mod batch_timer;
mod contention;
mod engine;
mod event_loop;
mod flush;
mod ready_flag;
mod ready_list;
mod schedule;
mod stepper;

pub use engine::ProgressEngine;
pub use event_loop::{EventLoop, Mode, Progress};
pub use flush::Flush;
pub use ready_flag::ReadyFlag;
pub use ready_list::Source;
pub use schedule::{Hold, Schedule};
