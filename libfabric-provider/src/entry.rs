//! What every entry point does: a result becomes what C expects, and no panic leaves the library.

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::{Fid, Ops};
use crate::errno::Errno;

/// What an entry point gives back.
pub(crate) trait Answer {
    fn failed(errno: Errno) -> Self;
}

impl Answer for c_int {
    fn failed(errno: Errno) -> Self {
        -errno.0
    }
}

impl Answer for isize {
    fn failed(errno: Errno) -> Self {
        -errno.0 as isize
    }
}

/// The value of a counter: 0 where it cannot be read.
impl Answer for u64 {
    fn failed(_: Errno) -> Self {
        0
    }
}

/// A text: none.
impl Answer for *const c_char {
    fn failed(_: Errno) -> Self {
        std::ptr::null()
    }
}

/// Runs an entry point. A panic is a bug here, and an error there: `FI_EOTHER`.
#[inline]
pub(crate) fn entry<T: Answer>(body: impl FnOnce() -> Result<T, Errno>) -> T {
    // What a panic leaves is behind locks that notice it, or not touched again.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(answer)) => answer,
        Ok(Err(errno)) => T::failed(errno),
        Err(_) => T::failed(Errno::OTHER),
    }
}

/// The function of all that is not there.
pub(crate) unsafe extern "C" fn refused() -> isize {
    -(libc::ENOSYS as isize)
}

/// `fi_ops.bind` of what is bound to nothing.
pub(crate) unsafe extern "C" fn no_bind(_: *mut Fid, _: *mut Fid, _: u64) -> c_int {
    -libc::ENOSYS
}

/// `fi_ops.control` of what has no commands.
pub(crate) unsafe extern "C" fn no_control(_: *mut Fid, _: c_int, _: *mut c_void) -> c_int {
    -libc::ENOSYS
}

/// The table that every kind of handle has.
pub(crate) const fn handle_ops(
    close: unsafe extern "C" fn(*mut Fid) -> c_int,
    bind: unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int,
    control: unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int,
) -> Ops {
    Ops {
        size: size_of::<Ops>(),
        close,
        bind,
        control,
        ops_open: refused,
        tostr: None,
        ops_set: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error() {
        assert_eq!(entry(|| -> Result<c_int, Errno> { panic!("a test") }), -256);
        assert_eq!(entry(|| -> Result<isize, Errno> { Err(Errno::AGAIN) }), -11);
        assert_eq!(entry(|| Ok(7_u64)), 7);
    }
}
