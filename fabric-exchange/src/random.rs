//! Random numbers, by which processes, files and attempts differ.

use fabric_util::proof::{self, SEAL};

use crate::error::{ExchangeError, Result};

/// One that no other process has.
///
/// # Errors
/// `Storage`: the system gives none.
pub(crate) fn random() -> Result<[u8; SEAL]> {
    proof::random().map_err(|error| ExchangeError::Storage(error.to_string()))
}
