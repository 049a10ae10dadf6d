//! Everything this crate takes from C: types and constants (`bindings`), functions (`functions`), and where those come from
//! (`library`). With the feature `rdma-sys` all of it is of the crate of that name, and this is the only place that names it.
//!
//! `rdma-sys` 0.3.0 decides that a device has no extended verbs (its `verbs_get_ctx` compares with `u32::MAX`), so
//! only classic verbs are here; a test keeps that in sight. Constants it lacks are spelt out with their header.

#[cfg(not(feature = "rdma-sys"))]
mod bindings;
mod functions;
#[cfg(not(feature = "rdma-sys"))]
mod library;
mod types;

use std::io;

pub(crate) use functions::*;
#[cfg(not(feature = "rdma-sys"))]
pub use library::interpose;
pub(crate) use types::*;

/// A verb that returns a pointer, and sets `errno` on failure.
pub(crate) fn pointer<T>(verb: &'static str, made: *mut T) -> io::Result<std::ptr::NonNull<T>> {
    std::ptr::NonNull::new(made).ok_or_else(|| named(verb, io::Error::last_os_error()))
}

/// A verb of libibverbs, which returns 0 or the error number.
pub(crate) fn errno(verb: &'static str, returned: i32) -> io::Result<()> {
    match returned {
        0 => Ok(()),
        // A few return -1 and set `errno` (ibv_query_port(3) and older drivers).
        code if code < 0 => Err(named(verb, io::Error::last_os_error())),
        code => Err(named(verb, io::Error::from_raw_os_error(code))),
    }
}

/// The error of a post that was refused.
#[cold]
pub(crate) fn refused(verb: &'static str, code: i32) -> io::Error {
    errno(verb, code).err().unwrap_or_else(|| io::Error::from_raw_os_error(libc::EIO))
}

/// A call of librdmacm, which returns 0, or -1 and sets `errno`.
pub(crate) fn minus_one(verb: &'static str, returned: i32) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(named(verb, io::Error::last_os_error())) }
}

/// A failed verb.
#[derive(Debug)]
pub(crate) struct VerbError {
    verb: &'static str,
    cause: io::Error,
}

impl std::fmt::Display for VerbError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.verb, self.cause)
    }
}

impl std::error::Error for VerbError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// Names the verb that failed, keeping the kind.
fn named(verb: &'static str, cause: io::Error) -> io::Error {
    io::Error::new(cause.kind(), VerbError { verb, cause })
}

/// The error number of a failed verb.
pub(crate) fn code(error: &io::Error) -> Option<i32> {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<VerbError>());
    inner.map_or(error.raw_os_error(), |verb| verb.cause.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_verb_is_named_and_keeps_its_errno() {
        let error = errno("ibv_modify_qp", libc::EINVAL).unwrap_err();
        assert_eq!(code(&error), Some(libc::EINVAL));
        assert!(error.to_string().starts_with("ibv_modify_qp: Invalid argument"), "{error}");
        assert!(errno("ibv_modify_qp", 0).is_ok());
    }
}
