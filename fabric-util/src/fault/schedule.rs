//! A schedule that does late what may be late.

use std::time::Duration;

use crate::progress::{Hold, Schedule};
use crate::splitmix::SplitMix64;
use crate::stream::Deferral;
use crate::sync::Mutex;

/// Random choices of an engine, by a seed.
pub struct RandomSchedule(Mutex<SplitMix64>);

impl RandomSchedule {
    /// The choices of this seed.
    pub fn new(seed: u64) -> Self {
        RandomSchedule(Mutex::new(SplitMix64::new(seed)))
    }
}

impl Schedule for RandomSchedule {
    fn skips_poll(&self) -> bool {
        self.0.lock().once_in(3)
    }

    fn pick(&self, count: usize) -> usize {
        self.0.lock().below(count)
    }

    fn hold(&self) -> Option<(Hold, Duration)> {
        let mut numbers = self.0.lock();
        let hold = match numbers.below(24) {
            0 => Hold::Connection,
            1 => Hold::Frames(Deferral { updates: true, answers: false }),
            2 => Hold::Frames(Deferral { updates: false, answers: true }),
            3 => Hold::Frames(Deferral { updates: true, answers: true }),
            _ => return None,
        };
        Some((hold, Duration::from_micros(50 << numbers.below(6))))
    }

    fn tick(&self, tick: Duration) -> Duration {
        tick * (1 + self.0.lock().below(8) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "no memory is touched")]
    fn nothing_is_held_for_long_and_everything_now_and_then() {
        let schedule = RandomSchedule::new(1);
        let (mut connections, mut updates, mut answers) = (0, 0, 0);
        for _ in 0..1000 {
            let Some((hold, time)) = schedule.hold() else { continue };
            assert!(time <= Duration::from_millis(2));
            match hold {
                Hold::Connection => connections += 1,
                Hold::Frames(frames) => {
                    updates += u32::from(frames.updates);
                    answers += u32::from(frames.answers);
                }
            }
        }
        assert!(connections > 0 && updates > 0 && answers > 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "no memory is touched")]
    fn choices_follow_from_the_seed() {
        let drawn = |seed| {
            let schedule = RandomSchedule::new(seed);
            (0..100).map(|_| (schedule.pick(9), schedule.skips_poll())).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
        assert!(drawn(1).iter().all(|(at, _)| *at < 9));
    }
}
