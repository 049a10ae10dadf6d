//! What identifies a request in its completion, and what completions leave out of the operations in flight.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fabric_core::{Side, Token};

/// What an internal work request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InternalWr {
    /// A compare-and-swap of a loop, or a barrier of the soft queue.
    Cas,
    /// A probe for liveness.
    Probe,
    /// The last request of a connection that ended.
    EndMarker,
    /// Binds a memory window.
    Bind,
}

/// Of a request's id: the connection's number.
const NUMBER_BITS: u64 = (1 << 40) - 1;

impl InternalWr {
    /// The request's id; `conn` is the connection's number.
    pub(crate) fn wr_id(self, conn: u64) -> u64 {
        Token::internal((self as u64) << 40 | conn & NUMBER_BITS)
    }

    /// What an id that is no token is for.
    pub(crate) fn parse(wr_id: u64) -> (InternalWr, u64) {
        let is = |kind: &InternalWr| wr_id >> 40 & 0xf == *kind as u64;
        let kind = [InternalWr::Cas, InternalWr::EndMarker, InternalWr::Bind].into_iter().find(is);
        (kind.unwrap_or(InternalWr::Probe), wr_id & NUMBER_BITS)
    }
}

/// What a connection remembers of its posts.
pub(crate) struct Tokens {
    /// By sequence number: whether it is a send.
    sends: Box<[AtomicBool]>,
    /// Of each side: the token of the last post, or [`NO_TOKEN`].
    last: [AtomicU64; 2],
    /// The last unsignaled post of the send queue, noted before the device has it.
    unsignaled: AtomicU64,
    /// The same, noted when the post has returned.
    unsignaled_posted: AtomicU64,
}

/// What no token is.
pub(crate) const NO_TOKEN: u64 = u64::MAX;

/// The last unsignaled post of a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastUnsignaled {
    /// There was none.
    Never,
    /// The device may not have it yet.
    Pending,
    Posted(Token),
}

impl Tokens {
    pub(crate) fn new(depth: usize) -> Self {
        let no = || AtomicU64::new(NO_TOKEN);
        let sends = (0..depth.next_power_of_two()).map(|_| AtomicBool::new(false)).collect();
        Tokens { sends, last: [no(), no()], unsignaled: no(), unsignaled_posted: no() }
    }

    fn side(side: Side) -> usize {
        usize::from(side == Side::Recv)
    }

    #[inline]
    pub(crate) fn note_send(&self, token: Token, send: bool) {
        self.sends[token.sequence() as usize & (self.sends.len() - 1)]
            .store(send, Ordering::Relaxed);
        self.last[0].store(token.to_bits(), Ordering::Relaxed);
    }

    /// The post has no completion if it succeeds.
    #[inline]
    pub(crate) fn note_unsignaled(&self, token: Token) {
        self.unsignaled.store(token.to_bits(), Ordering::Release);
    }

    /// The device has what was noted by [`note_unsignaled`](Tokens::note_unsignaled).
    #[inline]
    pub(crate) fn unsignaled_is_posted(&self) {
        self.unsignaled_posted.store(self.unsignaled.load(Ordering::Relaxed), Ordering::Release);
    }

    /// The device refused this post and those noted behind it.
    #[cold]
    pub(crate) fn take_back(&self, refused: Token) {
        // The one before was the last. If there was none this names nothing, and is never asked for.
        let before = refused.with_sequence(refused.sequence().wrapping_sub(1)).to_bits();
        self.last[0].store(before, Ordering::Relaxed);
        if self.unsignaled.load(Ordering::Relaxed) != NO_TOKEN {
            self.unsignaled.store(before, Ordering::Release);
            self.unsignaled_posted.store(before, Ordering::Release);
        }
    }

    /// The last unsignaled post. Whatever the device has executed by now is not behind it, since each is noted before the
    /// device has it.
    pub(crate) fn last_unsignaled(&self) -> LastUnsignaled {
        match self.unsignaled.load(Ordering::Acquire) {
            NO_TOKEN => LastUnsignaled::Never,
            bits if self.unsignaled_posted.load(Ordering::Acquire) == bits => {
                LastUnsignaled::Posted(Token::from_bits(bits))
            }
            _ => LastUnsignaled::Pending,
        }
    }

    #[inline]
    pub(crate) fn note_recv(&self, token: Token) {
        self.last[1].store(token.to_bits(), Ordering::Relaxed);
    }

    pub(crate) fn is_send(&self, token: Token) -> bool {
        self.sends[token.sequence() as usize & (self.sends.len() - 1)].load(Ordering::Relaxed)
    }

    /// The sequence number of the last post of the send queue; what is before all numbers if that was refused and none was before.
    pub(crate) fn last_send(&self) -> Option<u32> {
        let last = self.last[0].load(Ordering::Relaxed);
        (last != NO_TOKEN).then(|| Token::from_bits(last).sequence())
    }

    /// Whether the token was made for this connection, and not for an earlier one of the same queue pair number.
    pub(crate) fn owns(&self, token: Token) -> bool {
        let last = self.last[Self::side(token.side())].load(Ordering::Relaxed);
        last != NO_TOKEN && Token::from_bits(last).with_sequence(0) == token.with_sequence(0)
    }

    /// The last post of a side, unless it was asked for before.
    pub(crate) fn take_last(&self, side: Side) -> Option<Token> {
        let last = self.last[Self::side(side)].swap(NO_TOKEN, Ordering::Relaxed);
        (last != NO_TOKEN).then(|| Token::from_bits(last))
    }
}

/// The later one of two posts of a queue.
pub(crate) fn later(one: Option<Token>, two: Option<Token>) -> Option<Token> {
    let (Some(first), Some(second)) = (one, two) else { return one.or(two) };
    Some(if is_behind(first.sequence(), second.sequence()) { second } else { first })
}

/// Whether the first of two sequence numbers is before the second.
pub(crate) fn is_behind(first: u32, second: u32) -> bool {
    (first.wrapping_sub(second) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(sequence: u32) -> Token {
        Token::new(3, 1, Side::Send, sequence)
    }

    #[test]
    fn a_quiet_post_is_known_once_the_device_has_it() {
        let tokens = Tokens::new(8);
        assert_eq!(tokens.last_unsignaled(), LastUnsignaled::Never);
        tokens.note_send(token(0), false);
        tokens.note_unsignaled(token(0));
        assert_eq!(tokens.last_unsignaled(), LastUnsignaled::Pending);
        tokens.unsignaled_is_posted();
        // Signaled ones behind it change nothing.
        tokens.note_send(token(1), true);
        assert_eq!(tokens.last_unsignaled(), LastUnsignaled::Posted(token(0)));
    }

    #[test]
    fn what_was_refused_was_never_the_last() {
        let tokens = Tokens::new(8);
        for sequence in 4..7 {
            tokens.note_send(token(sequence), false);
            tokens.note_unsignaled(token(sequence));
        }
        tokens.take_back(token(6));
        assert_eq!(tokens.last_unsignaled(), LastUnsignaled::Posted(token(5)));
        assert_eq!(tokens.take_last(Side::Send), Some(token(5)));
    }

    #[test]
    fn sequences_wrap() {
        let (old, new) = (Some(token(u32::MAX)), Some(token(2)));
        assert_eq!((later(old, new), later(new, old)), (new, new));
        assert_eq!((later(old, None), later(None, None)), (old, None));
    }
}
