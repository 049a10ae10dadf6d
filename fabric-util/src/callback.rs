//! Calls into code that is not the library's.
//!
//! Loggers, wakers, event sinks and whatever else a user hands in may block, panic, or call back into the library. So
//! they run with none of the library's locks held, and their panics end here. This is the one way to call them; builds
//! with debug assertions check it ([`sync`](crate::sync)).

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::sync::assert_none_held;

/// Calls user code; `None` if it panicked.
///
/// The thread must hold no lock of the library; with debug assertions the process ends otherwise.
#[inline]
pub fn run<R>(call: impl FnOnce() -> R) -> Option<R> {
    assert_none_held("user code is called");
    caught(call)
}

/// Calls code of the library that may call user code somewhere within; `None` if it panicked. For threads that must
/// survive. Unlike with [`run`], locks may be taken and released inside.
#[inline]
pub fn caught<R>(call: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => Some(result),
        Err(payload) => {
            // What was thrown is a user's as well, and its drop could panic again.
            if !payload.is::<&'static str>() && !payload.is::<String>() {
                std::mem::forget(payload);
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct PanicsWhenDropped;
    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("once more");
        }
    }

    #[test]
    fn panics_end_here() {
        assert_eq!(run(|| 7), Some(7));
        assert_eq!(run(|| -> u8 { panic!("a user's") }), None);
        let thrown = || -> u8 { std::panic::panic_any(PanicsWhenDropped) };
        assert_eq!(run(thrown), None);
    }
}
