//! What goes wrong.

use fabric::{BatchError, Error};

/// It is shown to a person, so one type for all of it will do.
pub(crate) type Problem = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Outcome<T = ()> = Result<T, Problem>;

/// The connection has ended.
pub(crate) const GONE: &str = "the connection ended: the other end is gone";

/// The text for a person. That the connection has ended shows in a completion or, a moment later, in the next post.
pub(crate) fn describe(problem: &Problem) -> String {
    let batch = problem.downcast_ref::<BatchError>().map(|batch| &batch.error);
    match batch.or_else(|| problem.downcast_ref::<Error>()) {
        Some(Error::NotConnected) => GONE.to_owned(),
        _ => problem.to_string(),
    }
}
