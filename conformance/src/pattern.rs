//! Payloads that show where each byte came from, and random numbers that can be repeated.

use fabric_util::splitmix::SplitMix64;
pub(crate) use fabric_util::splitmix::mix;

/// Bytes that look random and that can be computed again: the byte at a position depends on the position and
/// the salt alone. So bytes that are missing, moved, repeated or of another message show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    salt: u64,
}

impl Pattern {
    /// The pattern of this salt; different salts, different bytes.
    pub const fn new(salt: u64) -> Self {
        Pattern { salt }
    }

    /// Fills `bytes` with the pattern from position `from` on.
    pub fn fill(self, from: usize, bytes: &mut [u8]) {
        let (mut at, mut rest) = (from, bytes);
        while !rest.is_empty() {
            let word = mix(self.salt ^ mix((at / 8) as u64)).to_le_bytes();
            let part = &word[at % 8..];
            let take = part.len().min(rest.len());
            let (now, later) = rest.split_at_mut(take);
            now.copy_from_slice(&part[..take]);
            at += take;
            rest = later;
        }
    }

    /// The first `len` bytes of the pattern.
    pub fn bytes(self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(0, &mut bytes);
        bytes
    }
}

/// Random numbers that are the same from the same seed for ever.
#[derive(Clone, Debug)]
pub struct Rng(SplitMix64);

impl Rng {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Rng(SplitMix64::new(seed))
    }

    /// The sequence of this seed for one name.
    pub(crate) fn named(seed: u64, name: &str) -> Self {
        Rng::new(name.bytes().fold(mix(seed), |state, byte| mix(state ^ u64::from(byte))))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound)
    }

    /// One of the items; there is at least one.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Puts the items in a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// A pattern of a new salt.
    pub fn pattern(&mut self) -> Pattern {
        Pattern::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_depends_on_position_only() {
        let whole = Pattern::new(5).bytes(100);
        for (from, to) in [(0, 1), (3, 11), (8, 16), (17, 100)] {
            let mut part = vec![0; to - from];
            Pattern::new(5).fill(from, &mut part);
            assert_eq!(part, whole[from..to]);
        }
        assert_ne!(Pattern::new(6).bytes(16), whole[..16]);
    }

    #[test]
    fn names_have_sequences_of_their_own() {
        assert_eq!(Rng::named(1, "a.b").next_u64(), Rng::named(1, "a.b").next_u64());
        assert_ne!(Rng::named(1, "a.b").next_u64(), Rng::named(1, "a.c").next_u64());
        assert_ne!(Rng::named(1, "a.b").next_u64(), Rng::named(2, "a.b").next_u64());
    }
}
