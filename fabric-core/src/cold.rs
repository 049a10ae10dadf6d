//! A hint for the compiler: which branches are rare.
//!
//! An operation goes through some four thousand instructions, and finds none of them in the processor's nearest cache: the
//! kernel was there meanwhile. So it takes as long as it takes to fetch them, and what is never executed must not lie between.

/// Says that the branch it is called in is rarely taken: its code goes to the end of the function, and nothing is inlined there.
/// (`std::hint::cold_path` does the same, from Rust 1.95.)
#[doc(hidden)]
#[cold]
#[inline(always)]
pub const fn cold_path() {}

/// A condition that mostly holds.
#[doc(hidden)]
#[inline(always)]
pub const fn likely(condition: bool) -> bool {
    if !condition {
        cold_path();
    }
    condition
}

/// A condition that rarely holds.
#[doc(hidden)]
#[inline(always)]
pub const fn unlikely(condition: bool) -> bool {
    if condition {
        cold_path();
    }
    condition
}
