//! An engine that takes every liberty the contract leaves and nature rarely takes. For tests.
//!
//! - Each system call moves only part of what it could, down to single bytes, so that frames are cut anywhere.
//! - A socket seems full when it is not, so that posts wait; a connection is left alone for a while, polls do
//!   nothing, the thread oversleeps, and who is served first is drawn by lot.
//! - Acknowledgements and credits are told late and many at a time, even on frames that could carry them; answers
//!   to reads and atomics are held back while everything else goes on.
//!
//! Nothing is put off without limit, and nothing while a connection ends: what a peer must still get then, no
//! network would keep from it either. All choices follow from a seed; which of them meet which bytes depends on
//! the threads. With the adversary off, each of its places is one look at an empty option.

use std::time::{Duration, Instant};

use fabric_util::stream::PutOff;

use crate::engine::{Engine, Timer};

/// The choices of one connection, or of those who serve them all.
pub(crate) struct Whims {
    /// The connection's name; 0 for those who serve.
    name: usize,
    state: u64,
    /// What is put off, is so until then.
    until: Option<Instant>,
    /// The connection is left alone.
    pub(crate) away: bool,
}

impl Whims {
    pub(crate) fn new(seed: u64, name: usize) -> Self {
        let state = seed ^ (name as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
        Whims { name, state, until: None, away: false }
    }

    /// A number below `end`, which is not 0: splitmix64, which is enough for lots.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }

    /// True once in `n` times.
    pub(crate) fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// The most bytes for the next system call. Headers have at most some 70 bytes, so half of the calls cut one,
    /// or the beginning of a payload; the others are large, or long transfers would take for ever.
    pub(crate) fn most(&mut self) -> usize {
        match self.below(8) {
            0 => 1,
            1..4 => 1 + self.below(70),
            4 => 1 + self.below(5000),
            _ => usize::MAX,
        }
    }

    /// What to put off now; mostly nothing.
    pub(crate) fn put_off(&mut self) -> Option<PutOff> {
        let (news, answers) = match self.below(24) {
            0 => (false, false),
            1 => (true, false),
            2 => (false, true),
            3 => (true, true),
            _ => return None,
        };
        self.away = !news && !answers;
        Some(PutOff { news, answers })
    }

    /// Sets the end of what is put off: the next step of the connection, of which the thread takes care.
    pub(crate) fn wait(&mut self, engine: &Engine) {
        if let Some(delay) = self.set_end() {
            engine.deadline(delay, self.name, Timer::PutOff);
        }
    }

    /// How long something is put off; `None` if an end is set already.
    fn set_end(&mut self) -> Option<Duration> {
        if self.waits() {
            return None;
        }
        let delay = Duration::from_micros(50 << self.below(6));
        self.until = Some(Instant::now() + delay);
        Some(delay)
    }

    /// Whether something is put off.
    pub(crate) fn waits(&self) -> bool {
        self.until.is_some()
    }

    /// Whether what was put off is due now.
    pub(crate) fn due(&mut self) -> bool {
        let due = self.until.is_some_and(|until| until <= Instant::now());
        if due {
            (self.until, self.away) = (None, false);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(seed: u64, name: usize) -> Vec<usize> {
        let mut whims = Whims::new(seed, name);
        (0..1000).map(|_| whims.most()).collect()
    }

    #[test]
    fn choices_follow_from_seed_and_name() {
        assert_eq!(drawn(1, 1), drawn(1, 1));
        assert_ne!(drawn(1, 1), drawn(2, 1));
        assert_ne!(drawn(1, 1), drawn(1, 2));
        for small in 1..=70 {
            assert!(drawn(1, 1).contains(&small), "no cut at {small}");
        }
    }

    #[test]
    fn nothing_is_put_off_for_ever() {
        let mut whims = Whims::new(1, 1);
        let mut delays = 0;
        for _ in 0..200 {
            let _ = whims.put_off();
            let delay = whims.set_end().unwrap();
            assert!(whims.set_end().is_none() && delay <= Duration::from_millis(2));
            delays += u32::from(whims.away);
            std::thread::sleep(delay);
            assert!(whims.due() && !whims.due() && !whims.away && !whims.waits());
        }
        assert!(delays > 0);
    }
}
