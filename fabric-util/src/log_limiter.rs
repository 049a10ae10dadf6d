//! Log lines that peers can cause, at a bounded rate: an attack is logged, and does not fill a disk.

use std::fmt;
use std::time::{Duration, Instant};

use crate::sync::Mutex;

/// Lines of one period, and how long that is.
const LINES: u32 = 10;
const PERIOD: Duration = Duration::from_secs(10);

/// Says which lines may be logged: ten in ten seconds, and of the others how many there were.
///
/// ```
/// # let limiter = fabric_util::log_limiter::LogLimiter::default();
/// if let Some(suppressed) = limiter.check() {
///     println!("a connection is closed{suppressed}");
/// }
/// ```
#[derive(Debug, Default)]
pub struct LogLimiter(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    begun: Option<Instant>,
    lines: u32,
    suppressed: u64,
}

/// How many lines were not logged before this one; empty text if none was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suppressed(u64);

impl LogLimiter {
    /// Leave to log a line now.
    pub fn check(&self) -> Option<Suppressed> {
        self.check_at(Instant::now())
    }

    fn check_at(&self, now: Instant) -> Option<Suppressed> {
        let mut window = self.0.lock();
        if window.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= PERIOD) {
            (window.begun, window.lines) = (Some(now), 0);
        }
        if window.lines == LINES {
            window.suppressed += 1;
            return None;
        }
        window.lines += 1;
        Some(Suppressed(std::mem::take(&mut window.suppressed)))
    }
}

impl fmt::Display for Suppressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, " ({count} such lines before this one were left out)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_lines_a_period_and_the_rest_is_counted() {
        let (limiter, start) = (LogLimiter::default(), Instant::now());
        let admitted =
            |at| (0..1000).filter_map(|_| limiter.check_at(start + at)).collect::<Vec<_>>();
        assert_eq!(admitted(Duration::ZERO), [Suppressed(0); LINES as usize]);
        assert_eq!(admitted(PERIOD / 2), []);
        let later = admitted(PERIOD);
        assert_eq!(
            (later.len(), later[0], later[1]),
            (LINES as usize, Suppressed(1990), Suppressed(0))
        );
        assert_eq!(later[0].to_string(), " (1990 such lines before this one were left out)");
        assert_eq!(later[1].to_string(), "");
    }
}
