//! What must hold when all is quiet: nothing is outstanding, all came, and everything can be used again.

use std::time::{Duration, Instant};

use fabric::Op;
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Full, Kind, OpId, PostError, Recv};

use crate::content::place_at;
use crate::member::Member;
use crate::process::say;
use crate::{Outcome, text};

/// How far the end of a soak is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Phase {
    Traffic,
    /// What was posted ends.
    Draining,
    Drained,
    /// Messages that are certain come, and a last one goes to each of these: once more of theirs end well than before.
    Exchange {
        since: Instant,
        left: Vec<(u32, Option<u64>)>,
    },
    Exchanged,
    /// Receives are canceled.
    Settling,
    Settled,
}

/// Messages that are certain are there in this time.
const LIMIT: Duration = Duration::from_secs(90);

impl Member {
    pub(crate) fn end_step(&mut self) -> Outcome {
        match &self.phase {
            Phase::Draining => self.drain(),
            Phase::Exchange { .. } => self.exchange(),
            Phase::Settling => self.settle(),
            _ => Ok(()),
        }
    }

    /// Whether all that was initiated here has ended, by the counters too.
    fn is_drained(&self) -> bool {
        let sends = self.endpoint.counter(Kind::Send);
        self.posted.values().all(|posted| posted.is_receive())
            && sends.successes() + sends.errors() == self.sent
    }

    fn drain(&mut self) -> Outcome {
        let wait = self.roster.others.values().any(|other| other.unexplained.is_some());
        let dead = self.roster.others.values().any(|other| other.dead && !other.removed);
        if wait || dead || !self.is_drained() {
            return Ok(());
        }
        for other in self.roster.others.values().filter(|other| other.is_strict()) {
            say(&format!("sent {} {}", other.id, other.messages.certain));
        }
        say("drained");
        self.phase = Phase::Drained;
        Ok(())
    }

    pub(crate) fn begin_exchange(&mut self) {
        let left = self.roster.present().into_iter().map(|id| (id, None)).collect();
        self.phase = Phase::Exchange { since: Instant::now(), left };
    }

    /// All that is certain comes, and one more message to each arrives.
    fn exchange(&mut self) -> Outcome {
        let Phase::Exchange { since, left } = self.phase.clone() else { return Ok(()) };
        let missing = self.roster.others.values().find(|other| {
            other.is_strict() && other.expected.is_some_and(|count| other.inbox.count < count)
        });
        if since.elapsed() > LIMIT {
            let missing = missing.map(|other| (other.id, other.inbox.count, other.expected));
            return Err(format!("all that is certain, and messages to {left:?}: {missing:?}"));
        }
        let may_end = missing.is_none();
        let mut still = Vec::new();
        for (id, certain_before) in left {
            let certain = self.roster.get(id).messages.certain;
            let is_under_way = self
                .posted
                .values()
                .any(|posted| !posted.is_receive() && posted.life.is_some_and(|(of, _)| of == id));
            let is_done = certain_before.is_some_and(|before| certain > before);
            if is_under_way {
                still.push((id, certain_before));
            } else if !is_done {
                // For the first time, or once more if the pair was cut.
                let is_posted = self.send(id, true)?;
                if is_posted && id != self.id {
                    // All that was added before is certain, unless the pair was cut.
                    self.fetch_add(id)?;
                }
                still.push((id, is_posted.then_some(certain)));
            }
        }
        if still.is_empty() && may_end {
            say("exchanged");
            self.phase = Phase::Exchanged;
        } else {
            self.phase = Phase::Exchange { since, left: still };
        }
        Ok(())
    }

    pub(crate) fn begin_settle(&mut self) -> Outcome {
        self.phase = Phase::Settling;
        let all: Vec<_> = self.posted.keys().copied().collect();
        all.into_iter().try_for_each(|context| self.cancel(context))
    }

    fn settle(&mut self) -> Outcome {
        if !self.posted.is_empty() || !self.is_drained() {
            return Ok(());
        }
        if let Some(probed) = self.endpoint.probe(&Pattern::untagged()).map_err(text)? {
            return Err(format!("no message without a receive, not {:?}", probed.envelope));
        }
        for kind in [Kind::Send, Kind::Recv, Kind::Write, Kind::Read, Kind::Atomic] {
            let [ok, other] = self.counts.get(&kind).copied().unwrap_or_default();
            let counter = self.endpoint.counter(kind);
            let (successes, errors) = (counter.successes(), counter.errors());
            let is_silent = kind == Kind::Send && successes > ok;
            if errors != other || successes != ok && !is_silent {
                return Err(format!("{ok} and {other} of {kind:?}, not {successes} and {errors}"));
            }
        }
        self.receives_fit()?;
        let mut others = self.roster.others.values();
        let partner = others.find(|other| other.is_strict() && other.id != self.id);
        if let Some(id) = partner.map(|other| other.id) {
            self.reads_fit(id)?;
        }
        say("settled");
        self.phase = Phase::Settled;
        Ok(())
    }

    /// As many receives as the depth says can be posted, and canceled.
    fn receives_fit(&mut self) -> Outcome {
        let into = self.inboxes.slice(0, 8);
        let recv = Recv::new(Pattern::tagged(u64::MAX), into);
        let ops: Result<Vec<OpId>, _> =
            (0..self.attr.recv_depth).map(|_| self.endpoint.post_recv(&recv)).collect();
        let ops = ops.map_err(|error| format!("as many receives as fit: {error}"))?;
        let more = self.endpoint.post_recv(&recv);
        if !matches!(more, Err(PostError::Again(Full::Depth))) {
            return Err(format!("no more receives than fit: {more:?}"));
        }
        for op in &ops {
            if !self.endpoint.cancel(*op).map_err(text)? {
                return Err("a receive without a message to be canceled".to_owned());
            }
        }
        for _ in ops {
            self.endpoint.wait_one(Some(LIMIT)).map_err(text)?;
        }
        self.nothing_more()
    }

    /// The same of reads.
    fn reads_fit(&mut self, id: u32) -> Outcome {
        let (me, other) = (self.id, self.roster.get(id));
        let (peer, from) = (other.peer, other.place.memory.at(place_at(me, 0) as u64));
        let read = Op::read(self.one_sided.slice(0, 8), from);
        for _ in 0..self.attr.send_depth {
            let posted = self.endpoint.post(peer, &read);
            posted.map_err(|error| format!("as many reads as fit: {error}"))?;
        }
        let more = self.endpoint.post(peer, &read);
        if !matches!(more, Err(PostError::Again(Full::Depth))) {
            return Err(format!("no more reads than fit: {more:?}"));
        }
        for _ in 0..self.attr.send_depth {
            let done = self.endpoint.wait_one(Some(LIMIT)).map_err(text)?;
            if !done.is_ok() {
                return Err(format!("a read of {id} to end well: {done:?}"));
            }
        }
        self.nothing_more()
    }

    fn nothing_more(&self) -> Outcome {
        std::thread::sleep(Duration::from_millis(20));
        match self.endpoint.poll_one().map_err(text)? {
            Some(done) => Err(format!("no more completions, not {done:?}")),
            None => Ok(()),
        }
    }
}
