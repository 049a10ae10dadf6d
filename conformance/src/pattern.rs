//! Payloads that show where each byte came from, and random numbers that can be repeated.

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

/// The finalizer of splitmix64 (Steele, Lea, Flood 2014): every bit of the input changes half of the output.
pub(crate) const fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Random numbers by splitmix64: small, fast, and the same from the same seed for ever, which a crate for random
/// numbers does not promise.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// The sequence of this seed for one name.
    pub(crate) fn named(seed: u64, name: &str) -> Self {
        Rng(name.bytes().fold(mix(seed), |state, byte| mix(state ^ u64::from(byte))))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let now = self.0;
        self.0 = now.wrapping_add(GOLDEN);
        mix(now)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        // The bias of a remainder is far below what a case could notice.
        (self.next_u64() % bound as u64) as usize
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
    fn splitmix64_is_the_published_one() {
        let mut rng = Rng::new(1_234_567);
        let first: Vec<_> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

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
