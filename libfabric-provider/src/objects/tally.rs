//! Numbers of completions, and which of an endpoint's go to which counter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric::OpKind;

use crate::abi::flags::{FI_READ, FI_RECV, FI_SEND, FI_WRITE};
use crate::errno::Errno;

/// What a counter counts.
#[derive(Default)]
pub(crate) struct Count {
    pub(crate) value: AtomicU64,
    pub(crate) errors: AtomicU64,
}

/// The counters of an endpoint.
#[derive(Clone, Default)]
pub(crate) struct Tally {
    by_kind: [Option<Arc<Count>>; 4],
}

const KINDS: [u64; 4] = [FI_SEND, FI_RECV, FI_READ, FI_WRITE];

impl Tally {
    /// What an endpoint can have counted; what peers do here is not known here.
    pub(crate) const ALL: u64 = FI_SEND | FI_RECV | FI_READ | FI_WRITE;

    /// Has operations of these kinds counted here; `FI_EINVAL` if one of them is counted already (`fi_endpoint(3)`).
    pub(crate) fn bind(&mut self, count: &Arc<Count>, kinds: u64) -> Result<(), Errno> {
        if self.counts(kinds) {
            return Err(Errno::INVALID);
        }
        for (place, kind) in self.by_kind.iter_mut().zip(KINDS) {
            if kinds & kind != 0 {
                *place = Some(count.clone());
            }
        }
        Ok(())
    }

    /// Whether operations of all, or one, of these kinds are counted.
    pub(crate) fn counts(&self, kinds: u64) -> bool {
        self.by_kind.iter().zip(KINDS).any(|(place, kind)| kinds & kind != 0 && place.is_some())
    }

    /// Counts the end of an operation.
    #[inline]
    pub(crate) fn add(&self, kind: OpKind, is_ok: bool) {
        let place = match kind {
            OpKind::Send => 0,
            OpKind::Recv => 1,
            OpKind::Read => 2,
            OpKind::Write => 3,
            // A peer's write with data takes a receive, and is none (fi_cntr(3), FI_REMOTE_WRITE).
            _ => return,
        };
        if let Some(count) = &self.by_kind[place] {
            let number = if is_ok { &count.value } else { &count.errors };
            number.fetch_add(1, Ordering::AcqRel);
        }
    }
}
