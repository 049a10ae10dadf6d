//! What the target does with an operation that reaches it.
//!
//! | rule | here |
//! |---|---|
//! | key, whole range and right are checked before a byte changes; a refused operation changes none | [`Model::judge`] |
//! | zero bytes are neither checked nor refused | [`Model::judge`] |
//! | behind a send without receive nothing takes effect, a read neither | [`Model::advance`] |
//! | behind a refused operation nothing is ever executed, unless it had begun when its region closed | [`Model::advance`] |
//! | a write with immediate that waits for its receive may be there already, its key unchecked or refused | [`Model::advance`] |
//! | a message longer than its receive: no byte beyond the receive's memory changes | [`Model::begin`] |
//! | behind a message that takes a shared receive if no other does, all may have happened or not | [`Model::reach`] |
//! | when a region has closed no peer changes a byte of it; operations under way end well or are refused, and then a read may leave anything in its memory | [`Model::end_region`] |

use super::bytes::ByteRange;
use super::queue::Fate;
use super::{Life, Model};
use crate::random::program::{Lie, OpSpec, What};
use fabric::Access;

impl Model {
    /// Starts whatever can start in an end's send queue.
    pub(super) fn advance(&mut self, at: usize) {
        loop {
            let (end, peer) = (&self.ends[at], &self.ends[at ^ 1]);
            // A side that has noticed the end executes nothing any more.
            if end.culprit.is_some() || peer.dead || end.started == end.sends.len() {
                return;
            }
            let index = end.started;
            let op = &end.sends[index];
            let waits = op.message.is_some_and(|message| message >= peer.recvs.len());
            if waits {
                return self.reach(at, index);
            }
            self.ends[at].started += 1;
            self.begin(at, index);
        }
    }

    /// What may have started though it is not sure: from one on that waits for its receive.
    fn reach(&mut self, at: usize, from: usize) {
        for index in from..self.ends[at].sends.len() {
            let op = &self.ends[at].sends[index];
            let waits = op.message.is_some_and(|message| !self.can_take(at, message));
            if waits && op.spec.what == What::Send {
                return;
            }
            let fate = op.early.unwrap_or_else(|| self.enter(at, index));
            self.ends[at].sends[index].early = Some(fate);
            if waits {
                return;
            }
            self.ends[at].sends[index].may_have_started = true;
            if fate == Fate::Refused {
                return;
            }
        }
    }

    /// Something was seen that shows that the target has come to an operation: so it had to those before.
    pub(super) fn confirm(&mut self, at: usize, index: usize) {
        while self.ends[at].started <= index && self.ends[at].culprit.is_none() {
            let next = self.ends[at].started;
            let op = &self.ends[at].sends[next];
            let waits = op.message.is_some_and(|message| !self.can_take(at, message));
            if waits || op.early.is_none() {
                return;
            }
            self.ends[at].started += 1;
            self.begin(at, next);
        }
        self.advance(at);
    }

    /// Where a write goes.
    fn there(&self, at: usize, index: usize) -> Vec<ByteRange> {
        let spec = &self.ends[at].sends[index].spec;
        match spec.remote() {
            Some(to) if spec.len() > 0 => {
                let region = &self.regions[to.region].spec;
                // It was judged to lie in the region.
                let start = region.start.wrapping_add_signed(to.offset() as isize);
                vec![ByteRange { memory: region.memory, start, len: self.bytes_there(spec) }]
            }
            _ => Vec::new(),
        }
    }

    fn place(&mut self, at: usize, index: usize, places: &[ByteRange]) {
        if let Some(effect) = self.ends[at].sends[index].effect {
            self.bytes.start(effect, places, self.now);
        }
    }

    /// The operation can take effect from now on, or is refused.
    fn begin(&mut self, at: usize, index: usize) {
        let op = &self.ends[at].sends[index];
        let (send, len, message) = (op.spec.what == What::Send, op.spec.len(), op.message);
        let mut fate = op.early.unwrap_or_else(|| self.enter(at, index));
        // A shared receive is known when it ends.
        if send && let Some(recv) = self.ends[at ^ 1].recvs.get(message.unwrap_or_default()) {
            if len > recv.len() {
                fate = Fate::TooLong;
            }
            let places = first(&recv.runs, len);
            self.place(at, index, &places);
        }
        let op = &mut self.ends[at].sends[index];
        (op.started, op.may_have_started, op.fate) = (true, true, fate);
        if matches!(fate, Fate::Refused | Fate::TooLong) {
            self.ends[at].culprit = Some(index);
        }
    }

