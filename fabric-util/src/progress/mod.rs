//! Progress: which connections are served when.

mod schedule;

pub use schedule::{Hold, Schedule};
