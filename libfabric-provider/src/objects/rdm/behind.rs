//! Atomics that operations wait for, where an endpoint keeps what is behind them in order.

use std::collections::HashMap;
use std::sync::Mutex;

use fabric_rdm::Peer;

use crate::sync::lock;

/// Those of each peer.
#[derive(Default)]
pub(super) struct Atomics(Mutex<HashMap<Peer, OfPeer>>);

#[derive(Default)]
struct OfPeer {
    posted: u64,
    /// The first ones, for which an operation behind them waits: what follows it need not.
    waited: u64,
}

impl Atomics {
    /// How many an operation to this peer has to wait for: all so far, unless another one does.
    pub(super) fn before(&self, peer: Peer) -> Option<u64> {
        let peers = lock(&self.0);
        let OfPeer { posted, waited } = peers.get(&peer)?;
        (posted > waited).then_some(*posted)
    }

    /// An operation was posted, which waits for these.
    pub(super) fn note(&self, peer: Peer, is_atomic: bool, before: Option<u64>) {
        if is_atomic || before.is_some() {
            let mut peers = lock(&self.0);
            let of = peers.entry(peer).or_default();
            of.waited = of.waited.max(before.unwrap_or(0));
            of.posted += u64::from(is_atomic);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_one_behind_waits() {
        let (atomics, peer) = (Atomics::default(), Peer::from_bits(3));
        let post = |is_atomic| {
            let before = atomics.before(peer);
            atomics.note(peer, is_atomic, before);
            before
        };
        assert_eq!(
            [false, true, true, false, false].map(post),
            [None, None, Some(1), Some(2), None]
        );
        // An atomic of another thread comes between the look and the post.
        post(true);
        let before = atomics.before(peer);
        atomics.note(peer, true, None);
        atomics.note(peer, false, before);
        assert_eq!(atomics.before(peer), Some(4));
        assert_eq!(atomics.before(Peer::from_bits(4)), None);
    }
}
