//! The provider's name, in errors and log lines.

/// The provider's name.
pub const NAME: &str = "shm";
