//! How operations end.
//!
//! | rule | here |
//! |---|---|
//! | each operation ends once, in its queue's order; an unsignaled one that succeeds is not reported | [`Model::completed`] |
//! | `Ok` means that the target has executed it, and everything before it in the queue | [`Model::succeed`] |
//! | before a refused operation all end `Ok`, it has its own status, behind it all are `Canceled` | [`Model::fail`] |
//! | lengths and immediates are the peer's; what a send's `Ok` promised is received | [`Model::end_message`] |
//! | a receive makes everything before its message visible, a delivery-complete its write | [`Model::publish_before`] |

use fabric::{Completion, OpKind, Status};

use super::queue::Fate;
use super::target::first;
use super::{ByteRange, CompletionOf, Eyes, Model, Posted};
use crate::check::{Failed, Outcome, show};
use crate::random::program::What;

impl Model {
    /// A completion was taken.
    pub(in crate::random) fn completed(
        &mut self,
        done: &Completion,
        name: CompletionOf,
        eyes: Eyes<'_>,
    ) -> Outcome {
        self.tick();
        let posted = self.contexts.get(&done.context).copied();
        if let Some(Posted::Send { end, .. } | Posted::Recv { end, .. }) = posted
            && name != CompletionOf::End(end)
        {
            return Err(Failed::new(format!("a completion of e{end} by context"), show(done)));
        }
        match posted {
            Some(Posted::Send { end, index }) => self.end_send(end, index, done, eyes)?,
            Some(Posted::Recv { end, index }) => self.end_receive(end, index, done, eyes)?,
            Some(Posted::Shared { queue, index }) => {
                self.end_shared(queue, index, done, name, eyes)?;
            }
            None => return Err(Failed::new("a completion of something posted", show(done))),
        }
        self.cover_shared();
        self.let_go();
        Ok(())
    }

    fn end_send(&mut self, at: usize, index: usize, done: &Completion, eyes: Eyes<'_>) -> Outcome {
        let sends = &self.ends[at].sends;
        let what = format!("e{at}, operation {index} ({})", sends[index].spec);
        let kind = sends[index].spec.kind();
        let len = if done.is_ok() { sends[index].spec.len() } else { 0 };
        if (done.kind, done.len, done.immediate) != (kind, len, None) {
            return Err(Failed::new(format!("{what}: {kind:?} of {len} bytes"), show(done)));
        }
        if sends[index].taken {
            return Err(Failed::new(format!("{what} to end once"), show(done)));
        }
        // Those before it that are not reported have succeeded.
        for earlier in 0..index {
            let op = &self.ends[at].sends[earlier];
            if op.taken {
                continue;
            }
            if !op.spec.unsignaled {
                let before = format!("operation {earlier} ({}) to end before {what}", op.spec);
                return Err(Failed::new(before, show(done)));
            }
            self.succeed(at, earlier, eyes)?;
        }
        match done.status {
            Status::Ok if self.ends[at].sends[index].spec.unsignaled => Err(Failed::new(
                format!("no completion of {what}: it succeeded, unsignaled"),
                show(done),
            )),
            Status::Ok => self.succeed(at, index, eyes),
            status => self.fail(at, index, status),
        }
    }

    pub(super) fn succeed(&mut self, at: usize, index: usize, eyes: Eyes<'_>) -> Outcome {
        let now = self.now;
        self.confirm(at, index);
        let end = &self.ends[at];
        let op = &end.sends[index];
        let good = matches!(op.fate, Fate::Good | Fate::Uncertain) && self.can_fit(at, index);
        if !op.started || !good || end.send_failed {
            let why = if end.send_failed {
                "one before it failed"
            } else if op.started {
                "the target refuses it"
            } else {
                "it cannot have been executed"
            };
            return Err(Failed::new(
                format!("e{at}, operation {index} ({}), not to succeed: {why}", op.spec),
                "it did",
            ));
        }
        (0..=index).for_each(|earlier| self.executed(at, earlier, now));
        let op = &mut self.ends[at].sends[index];
        op.taken = true;
        let (spec, landing, id) = (op.spec.clone(), op.landing.clone(), op.id);
        let (effect, word) = (op.effect, op.word);
        if spec.delivery_complete {
            if spec.fence {
                self.publish_before(at, index, now);
            }
            self.publish_there(at, index, now);
        }
        let Some(effect) = effect.filter(|_| !landing.is_empty()) else { return Ok(()) };
        self.bytes.done(effect, now);
        self.bytes.publish(effect, now);
        if let (What::Atomic { call, .. }, Some(word)) = (spec.what, word)
            && landing.iter().all(|run| self.bytes.is_alone(effect, run, now))
        {
            let bytes: Vec<u8> = landing.iter().flat_map(|run| eyes(*run)).collect();
            let bits = crate::element::element_bits(&bytes, call.ty.size());
            self.bytes.set_bytes(effect, bytes);
            self.bytes.found(word, id, bits)?;
        }
        self.see(&landing, eyes)
    }

