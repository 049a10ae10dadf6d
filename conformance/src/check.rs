//! How a case says what it expected and what it saw.

use std::borrow::Cow;
use std::fmt::{self, Write};
use std::panic::Location;

use fabric::{BatchError, Error};
use serde::{Deserialize, Serialize};

/// How a case ended.
pub type Outcome = Result<(), Failed>;

/// A rule that was not kept: what was expected, what was seen, where it was checked.
///
/// `?` turns errors of `fabric` into it: a call that fails where the case does not expect it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Failed(Box<Inner>);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Inner {
    expected: String,
    seen: String,
    at: Option<Place>,
    dump: Option<String>,
}

/// A line of source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    file: Cow<'static, str>,
    line: u32,
}

impl Place {
    /// The file, as the compiler was given it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line, from 1.
    pub fn line(&self) -> u32 {
        self.line
    }
}

impl From<&'static Location<'static>> for Place {
    fn from(at: &'static Location<'static>) -> Self {
        Place { file: at.file().into(), line: at.line() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl Failed {
    /// What was expected, and what was seen; the place is the caller's.
    #[track_caller]
    pub fn new(expected: impl Into<String>, seen: impl Into<String>) -> Self {
        Self::at(Location::caller(), expected, seen)
    }

    /// As [`new`](Failed::new), for what no line of a case has found.
    pub(crate) fn nowhere(expected: impl Into<String>, seen: impl Into<String>) -> Self {
        let (expected, seen) = (expected.into(), seen.into());
        Failed(Box::new(Inner { expected, seen, at: None, dump: None }))
    }

    pub(crate) fn at(
        place: &'static Location<'static>,
        expected: impl Into<String>,
        seen: impl Into<String>,
    ) -> Self {
        let mut failed = Self::nowhere(expected, seen);
        failed.0.at = Some(place.into());
        failed
    }

    /// Adds what it is that should have been so.
    pub fn of(mut self, what: impl fmt::Display) -> Self {
        self.0.expected = format!("{what}: {}", self.0.expected);
        self
    }

    /// Adds where both sides stood.
    pub fn with_dump(mut self, dump: impl Into<String>) -> Self {
        self.0.dump = Some(dump.into());
        self
    }

    /// What was expected.
    pub fn expected(&self) -> &str {
        &self.0.expected
    }

    /// What was seen.
    pub fn seen(&self) -> &str {
        &self.0.seen
    }

    /// The line that checked it.
    pub fn place(&self) -> Option<&Place> {
        self.0.at.as_ref()
    }

    /// Where both sides stood, if somebody looked.
    pub fn dump(&self) -> Option<&str> {
        self.0.dump.as_deref()
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}; seen {}", self.expected(), self.seen())?;
        if let Some(at) = self.place() {
            write!(f, " ({at})")?;
        }
        match self.dump() {
            Some(dump) => write!(f, "\n{}", dump.trim_end()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failed {}

impl From<Error> for Failed {
    #[track_caller]
    fn from(error: Error) -> Self {
        Failed::new("the call to succeed", format!("{error} ({error:?})"))
    }
}

impl From<BatchError> for Failed {
    #[track_caller]
    fn from(error: BatchError) -> Self {
        Failed::new("the whole batch to be posted", format!("{error} ({:?})", error.error))
    }
}

impl From<fabric_async::Error> for Failed {
    #[track_caller]
    fn from(error: fabric_async::Error) -> Self {
        Failed::new("the future to succeed", format!("{error} ({error:?})"))
    }
}

impl From<std::io::Error> for Failed {
    #[track_caller]
    fn from(error: std::io::Error) -> Self {
        Failed::new("the system call to succeed", error.to_string())
    }
}

/// The value in `Debug` form, cut where it gets too long to read.
pub fn show(value: &dyn fmt::Debug) -> String {
    const MAX: usize = 300;
    struct Limited(String);
    impl Write for Limited {
        fn write_str(&mut self, part: &str) -> fmt::Result {
            let room = MAX - self.0.len();
            if part.len() <= room {
                self.0.push_str(part);
                return Ok(());
            }
            let cut = (0..=room).rev().find(|at| part.is_char_boundary(*at)).unwrap_or(0);
            self.0.push_str(&part[..cut]);
            // Ends the formatting of what may be megabytes.
            Err(fmt::Error)
        }
    }
    let mut text = Limited(String::new());
    match write!(text, "{value:?}") {
        Ok(()) => text.0,
        Err(_) => text.0 + "...",
    }
}

/// Where two byte strings differ, in words; `None` if they do not.
pub fn difference(seen: &[u8], expected: &[u8]) -> Option<String> {
    if seen.len() != expected.len() {
        return Some(format!("{} bytes instead of {}", seen.len(), expected.len()));
    }
    if seen == expected {
        return None;
    }
    let mut wrong =
        seen.iter().zip(expected).enumerate().filter(|(_, (a, b))| a != b).map(|(at, _)| at);
    let first = wrong.next()?;
    let last = wrong.next_back().unwrap_or(first);
    let count =
        1 + seen[first + 1..].iter().zip(&expected[first + 1..]).filter(|(a, b)| a != b).count();
    let window = first..seen.len().min(first + 8);
    Some(format!(
        "{count} of {} bytes differ, from offset {first} to {last}: {:02x?} instead of {:02x?}",
        seen.len(),
        &seen[window.clone()],
        &expected[window]
    ))
}

/// Ends the case: `fail!("an event at the peer", "silence for {d:?}")` (expected, then seen).
#[macro_export]
macro_rules! fail {
    ($expected:expr, $($seen:tt)+) => {
        return ::std::result::Result::Err($crate::Failed::new($expected, ::std::format!($($seen)+)))
    };
}

/// Checks a condition; the text says what is expected: `check!(done < limit, "done within {limit:?}")`.
#[macro_export]
macro_rules! check {
    ($condition:expr, $($expected:tt)+) => {
        if !$condition {
            let seen = ::std::concat!("`", ::std::stringify!($condition), "` is false");
            return ::std::result::Result::Err($crate::Failed::new(::std::format!($($expected)+), seen));
        }
    };
}

/// Checks that what was seen equals what is expected: `check_eq!(got.len, 10, "length of receive {i}")`.
#[macro_export]
macro_rules! check_eq {
    ($seen:expr, $expected:expr, $($what:tt)+) => {
        match (&$seen, &$expected) {
            (seen, expected) => if !(*seen == *expected) {
                let what = ::std::format!($($what)+);
                return ::std::result::Result::Err($crate::Failed::new(
                    ::std::format!("{what}: {}", $crate::__show(expected)),
                    $crate::__show(seen),
                ));
            }
        }
    };
}

/// Checks byte strings, and shows where they differ: `check_bytes!(seen, expected, "the reject data")`.
#[macro_export]
macro_rules! check_bytes {
    ($seen:expr, $expected:expr, $($what:tt)+) => {
        if let ::std::option::Option::Some(seen) = $crate::__difference($seen.as_ref(), $expected.as_ref()) {
            return ::std::result::Result::Err($crate::Failed::new(
                ::std::format!("{}, byte by byte", ::std::format!($($what)+)),
                seen,
            ));
        }
    };
}

/// Checks that a value fits a pattern and gives the value:
/// `check_matches!(end.wait_disconnected()?, DisconnectReason::Remote, "the reason")`.
#[macro_export]
macro_rules! check_matches {
    ($seen:expr, $pattern:pat $(if $guard:expr)?, $($what:tt)+) => {
        match $seen {
            seen => {
                if !::std::matches!(&seen, $pattern $(if $guard)?) {
                    let what = ::std::format!($($what)+);
                    return ::std::result::Result::Err($crate::Failed::new(
                        ::std::format!("{what}: {}", ::std::stringify!($pattern $(if $guard)?)),
                        $crate::__show(&seen),
                    ));
                }
                seen
            }
        }
    };
}

/// Checks that a call fails as it should and gives the error:
/// `check_err!(a.send(&small, 1), Error::NotConnected, "a send before connecting")`.
#[macro_export]
macro_rules! check_err {
    ($result:expr, $pattern:pat $(if $guard:expr)?, $($what:tt)+) => {
        match $result {
            ::std::result::Result::Err(error) => {
                $crate::check_matches!(error, $pattern $(if $guard)?, $($what)+)
            }
            ::std::result::Result::Ok(_) => {
                let what = ::std::format!($($what)+);
                return ::std::result::Result::Err($crate::Failed::new(
                    ::std::format!("{what}: {}", ::std::stringify!($pattern $(if $guard)?)),
                    "it succeeded",
                ));
            }
        }
    };
}

/// Checks that a text has all of these parts.
#[track_caller]
pub(crate) fn check_says(text: &str, parts: &[&str], what: impl fmt::Display) -> Outcome {
    for part in parts {
        check!(text.contains(part), "{part:?} in what is said of {what}, not {text:?}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_is_the_line_of_the_check() {
        const FIRST: u32 = line!();
        fn by_macro() -> Outcome {
            check_eq!(1 + 1, 3, "a sum of {}", 2);
            Ok(())
        }
        fn by_question_mark() -> Outcome {
            Err(Error::Again)?;
            Ok(())
        }
        for (failed, line) in [(by_macro(), 2), (by_question_mark(), 6)] {
            let failed = failed.unwrap_err();
            let place = failed.place().unwrap();
            assert!(place.file().ends_with("check.rs"), "{place}");
            assert_eq!(place.line(), FIRST + line, "{failed}");
        }
        assert_eq!(by_macro().unwrap_err().expected(), "a sum of 2: 3");
        assert_eq!(by_macro().unwrap_err().seen(), "2");
    }

    #[test]
    fn errors_are_matched() {
        fn succeeded() -> Outcome {
            check_err!(Ok::<_, Error>(1), Error::Again, "the post");
            Ok(())
        }
        fn other(error: Error) -> Outcome {
            let given = check_err!(Err::<(), _>(error), Error::Again | Error::Busy, "the post");
            check_matches!(given, Error::Again, "the error given back");
            Ok(())
        }
        assert_eq!(succeeded().unwrap_err().seen(), "it succeeded");
        assert_eq!(
            other(Error::TimedOut(None)).unwrap_err().expected(),
            "the post: Error::Again | Error::Busy"
        );
        assert!(other(Error::Again).is_ok());
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(show(&7), "7");
        assert_eq!(show(&vec![0u8; 1 << 20]).len(), 303);
    }

    #[test]
    fn differences_are_told() {
        assert_eq!(difference(b"abc", b"abc"), None);
        assert_eq!(difference(b"abc", b"ab").as_deref(), Some("3 bytes instead of 2"));
        let text = difference(&[0, 1, 0, 2], &[0; 4]).unwrap();
        assert!(
            text.starts_with("2 of 4 bytes differ, from offset 1 to 3: [01, 00, 02]"),
            "{text}"
        );
    }
}
