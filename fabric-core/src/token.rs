//! The word by which a provider names an operation.
//!
//! A provider gets tokens and gives them back. It may read the side and the sequence number; the only ones it makes are
//! [`Token::internal`], for requests of its own. 64 bits, so that a token is a verbs work-request id:
//! `slot:20 generation:11 side:1 sequence:32`.

/// Which of an endpoint's two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The send queue: sends, writes, reads and atomics.
    Send,
    /// The receive queue.
    Recv,
}

/// Names one posted operation on one completion queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(transparent)]
pub struct Token(u64);

/// The most endpoints one completion queue can have bound at a time. The slot behind the last one is never given
/// out, so that words with all its bits set are no tokens: a provider names requests of its own by them.
pub const MAX_ENDPOINTS_PER_CQ: usize = (1 << 20) - 1;
const GENERATIONS: u32 = 1 << 11;

impl Token {
    /// `slot` is the endpoint's slot in the queue's table, `generation` distinguishes later endpoints in that
    /// slot, `sequence` counts the side's posts.
    pub fn new(slot: u32, generation: u32, side: Side, sequence: u32) -> Self {
        debug_assert!((slot as usize) < MAX_ENDPOINTS_PER_CQ && generation < GENERATIONS);
        let side = match side {
            Side::Send => 0,
            Side::Recv => 1,
        };
        Token(
            u64::from(slot) << 44
                | u64::from(generation % GENERATIONS) << 33
                | side << 32
                | u64::from(sequence),
        )
    }

    /// The same slot with another sequence number.
    #[inline]
    pub fn with_sequence(self, sequence: u32) -> Self {
        Token(self.0 & !0xffff_ffff | u64::from(sequence))
    }

    /// The endpoint's slot in the queue's table.
    #[inline]
    pub fn slot(self) -> u32 {
        (self.0 >> 44) as u32
    }

    /// The occupant of that slot.
    #[inline]
    pub fn generation(self) -> u32 {
        (self.0 >> 33) as u32 % GENERATIONS
    }

    /// The queue of the endpoint.
    #[inline]
    pub fn side(self) -> Side {
        if self.0 >> 32 & 1 == 0 { Side::Send } else { Side::Recv }
    }

    /// The operation's number on its side.
    #[inline]
    pub fn sequence(self) -> u32 {
        self.0 as u32
    }

    /// Whether a work-request id is no token at all, but names a request of the provider's own.
    #[inline]
    pub fn is_internal(bits: u64) -> bool {
        bits >> 44 == MAX_ENDPOINTS_PER_CQ as u64
    }

    /// The word by which a provider names a request of its own; `name` has 44 bits.
    #[inline]
    pub fn internal(name: u64) -> u64 {
        (MAX_ENDPOINTS_PER_CQ as u64) << 44 | name
    }

    /// The generation that follows this one.
    pub fn next_generation(generation: u32) -> u32 {
        (generation + 1) % GENERATIONS
    }

    /// As a work-request id.
    #[inline]
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// From a work-request id.
    #[inline]
    pub fn from_bits(bits: u64) -> Self {
        Token(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn parts_survive(m in 0..MAX_ENDPOINTS_PER_CQ as u32, g in 0..GENERATIONS, recv: bool, s: u32, t: u32) {
            let side = if recv { Side::Recv } else { Side::Send };
            let token = Token::new(m, g, side, s);
            prop_assert_eq!((token.slot(), token.generation(), token.side(), token.sequence()), (m, g, side, s));
            let next = token.with_sequence(t);
            prop_assert_eq!((next.slot(), next.generation(), next.side(), next.sequence()), (m, g, side, t));
            prop_assert_eq!(Token::from_bits(token.to_bits()), token);
            prop_assert!(!Token::is_internal(token.to_bits()));
            prop_assert!(Token::is_internal(Token::internal(u64::from(s))));
        }
    }
}
