//! What the examples share: how they end.

use std::fmt::Display;
use std::process::ExitCode;

/// Prints an error as text; `main` that returns it would print it as `Debug` does.
pub(crate) fn finish<E: Display>(outcome: Result<(), E>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
