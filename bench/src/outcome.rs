//! How anything here ends.

/// What went wrong is shown to a person.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;
