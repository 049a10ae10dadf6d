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
/// # let rate = fabric_util::log_rate::LogRate::default();
/// if let Some(unsaid) = rate.admit() {
///     println!("a peer is cut off{unsaid}");
/// }
/// ```
#[derive(Debug, Default)]
pub struct LogRate(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    begun: Option<Instant>,
    lines: u32,
    unsaid: u64,
}

/// How many lines were not logged before this one; empty text if none was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsaid(u64);

impl LogRate {
    /// Leave to log a line now.
    pub fn admit(&self) -> Option<Unsaid> {
        self.admit_at(Instant::now())
    }

    fn admit_at(&self, now: Instant) -> Option<Unsaid> {
        let mut window = self.0.lock();
        if window.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= PERIOD) {
            (window.begun, window.lines) = (Some(now), 0);
        }
        if window.lines == LINES {
            window.unsaid += 1;
            return None;
        }
        window.lines += 1;
        Some(Unsaid(std::mem::take(&mut window.unsaid)))
    }
}

impl fmt::Display for Unsaid {
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
        let (rate, start) = (LogRate::default(), Instant::now());
        let admitted = |at| (0..1000).filter_map(|_| rate.admit_at(start + at)).collect::<Vec<_>>();
        assert_eq!(admitted(Duration::ZERO), [Unsaid(0); LINES as usize]);
        assert_eq!(admitted(PERIOD / 2), []);
        let later = admitted(PERIOD);
        assert_eq!((later.len(), later[0], later[1]), (LINES as usize, Unsaid(1990), Unsaid(0)));
        assert_eq!(later[0].to_string(), " (1990 such lines before this one were left out)");
        assert_eq!(later[1].to_string(), "");
    }
}
