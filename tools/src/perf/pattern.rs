//! Bytes that differ from any others: what `--verify` sends and expects.

use fabric::Region;

use super::problem::Outcome;

/// Which bytes: the endpoint's, the operation's, from which end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    pub(crate) base: usize,
    pub(crate) sequence: u64,
    pub(crate) by_server: bool,
}

impl Pattern {
    fn words(self) -> impl Iterator<Item = u64> {
        let mut state = self.sequence << 1 | u64::from(self.by_server);
        state ^= (self.base as u64).rotate_left(40);
        // SplitMix64: every bit of the seed moves every byte.
        std::iter::repeat_with(move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut word = state;
            word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ word >> 31
        })
    }

    fn bytes(self, size: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(size + 8);
        self.words().take(size.div_ceil(8)).for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.truncate(size);
        bytes
    }

    pub(crate) fn put(self, region: &Region, at: usize, size: usize) -> Outcome {
        Ok(region.write_at(at, &self.bytes(size))?)
    }

    /// Where the bytes first differ; `None` if they are all right.
    pub(crate) fn differs(self, region: &Region, at: usize, size: usize) -> Outcome<Option<usize>> {
        let found = region.to_vec(at..at + size)?;
        Ok(found.iter().zip(self.bytes(size)).position(|(found, right)| *found != right))
    }

    pub(crate) fn check(self, region: &Region, at: usize, size: usize) -> Outcome {
        match self.differs(region, at, size)? {
            None => Ok(()),
            Some(byte) => Err(format!(
                "the data is wrong: byte {byte} of {size} of operation {} is not what was sent",
                self.sequence
            )
            .into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_differ_in_everything() {
        let one = Pattern { base: 64, sequence: 5, by_server: false };
        for other in [
            Pattern { base: 128, ..one },
            Pattern { sequence: 6, ..one },
            Pattern { by_server: true, ..one },
        ] {
            assert_ne!(one.bytes(64)[..8], other.bytes(64)[..8]);
        }
        assert_eq!(one.bytes(13), one.bytes(64)[..13]);
    }
}
