//! How a command fails.

use fabric::Error;

/// What went wrong, and with which exit code to say so.
pub(crate) struct Failure {
    pub(crate) text: String,
    pub(crate) code: u8,
}

impl From<Error> for Failure {
    /// Discovery fails only for what the environment says wrongly; that nothing is usable is no error there.
    fn from(error: Error) -> Self {
        Failure { text: error.to_string(), code: 2 }
    }
}