    /// The target has executed an operation.
    fn executed(&mut self, at: usize, index: usize, now: u64) {
        let op = &mut self.ends[at].sends[index];
        if op.done {
            return;
        }
        op.done = true;
        let (id, word, effect) = (op.id, op.word, op.effect);
        if let Some(word) = word {
            self.bytes.with_word(word, |word| word.end(id, now));
        }
        if let Some(effect) = effect.filter(|_| op.landing.is_empty()) {
            self.bytes.done(effect, now);
        }
    }

    /// What the queue did before an operation is there for everybody.
    fn publish_before(&mut self, at: usize, index: usize, now: u64) {
        let last = self.ends[at].sends[index].id;
        for earlier in 0..index {
            if self.bytes.order.before(self.ends[at].sends[earlier].id, last) {
                self.executed(at, earlier, now);
                self.publish_there(at, earlier, now);
            }
        }
    }

    /// How an operation may end that does not succeed.
    fn failures(&self, at: usize, index: usize) -> Vec<Status> {
        let end = &self.ends[at];
        let op = &end.sends[index];
        let own = match op.early.filter(|_| !op.started).unwrap_or(op.fate) {
            Fate::Refused => vec![Status::RemoteAccess],
            Fate::TooLong => vec![Status::TooLong],
            Fate::Uncertain => vec![Status::RemoteAccess, Status::PeerLost],
            Fate::Good if self.may_be_too_long(at, index) => vec![Status::TooLong],
            Fate::Good => Vec::new(),
        };
        if end.send_failed {
            vec![Status::Canceled]
        } else if !self.may_end(at) {
            vec![Status::Ok]
        } else if self.has_other_cause(at) {
            let lost = self.ends[at ^ 1].closed.then_some(Status::PeerLost);
            own.into_iter().chain(lost).chain([Status::Canceled]).collect()
        } else if end.culprit == Some(index) {
            own
        } else {
            vec![Status::Ok]
        }
    }

    /// How an operation ended that its connection's end took with it, as it reports that.
    pub(in crate::random) fn status_of_end(&self, context: u64) -> Status {
        let failures = match self.contexts.get(&context) {
            Some(&Posted::Send { end, index }) => self.failures(end, index),
            _ => Vec::new(),
        };
        let lost = failures.contains(&Status::PeerLost) && !failures.contains(&Status::Canceled);
        if lost { Status::PeerLost } else { Status::Canceled }
    }

    fn fail(&mut self, at: usize, index: usize, status: Status) -> Outcome {
        let now = self.now;
        let end = &self.ends[at];
        let op = &end.sends[index];
        let allowed = self.failures(at, index);
        if !allowed.contains(&status) {
            let what = format!("e{at}, operation {index} ({}), to end {allowed:?}", op.spec);
            return Err(Failed::new(what, format!("{status:?}")));
        }
        let refused = status == Status::RemoteAccess;
        if refused || status == Status::TooLong {
            self.confirm(at, index);
        }
        if status == Status::TooLong {
            self.is_too_long(at, index);
        }
        self.ends[at].send_failed = true;
        self.ends[at].sends[index].taken = true;
        self.leave_alone(at, index, now);
        if refused {
            // Nothing behind it is ever executed. Only where the region closed under way, what no order binds to the
            // operation may have been, for it had begun well.
            let op = &self.ends[at].sends[index];
            let (first, well) = (op.id, op.started && op.fate == Fate::Uncertain);
            for later in index + 1..self.ends[at].sends.len() {
                if !well || self.bytes.order.before(first, self.ends[at].sends[later].id) {
                    self.never(at, later, now);
                }
            }
        }
        self.notice(at);
        self.gone_for(at, index, status)
    }

    fn never(&mut self, at: usize, index: usize, now: u64) {
        let op = &self.ends[at].sends[index];
        let (id, word, effect) = (op.id, op.word, op.effect);
        if let Some(word) = word {
            self.bytes.with_word(word, |word| word.never(id));
            self.bytes.publish_atomic(word, id, now);
        }
        if let Some(effect) = effect {
            self.bytes.never(effect, now);
        }
    }

