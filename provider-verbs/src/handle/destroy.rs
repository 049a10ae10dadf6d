//! What becomes of a destroyer that fails.

use fabric_util::log_line;

/// As [`log_failure`], of what it returned.
pub(super) fn destroyed(verb: &'static str, returned: i32) {
    log_failure(crate::ffi::errno(verb, returned));
}

/// Says that a destroyer failed.
pub(super) fn log_failure(destroyed: std::io::Result<()>) {
    if let Err(error) = destroyed {
        log_line!(Error, "{error}: it stays until the process ends");
    }
}
