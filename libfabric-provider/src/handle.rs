//! Handles: the C structure that an application holds, and the object of ours behind it.
//!
//! A handle is one allocation that begins with the C structure. Whatever is made on an object shares it, so an object in use shows
//! by its count: its handle does not close (`fi_close` is `-FI_EBUSY`, as `fi_domain(3)` and its kin say).

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::Arc;

use crate::abi::{Fid, Ops};
use crate::errno::Errno;

/// An object that C holds.
///
/// # Safety
/// `C` is `repr(C)` and begins with a [`Fid`], or is one; objects of the same class have the same `C`, and differ in `KIND`.
pub(crate) unsafe trait Object: Send + Sync + 'static {
    type C;
    const CLASS: usize;
    const KIND: usize = 0;
}

#[repr(C)]
struct Handle<T: Object> {
    /// C reads it at any time, and an application may change the context.
    c: UnsafeCell<T::C>,
    /// Which object of its class it is: at the same place in all handles of a class.
    kind: usize,
    object: Arc<T>,
}

/// The address of a handle, or an info, for events that name it. Never read through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name(usize);

impl Name {
    pub(crate) fn of<C>(handle: *mut C) -> Self {
        Name(handle as usize)
    }

    pub(crate) fn as_fid(self) -> *mut Fid {
        self.0 as *mut Fid
    }

    pub(crate) fn address(self) -> usize {
        self.0
    }
}

/// The first field of every handle.
pub(crate) fn fid<T: Object>(context: *mut c_void, ops: &'static Ops) -> Fid {
    Fid { fclass: T::CLASS, context, ops }
}

/// Makes a handle; `c` makes the C structure, whose place is known already.
pub(crate) fn open<T: Object>(object: Arc<T>, c: impl FnOnce(Name) -> T::C) -> *mut T::C {
    let mut place = Box::<Handle<T>>::new_uninit();
    let at = place.as_mut_ptr();
    place.write(Handle { c: UnsafeCell::new(c(Name::of(at))), kind: T::KIND, object });
    Box::into_raw(place).cast()
}

/// The object behind a handle.
///
/// # Safety
/// `handle` is null or of [`open`] for a `T`, and not closed before the last use of what this gives.
pub(crate) unsafe fn object<'a, T: Object>(handle: *mut T::C) -> Result<&'a Arc<T>, Errno> {
    // SAFETY: the caller's promise; the handle begins with the C structure. Only the field of ours is looked at.
    unsafe { handle.cast::<Handle<T>>().as_ref() }
        .map(|handle| &handle.object)
        .ok_or(Errno::INVALID)
}

/// What a handle of any kind says that it is.
///
/// # Safety
/// `handle` is null or points to a structure that begins with a [`Fid`].
pub(crate) unsafe fn class(handle: *const Fid) -> Option<usize> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.map(|fid| fid.fclass)
}

/// The object behind a handle that C gives as a bare `fid`, if it is a `T`.
///
/// # Safety
/// `handle` is null or a handle that this library made, as of [`object`].
pub(crate) unsafe fn of_fid<'a, T: Object>(handle: *mut Fid) -> Result<&'a Arc<T>, Errno> {
    // SAFETY: the caller's promise. Handles of one class are alike up to the kind.
    let is_one =
        unsafe { class(handle) == Some(T::CLASS) && (*handle.cast::<Handle<T>>()).kind == T::KIND };
    // SAFETY: of this class and kind all handles are of `T`.
    if is_one { unsafe { object::<T>(handle.cast()) } } else { Err(Errno::INVALID) }
}

/// Ends a handle and what is behind it; `FI_EBUSY` while other objects use that. `end` comes first: the address, by which other
/// objects know the handle, is not another one's before.
///
/// # Safety
/// As of [`of_fid`]; if this is `Ok`, the handle is not used again.
pub(crate) unsafe fn close<T: Object>(
    handle: *mut Fid,
    end: impl FnOnce(&T) -> Result<(), Errno>,
) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let object = unsafe { of_fid::<T>(handle)? };
    if Arc::strong_count(object) > 1 {
        return Err(Errno::BUSY);
    }
    end(object)?;
    // SAFETY: it was made by `open`, is a `T`'s, and is not used again.
    drop(unsafe { Box::from_raw(handle.cast::<Handle<T>>()) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{handle_ops, no_bind, no_control};

    struct Plain;

    // SAFETY: its structure is a fid, and no other object has this class.
    unsafe impl Object for Plain {
        type C = Fid;
        const CLASS: usize = usize::MAX;
    }

    unsafe extern "C" fn no_close(_: *mut Fid) -> std::ffi::c_int {
        -libc::ENOSYS
    }

    static OPS: Ops = handle_ops(no_close, no_bind, no_control);

    fn open_one() -> *mut Fid {
        open(Arc::new(Plain), |_| fid::<Plain>(std::ptr::null_mut(), &OPS))
    }

    #[test]
    fn an_address_is_no_others_before_its_handle_has_ended() {
        let first = open_one();
        let end = |_: &Plain| {
            let second = open_one();
            assert_ne!(first, second);
            // SAFETY: it is of `open`, and not used again.
            unsafe { close::<Plain>(second, |_| Ok(())) }
        };
        // SAFETY: as above.
        unsafe { close::<Plain>(first, end).unwrap() };
    }

    #[test]
    fn what_does_not_end_stays() {
        let one = open_one();
        // SAFETY: it is of `open`, and closed once.
        unsafe {
            assert_eq!(close::<Plain>(one, |_| Err(Errno::BUSY)), Err(Errno::BUSY));
            let other = object::<Plain>(one).unwrap().clone();
            assert_eq!(close::<Plain>(one, |_| Ok(())), Err(Errno::BUSY));
            drop(other);
            assert_eq!(close::<Plain>(one, |_| Ok(())), Ok(()));
        }
    }
}
