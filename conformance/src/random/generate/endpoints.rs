//! Connections of a program, the receive queues that their ends share, and how they end.

use fabric::Access;

use super::Generator;
use crate::random::program::{DOMAINS, EndSpec, Local, OpSpec, SharedSpec, Step, What};

const DEPTHS: &[usize] = &[1, 2, 4, 8, 16, 64];

impl Generator {
    /// Draws connections. In some programs most of them lead to one domain, where a queue is shared.
    pub(super) fn endpoints(&mut self) {
        let home = if self.one_in(3) { Some(self.rng.below(DOMAINS)) } else { None };
        let connections = if home.is_some() { 2 } else { 1 } + self.rng.below(3);
        if let Some(domain) = home {
            for _ in 0..if self.one_in(6) { 2 } else { 1 } {
                let (depth, segments) = (*self.rng.pick(DEPTHS), 1 + self.rng.below(4));
                self.program.shared.push(SharedSpec { domain, depth, segments });
            }
        }
        for _ in 0..connections {
            let near = match home {
                Some(home) if !self.one_in(4) => home,
                _ => self.rng.below(DOMAINS),
            };
            let far = (near + 1 + self.rng.below(DOMAINS - 1)) % DOMAINS;
            let domains = if self.one_in(2) { [near, far] } else { [far, near] };
            let ends = domains.map(|domain| self.draw_end(domain));
            self.program.connections.push(ends);
        }
        let places = 2 * connections + self.program.shared.len();
        (self.messages, self.receives) = (vec![Vec::new(); places], vec![Vec::new(); places]);
    }

    fn draw_end(&mut self, domain: usize) -> EndSpec {
        let is_here = self.program.shared.first().is_some_and(|queue| queue.domain == domain);
        let shared = if is_here && !self.one_in(6) {
            Some(self.rng.below(self.program.shared.len()))
        } else {
            None
        };
        EndSpec {
            domain,
            send_depth: *self.rng.pick(DEPTHS),
            recv_depth: *self.rng.pick(DEPTHS),
            segments: 1 + self.rng.below(4),
            inject: *self.rng.pick(&[0, 64, 128, 128]),
            shared,
        }
    }

    /// The end of a connection, or of the handle of the queue that its end shares.
    pub(super) fn ending(&mut self, end: usize) -> Step {
        let shared = self.end(end).shared;
        if let Some(queue) = shared.filter(|_| self.one_in(5)) {
            return Step::DropShared(queue);
        }
        if let Some(queue) = shared.filter(|_| self.one_in(2)) {
            self.long_message(end, queue);
        }
        if self.one_in(2) { Step::Disconnect(end) } else { Step::Drop(end) }
    }

    /// A message that is perhaps in the middle when its connection ends.
    fn long_message(&mut self, end: usize, queue: usize) {
        let domain = self.end(end).domain;
        let recv = self.parts_of(domain, 1, 1 << 20, Access::LOCAL_WRITE);
        let len = recv.iter().map(|part| part.len).sum();
        let parts = self.parts(end ^ 1, len, Access::empty());
        let send = OpSpec::plain(What::Send, Local::Parts(parts));
        self.program.steps.push(Step::Share { queue, recvs: vec![recv] });
        self.program.steps.push(Step::Post { end: end ^ 1, ops: vec![send] });
        match self.rng.below(3) {
            0 => {}
            1 => self.program.steps.push(Step::Poll { end, max: 1 }),
            _ => self.a_few_steps(),
        }
    }
}
