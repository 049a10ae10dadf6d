//! Receives of a program, and a rough account of the messages that they meet.

use fabric::Access;

use super::Generator;
use crate::random::program::{EndSpec, Step};

impl Generator {
    /// Where messages of an end meet receives: of its peer, or of a queue that this shares.
    pub(super) fn meeting(&self, end: usize) -> usize {
        let shared = self.end(end ^ 1).shared;
        shared.map_or(end, |queue| 2 * self.program.connections.len() + queue)
    }

    /// Keeps account of a message and its receive.
    pub(super) fn message(&mut self, end: usize, len: usize, placed: bool) {
        let at = self.meeting(end);
        if self.receives[at].is_empty() {
            self.messages[at].push(if placed { len } else { 0 });
        } else {
            self.receives[at].remove(0);
        }
    }

    pub(super) fn receive(&mut self) {
        let ends = 2 * self.program.connections.len();
        // Rather where messages wait.
        let waits = |end: &usize| !self.messages[self.meeting(*end ^ 1)].is_empty();
        let waiting: Vec<_> = (0..ends).filter(waits).collect();
        let end = if waiting.is_empty() || self.one_in(4) {
            self.rng.below(ends)
        } else {
            *self.rng.pick(&waiting)
        };
        let EndSpec { domain, segments, shared, .. } = self.end(end);
        let segments = shared.map_or(segments, |queue| self.program.shared[queue].segments);
        let at = self.meeting(end ^ 1);
        let count = if self.one_in(3) { 2 + self.rng.below(4) } else { 1 };
        let mut recvs = Vec::new();
        for _ in 0..count {
            let next_len = self.messages[at].first().copied().unwrap_or(0);
            let short = self.fault(20);
            // Posts may be refused, so the account is a rough one: much room keeps most connections alive.
            // In a shared queue any message may meet any receive.
            let few = if shared.is_some() { 12 } else { 3 };
            let len = if short || self.one_in(few) { self.len(usize::MAX) } else { 100_000 };
            let len = if short { len } else { len.max(next_len) };
            let parts = self.parts_of(domain, segments, len, Access::LOCAL_WRITE);
            let len = parts.iter().map(|part| part.len).sum();
            // Too short where memory is short; then the message waits for another one.
            if len < next_len && !short {
                continue;
            }
            if self.messages[at].is_empty() {
                self.receives[at].push(len);
            } else {
                self.messages[at].remove(0);
            }
            recvs.push(parts);
        }
        // An end that shares has none of its own.
        let step = match shared {
            Some(queue) if !self.one_in(30) => Step::Share { queue, recvs },
            _ => Step::Receive { end, recvs },
        };
        self.program.steps.push(step);
    }
}
