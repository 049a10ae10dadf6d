//! What is in messages and writes: all of it follows from who wrote it, to whom, and its number.

use fabric_util::splitmix::{SplitMix64, mix};

use crate::soak::STEADY_ONES;

/// The longest message.
pub(crate) const MAX_LEN: usize = 256 << 10;
/// Tags have a class in their lowest bits.
pub(crate) const CLASSES: usize = 4;
pub(crate) const CLASS_MASK: u64 = CLASSES as u64 - 1;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) number: u32,
    pub(crate) tag: Option<u64>,
    pub(crate) len: usize,
}

impl Message {
    /// The one that this member sends to that one with this number.
    pub(crate) fn new(from: u32, to: u32, number: u32) -> Self {
        let mut random = SplitMix64::new(key(from, to, number));
        let class = random.below(CLASSES) as u64;
        let tag = (!random.once_in(5)).then_some(u64::from(number) << 8 | class);
        let longest = match random.below(20) {
            0..8 => 64,
            8..13 => 4 << 10,
            13..16 => 20 << 10,
            16..19 => 100 << 10,
            _ => MAX_LEN,
        };
        Message { from, to, number, tag, len: random.below(longest + 1) }
    }

    /// Its first bytes.
    pub(crate) fn payload(&self, len: usize) -> Vec<u8> {
        let key = key(self.from, self.to, self.number);
        let words = (0..len.div_ceil(8) as u64).flat_map(|at| mix(key ^ at << 44).to_le_bytes());
        words.take(len).collect()
    }
}

fn key(from: u32, to: u32, number: u32) -> u64 {
    mix(u64::from(from) << 32 | u64::from(to)) ^ u64::from(number)
}

/// Places of one member in the memory of another, behind its counter.
pub(crate) const PLACES: [usize; 3] = [8, 1 << 10, 16 << 10];
/// As many members have memory at a time: those that are never killed, and the last ones of the others.
const AREAS: u32 = 256;
const AREA: usize = 8 + PLACES[0] + PLACES[1] + PLACES[2];
/// Bytes that each member has for the others.
pub(crate) const MEMORY: usize = AREAS as usize * AREA;

/// Where the memory of a member is, as an offset and a length: first its counter.
pub(crate) fn area(of: u32) -> (usize, usize) {
    let last_ones = AREAS - 1 - STEADY_ONES;
    let area = if of <= STEADY_ONES { of } else { STEADY_ONES + 1 + of % last_ones };
    (area as usize * AREA, AREA)
}

/// Where a place of a member is.
pub(crate) fn place_at(of: u32, place: usize) -> usize {
    area(of).0 + 8 + PLACES[..place].iter().sum::<usize>()
}

/// The write with this number, which is not 0.
pub(crate) fn written(from: u32, number: u32, len: usize) -> Vec<u8> {
    let word = u64::from(from) << 32 | u64::from(number);
    word.to_le_bytes().repeat(len / 8)
}

/// The numbers of the writes that these bytes are of: the lowest and the highest. Bytes that were never written are of 0.
/// `None`: another one wrote there.
pub(crate) fn numbers(from: u32, bytes: &[u8]) -> Option<(u32, u32)> {
    let (mut low, mut high) = (u32::MAX, 0);
    for word in bytes.chunks_exact(8) {
        let word = u64::from_le_bytes(word.try_into().ok()?);
        if word != 0 && (word >> 32) as u32 != from {
            return None;
        }
        (low, high) = (low.min(word as u32), high.max(word as u32));
    }
    Some((low, high))
}