    fn end_receive(
        &mut self,
        at: usize,
        index: usize,
        done: &Completion,
        eyes: Eyes<'_>,
    ) -> Outcome {
        let end = &self.ends[at];
        let what = format!("e{at}, receive {index}");
        if end.recvs[..index].iter().any(|recv| !recv.taken) || end.recvs[index].taken {
            return Err(Failed::new(format!("{what} to end once, and in order"), show(done)));
        }
        let sender = self.ends[at ^ 1].messages.get(index).copied();
        let runs = end.recvs[index].runs.clone();
        self.ends[at].recvs[index].taken = true;
        self.end_message(at, &what, sender, &runs, done, eyes)
    }

    /// The receive of a message ended, with what the message is to be: an operation of the peer's.
    pub(super) fn end_message(
        &mut self,
        at: usize,
        what: &str,
        sender: Option<usize>,
        runs: &[ByteRange],
        done: &Completion,
        eyes: Eyes<'_>,
    ) -> Outcome {
        let (end, peer) = (&self.ends[at], &self.ends[at ^ 1]);
        let op = sender.map(|sender| &peer.sends[sender]).filter(|op| op.started);
        let expected = |text: &str| Err(Failed::new(format!("{what}: {text}"), show(done)));
        match (done.status, op) {
            (Status::Ok, Some(op))
                if matches!(op.fate, Fate::Good | Fate::Uncertain) && !end.recv_failed =>
            {
                let writes = op.spec.what != What::Send;
                let kind = if writes { OpKind::RecvWrite } else { OpKind::Recv };
                let len = op.spec.len();
                if (done.kind, done.len, done.immediate) != (kind, len, op.spec.immediate) {
                    let immediate = op.spec.immediate;
                    return expected(&format!("{kind:?} of {len} bytes, immediate {immediate:?}"));
                }
                let runs = if writes { Vec::new() } else { first(runs, len) };
                let sender = op.id.index;
                let now = self.now;
                self.publish_before(at ^ 1, sender, now);
                self.executed(at ^ 1, sender, now);
                self.publish_there(at ^ 1, sender, now);
                return self.see(&runs, eyes);
            }
            (Status::Ok, _) => return expected("no success: no message can have come"),
            (Status::TooLong, Some(op)) if op.fate == Fate::TooLong && !end.recv_failed => {}
            (Status::Canceled, op) => {
                let promised = op.is_some_and(|op| op.done);
                // A refused operation alone lets everything before it arrive.
                let sole = !self.has_other_cause(at ^ 1);
                let forced = op.is_some_and(|op| op.fate == Fate::Good || op.fate == Fate::TooLong);
                let own = |at: usize| self.ends[at].culprit.is_some();
                if !end.recv_failed && promised {
                    return expected("the message that was reported to its sender as received");
                }
                if !end.recv_failed && sole && own(at ^ 1) && forced {
                    return expected("the message sent before the refused operation");
                }
                if !self.may_end(at) {
                    return expected("no end: the connection is there");
                }
            }
            _ => return expected("Ok or Canceled, or TooLong if the message was"),
        }
        if done.kind != OpKind::Recv || done.len != 0 || done.immediate.is_some() {
            return expected("a receive that failed, without length and immediate");
        }
        self.ends[at].recv_failed = true;
        self.notice(at);
        Ok(())
    }

    /// Looks at what has landed here.
    fn see(&mut self, runs: &[ByteRange], eyes: Eyes<'_>) -> Outcome {
        let now = self.now;
        runs.iter().try_for_each(|run| self.bytes.look(*run, &eyes(*run), now))
    }

    /// When all that comes has come: every operation has ended, reported or not.
    pub(in crate::random) fn finished(&mut self, at: usize, eyes: Eyes<'_>) -> Outcome {
        for index in 0..self.ends[at].sends.len() {
            let op = &self.ends[at].sends[index];
            if op.taken {
                continue;
            }
            if !op.spec.unsignaled || self.ends[at].send_failed {
                let what = format!("e{at}, operation {index} ({}), to end", op.spec);
                return Err(Failed::new(what, "it never did"));
            }
            self.succeed(at, index, eyes)?;
        }
        match self.ends[at].recvs.iter().position(|recv| !recv.taken) {
            Some(index) => {
                Err(Failed::new(format!("e{at}, receive {index}, to end"), "it never did"))
            }
            None => Ok(()),
        }
    }
}
