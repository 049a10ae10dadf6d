//! What goes beside the stream, where each side reaches memory of the other's by itself: long messages, which the target takes from
//! where they are, and long reads and writes, which the initiator executes.

use fabric_core::work::total_len;
use fabric_core::{SendFlags, SendOp, SendWork, Status};
use smallvec::SmallVec;

use super::link::Link;
use super::phase::Phase;
use super::sends::Beside;
use super::transport::{Reached, Transport};

/// From this length on a message is lent: a window costs less than one more copy.
const LENT: usize = 16 << 10;
/// From this length on a read or write waits until the peer has executed all before it, to be executed here then: a round trip
/// costs less than to go by the stream, which copies it twice.
const REACHED: usize = 64 << 10;

impl Link {
    /// How an operation goes on this transport, if something is before it.
    #[inline]
    pub(super) fn beside(&self, work: &SendWork<'_>, transport: &impl Transport) -> Beside {
        match (work.op, work.segments) {
            (SendOp::Send { .. }, [one]) => {
                let may = one.len >= LENT && !work.flags.contains(SendFlags::INJECT);
                let is_reached = may && transport.is_reached(one.addr, one.len);
                let (id, regions) = (self.context.id, &self.context.regions);
                let lent = is_reached.then(|| regions.lend((one.addr, one.len), id));
                lent.flatten().map_or(Beside::No, Beside::Lent)
            }
            (SendOp::Write { to: at, imm: None } | SendOp::Read { from: at }, segments)
                if total_len(segments) >= REACHED && transport.reaches(at) =>
            {
                Beside::Reached
            }
            _ => Beside::No,
        }
    }

    /// Whether an operation can be executed now as if it were transmitted and answered at once: none is under way.
    #[inline]
    pub fn is_clear(&self) -> bool {
        self.phase == Phase::Open && self.announced && self.sends.is_empty()
    }

    /// An operation was [executed](Transport::reach) that was never in the queue, which is [clear](Link::is_clear).
    #[inline]
    pub fn complete_reached(&mut self, work: &SendWork<'_>) {
        self.complete_send(work.token, work.flags, Status::Ok);
    }

    /// Whether the next operation is to be executed by the transport, and nothing is before it.
    #[inline]
    pub fn has_to_reach(&self) -> bool {
        self.phase == Phase::Open && self.sends.to_reach().is_some()
    }

    /// Whether bytes that the peer has lent are still to be taken, and no event follows.
    #[inline]
    pub(super) fn has_to_fetch(&self) -> bool {
        self.incoming.lent.is_some()
    }

    /// Executes that one. What cannot be executed so goes by the stream.
    #[cold]
    pub(super) fn reach_next(&mut self, transport: &mut impl Transport) -> Reached {
        let Some(entry) = self.sends.to_reach() else { return Reached::No };
        let segments: SmallVec<[_; 4]> = self.sends.segments.of(entry.span).collect();
        // SAFETY: the operation has not completed, so its segments are valid, and as writable as it needs.
        let reached = unsafe { transport.reach(&entry.op, &segments) };
        match reached {
            Reached::Yes => {
                if let Some((token, flags)) = self.sends.take_reached() {
                    self.complete_send(token, flags, Status::Ok);
                }
            }
            Reached::No => self.sends.transmit_unreached(),
            Reached::Look => {}
        }
        reached
    }
}
