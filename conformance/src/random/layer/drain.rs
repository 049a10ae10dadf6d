//! What comes of a program: ends of operations, messages, ends of connections, waited for, handed to the model, until
//! everything has come to rest.

use std::collections::VecDeque;
use std::task::Poll;
use std::time::Instant;

use fabric::{Completion, OpKind, Status};
use fabric_async::{Connection, Error, Node};

use super::{Flying, Landed, Layered, poll};
use crate::check::{Failed, Outcome};
use crate::random::executor::Executor;
use crate::random::model::CompletionOf;
use crate::random::program::{Local, OpSpec, What};

impl Layered<'_> {
    /// Takes what has come to one end: the end of its next operation, a message, the connection's end. Says whether
    /// there was anything.
    pub(super) fn take(&mut self, end: usize) -> Result<bool, Failed> {
        if self.sides.get(end).is_none_or(|side| side.conn.is_none()) {
            return Ok(false);
        }
        Ok(self.take_sent(end)?
            || self.take_arrived(end)?
            || self.cancel_receives(end)?
            || self.take_end(end)?)
    }

    fn take_sent(&mut self, end: usize) -> Result<bool, Failed> {
        let Some(first) = self.sides[end].flying.front_mut() else { return Ok(false) };
        let ended = match first.ended.take() {
            Some(ended) => ended,
            None => match poll(&mut first.flight) {
                Poll::Ready(ended) => ended,
                Poll::Pending => return Ok(false),
            },
        };
        let Some(Flying { context, spec, .. }) = self.sides[end].flying.pop_front() else {
            return Ok(false);
        };
        if ended.is_err() {
            self.take_all(end)?;
        }
        let status = match ended {
            Ok(bytes) => {
                let mut at = 0;
                for part in spec.parts() {
                    self.run.memories.put(part, &bytes[at..])?;
                    at += part.len;
                }
                Status::Ok
            }
            Err(Error::RemoteAccess) => Status::RemoteAccess,
            Err(Error::Failed(status)) => status,
            // The layer says why the connection ended, not which of the two it was.
            Err(Error::Disconnected(_)) => self.run.model.status_of_end(context),
            Err(error) => return Err(Failed::new("a reason that fits", error.to_string())),
        };
        let len = if status == Status::Ok { spec.len() } else { 0 };
        self.completed(end, context, spec.kind(), status, len, None)?;
        Ok(true)
    }

    fn completed(
        &mut self,
        end: usize,
        context: u64,
        kind: OpKind,
        status: Status,
        len: usize,
        immediate: Option<u32>,
    ) -> Outcome {
        self.run.note(format!("e{end}: {kind:?} {status:?} {len} B, context {context}"));
        let mut done = Completion::default();
        (done.context, done.kind, done.status) = (context, kind, status);
        (done.len, done.immediate) = (len, immediate);
        self.run.completed(&done, CompletionOf::End(end))
    }

    /// The next of what has arrived, in the order in which it was sent.
    fn land(&mut self, end: usize) -> Result<Option<Landed>, Failed> {
        let side = &mut self.sides[end];
        let place = side.receives.front().map(|receive| receive.1);
        let (Some(conn), false) = (&side.conn, side.over) else { return Ok(None) };
        let arrived = match self.run.model.arrival(end) {
            Some(OpKind::RecvWrite) => poll(conn.notified()).map_ok(|notified| {
                ((OpKind::RecvWrite, notified.len, Some(notified.immediate)), Vec::new())
            }),
            _ => poll(conn.recv()).map_ok(|message| {
                ((OpKind::Recv, message.len(), message.immediate), message.to_vec())
            }),
        };
        match arrived {
            Poll::Pending => Ok(None),
            Poll::Ready(Ok((landed, bytes))) => {
                place.map_or(Ok(()), |place| self.run.memories.put(&place, &bytes))?;
                Ok(Some(landed))
            }
            Poll::Ready(Err(Error::Disconnected(_))) => {
                side.over = true;
                Ok(None)
            }
            Poll::Ready(Err(error)) => {
                Err(Failed::new("a message, or a reason that fits", error.to_string()))
            }
        }
    }

    /// Takes a message or a notification.
    fn take_arrived(&mut self, end: usize) -> Result<bool, Failed> {
        let Some((kind, len, immediate)) = self.land(end)? else { return Ok(false) };
        let Some((context, place)) = self.sides[end].receives.pop_front() else {
            return Err(Failed::new("a message for each receive, at most", "one more"));
        };
        self.completed(end, context, kind, Status::Ok, len, immediate)?;
        // The layer posted the next receive before it handed this message over: what waited for that may be there.
        if !self.run.model.is_dead(end) {
            self.expect(end, place)?;
        }
        // At once: a moment later what was promised too early may be there.
        let domain = self.run.domain_of(end);
        let inboxes = self.run.program.memories.len() - self.sides.len();
        for (memory, _) in self.run.program.memories_of(domain).filter(|memory| memory.0 < inboxes)
        {
            self.run.memories.look(&mut self.run.model, memory)?;
        }
        Ok(true)
    }

    /// Takes all that will ever arrive on a connection that has ended: before this side is known to have noticed the end.
    pub(super) fn take_all(&mut self, end: usize) -> Outcome {
        let deadline = Instant::now() + self.run.bench.timeout();
        while !self.sides[end].over {
            if !self.take_arrived(end)? && Instant::now() > deadline {
                return Err(Failed::new(format!("the end of what e{end} receives"), "none came"));
            }
        }
        Ok(())
    }

    /// Ends the receives that are left when nothing more arrives.
    fn cancel_receives(&mut self, end: usize) -> Result<bool, Failed> {
        let side = &mut self.sides[end];
        let canceled = if side.over { std::mem::take(&mut side.receives) } else { VecDeque::new() };
        for (context, _) in &canceled {
            self.completed(end, *context, OpKind::Recv, Status::Canceled, 0, None)?;
        }
        Ok(!canceled.is_empty())
    }

    fn take_end(&mut self, end: usize) -> Result<bool, Failed> {
        let side = &mut self.sides[end];
        let Some(reason) =
            side.conn.as_ref().and_then(Connection::end).filter(|_| !side.end_reported)
        else {
            return Ok(false);
        };
        side.end_reported = true;
        self.take_all(end)?;
        self.run.note(format!("e{end}: ended, {reason:?}"));
        self.run.model.event(end, reason)?;
        Ok(true)
    }

    fn wait_for_all(&mut self) -> Outcome {
        let ends = self.sides.len();
        self.wait_until(0, &|model| {
            let busy = |&end: &usize| {
                let waits = model.wants_receives(end) && !model.is_over(end);
                model.owed(end) > 0 || model.owes_event(end) || waits
            };
            (0..ends).find(busy).map(|end| format!("e{end} to come to rest"))
        })
    }

    /// Everything that can end ends, and every byte is looked at: behind a fenced empty message all is there.
    pub(super) fn drain_all(&mut self) -> Outcome {
        self.wait_for_all()?;
        let message = OpSpec::plain(What::Send, Local::Parts(Vec::new()));
        for end in 0..self.sides.len() {
            if self.sides[end].conn.is_some() && !self.run.model.is_over(end) {
                self.post(end, &OpSpec { fence: true, ..message.clone() })?;
                self.wait_for_all()?;
            }
        }
        self.run.memories.look_at_all(&mut self.run.model)
    }

    pub(super) fn close_all(&mut self) -> Outcome {
        for end in (0..self.sides.len()).step_by(2) {
            self.close_end(end)?;
        }
        self.wait_for_all()?;
        self.run.finished()?;
        self.held.clear();
        self.sides.iter_mut().for_each(|side| side.conn = None);
        let nodes = self.nodes;
        self.wait_until(0, &|_| {
            let left = |node: &&Node| node.operations() > 0 || node.pool().metrics().in_use > 0;
            nodes.iter().find(left).map(|node| format!("all buffers to be back in {node:?}"))
        })?;
        self.run.close_memories()
    }
}