    /// Whatever an operation does, but for a message, can be there from now on, unless it is refused.
    fn enter(&mut self, at: usize, index: usize) -> Fate {
        let op = &self.ends[at].sends[index];
        let (spec, id) = (op.spec.clone(), op.id);
        let fate = self.judge(at, &spec);
        match spec.what {
            What::Send => {}
            _ if fate == Fate::Refused => {}
            What::Write(_) => self.place(at, index, &self.there(at, index)),
            What::Read(_) => {
                let from = self.there(at, index);
                let effect = self.bytes.taken(id, from, self.now);
                self.ends[at].sends[index].effect = Some(effect);
                self.place(at, index, &self.runs(spec.parts()));
            }
            What::Atomic { to, call, fetch } => {
                let region = &self.regions[to.region].spec;
                let address = region.start.wrapping_add_signed(to.offset() as isize);
                let memory = region.memory;
                let word = self.bytes.atomic(id, memory, address, call, self.now);
                self.ends[at].sends[index].word = Some(word);
                if fetch {
                    let effect = self.bytes.any(id);
                    self.ends[at].sends[index].effect = Some(effect);
                    self.place(at, index, &self.runs(spec.parts()));
                }
            }
        }
        let landing = match spec.what {
            What::Read(_) | What::Atomic { fetch: true, .. } => self.runs(spec.parts()),
            _ => Vec::new(),
        };
        self.ends[at].sends[index].landing = landing;
        fate
    }

    /// Whether the target allows an access.
    fn judge(&self, at: usize, op: &OpSpec) -> Fate {
        let Some(to) = op.remote() else { return Fate::Good };
        let len = self.bytes_there(op);
        if len == 0 {
            return Fate::Good;
        }
        let region = &self.regions[to.region];
        let need = match op.what {
            What::Write(_) => Access::REMOTE_WRITE,
            What::Read(_) => Access::REMOTE_READ,
            _ => Access::REMOTE_ATOMIC,
        };
        let fits = to.offset() >= 0 && to.offset() + len as i64 <= region.spec.len as i64;
        let opens = to.lie != Some(Lie::Key)
            && self.is_for(to.region, at)
            && region.domain == self.ends[at ^ 1].spec.domain
            && matches!(region.life, Life::Open | Life::Leaving);
        if !fits || !opens || !region.spec.access.contains(need) {
            Fate::Refused
        } else if region.life == Life::Leaving {
            Fate::Uncertain
        } else {
            Fate::Good
        }
    }

    /// Rights on a region end now, or may end at any moment: operations under way may be refused.
    pub(super) fn loosen(&mut self, region: usize) {
        let touches = |op: &super::Sent| op.spec.remote().is_some_and(|to| to.region == region);
        let reads = |op: &&super::Sent| touches(op) && matches!(op.spec.what, What::Read(_));
        for op in self.ends.iter().flat_map(|end| &end.sends).filter(reads) {
            op.effect.into_iter().for_each(|effect| self.bytes.tear(effect));
        }
        for op in self.ends.iter_mut().flat_map(|end| &mut end.sends) {
            if touches(op) && !op.done && op.started && op.fate == Fate::Good {
                op.fate = Fate::Uncertain;
            }
            if touches(op) && !op.started && op.early == Some(Fate::Good) {
                op.early = Some(Fate::Uncertain);
            }
        }
    }

    /// The rights have ended: no peer changes a byte through them any more.
    pub(super) fn end_region(&mut self, region: usize, life: Life) {
        self.loosen(region);
        self.regions[region].life = life;
        let now = self.now;
        for at in 0..self.ends.len() {
            for index in 0..self.ends[at].sends.len() {
                let op = &self.ends[at].sends[index];
                if op.spec.remote().is_some_and(|to| to.region == region) {
                    self.publish_there(at, index, now);
                }
            }
        }
        self.end_grants(region);
    }

    /// Nothing of what an operation does to the target's memory is to come.
    pub(super) fn publish_there(&mut self, at: usize, index: usize, now: u64) {
        let op = &self.ends[at].sends[index];
        let (id, word, effect) = (op.id, op.word, op.effect);
        if let Some(word) = word {
            self.bytes.publish_atomic(word, id, now);
        } else if let Some(effect) = effect
            && op.landing.is_empty()
            && matches!(op.spec.what, What::Send | What::Write(_))
            && (op.started || op.early.is_some())
        {
            self.bytes.publish(effect, now);
        }
    }

    /// Regions whose handles were dropped end with the last operation that uses them, and the last grant.
    pub(super) fn let_go(&mut self) {
        // Grants before their regions.
        for region in (0..self.regions.len()).rev() {
            let is_used = self.uses(region).1 > 0 || self.has_grants(region);
            if self.regions[region].life == Life::Leaving && !is_used {
                self.end_region(region, Life::Gone);
            }
        }
    }
}

/// The first `len` bytes of some runs.
pub(super) fn first(runs: &[ByteRange], len: usize) -> Vec<ByteRange> {
    let mut left = len;
    let mut cut = Vec::new();
    for run in runs {
        let len = run.len.min(left);
        left -= len;
        if len > 0 {
            cut.push(ByteRange { len, ..*run });
        }
    }
    cut
}
