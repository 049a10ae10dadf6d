//! What comes of a program: completions and events, waited for, handed to the model, until everything has come to rest.

use std::time::Instant;

use fabric::{Completion, Event, OpKind};

use super::Polling;
use crate::check::{Failed, Outcome, show};
use crate::random::executor::Executor;
use crate::random::model::CompletionOf;
use crate::random::program::{Local, MemorySpec, OpSpec, Part, What};

impl Polling<'_> {
    /// Takes completions, at most so many, and the events that are there. Says whether there were any.
    pub(super) fn poll(&mut self, end: usize, max: usize) -> Result<bool, Failed> {
        if end >= self.ends.len() {
            return Ok(false);
        }
        let domain = self.run.domain_of(end);
        let mut taken = [Completion::default(); 16];
        let max = max.min(taken.len());
        let count = self.queues[domain].poll(&mut taken[..max])?;
        for done in &taken[..count] {
            self.take(domain, done)?;
        }
        if count == 0 && max > 0 {
            self.run.model.heard_all(domain)?;
        }
        let mut any = count > 0;
        while let Some(event) = self.run.bench.domains[domain].events().poll() {
            any = true;
            self.event(domain, &event)?;
        }
        Ok(any)
    }

    fn take(&mut self, domain: usize, done: &Completion) -> Outcome {
        let Some(&name) = self.names.get(&(domain, done.endpoint)) else {
            return Err(Failed::new("a completion of an endpoint that was made", show(done)));
        };
        let immediate =
            done.immediate.map_or(String::new(), |value| format!(" immediate {value:#x}"));
        let Completion { context, kind, status, len, .. } = done;
        self.run.note(format!("{name}: {kind:?} {status:?} {len} B{immediate}, context {context}"));
        self.run.completed(done, name)?;
        // At once: a moment later what was promised too early may be there.
        if done.is_ok() && done.kind == OpKind::Recv {
            self.run.memories.look_at_domain(&mut self.run.model, domain)?;
        }
        Ok(())
    }

    fn event(&mut self, domain: usize, event: &Event) -> Outcome {
        let Event::Disconnected { endpoint, reason } = event else {
            // A listener of this program that is gone has no more requests.
            return Err(Failed::new("no event but Disconnected", show(event)));
        };
        let Some(&CompletionOf::End(end)) = self.names.get(&(domain, *endpoint)) else {
            return Err(Failed::new("an event of an endpoint that is there", show(event)));
        };
        self.run.note(format!("e{end}: Disconnected({reason:?})"));
        self.run.model.event(end, *reason)
    }

    /// Everything that can end ends, everything that can be known is known, and every byte is looked at.
    pub(super) fn drain_all(&mut self) -> Outcome {
        for queue in 0..self.shared.len() {
            self.rest_shared(queue)?;
        }
        for end in 0..self.ends.len() {
            while self.ends[end ^ 1].is_some()
                && !self.run.model.is_over(end)
                && self.run.model.wants_receives(end)
            {
                self.wait(end ^ 1)?;
                self.receive(end ^ 1, &[self.largest(self.run.domain_of(end ^ 1))])?;
            }
            self.wait(end)?;
        }
        self.free_quiet()?;
        for end in 0..self.ends.len() {
            self.settle(end)?;
        }
        for end in 0..self.ends.len() {
            self.wait_for_end(end)?;
        }
        self.run.memories.look_at_all(&mut self.run.model)?;
        self.probe_all()?;
        for end in 0..self.ends.len() {
            self.wait_for_end(end)?;
        }
        self.free_all()?;
        self.run.memories.look_at_all(&mut self.run.model)
    }

    /// Posts receives to a shared queue until no message waits.
    fn rest_shared(&mut self, queue: usize) -> Outcome {
        let domain = self.run.program.shared[queue].domain;
        let Some(end) = (0..self.ends.len()).find(|end| self.run.domain_of(*end) == domain) else {
            return Ok(());
        };
        loop {
            self.wait_until(end, &|model| {
                (!model.is_at_rest(queue)).then(|| format!("the messages that come to s{queue}"))
            })?;
            if !self.run.model.wants_shared(queue) {
                return Ok(());
            }
            self.share(queue, &[self.largest(domain)])?;
        }
    }

    /// Posts a receive for the next message of an end; says whether that is possible.
    fn post_largest(&mut self, end: usize) -> Result<bool, Failed> {
        let largest = self.largest(self.run.domain_of(end ^ 1));
        match self.run.model.shared_by(end ^ 1) {
            None => self.receive(end ^ 1, &[largest])?,
            Some(queue) if self.run.model.has_place(queue) => self.share(queue, &[largest])?,
            Some(_) => return Ok(false),
        }
        Ok(true)
    }

    /// All of the largest memory of a domain: room for whatever comes.
    fn largest(&self, domain: usize) -> Vec<Part> {
        let largest = self.run.program.memories_of(domain).max_by_key(|memory| memory.1.len);
        let part = |(memory, spec): (usize, &MemorySpec)| Part {
            region: self.run.memories.whole(memory),
            at: 0,
            len: spec.len,
        };
        largest.map(part).into_iter().collect()
    }

    /// A fenced empty message: when it is received, all before it is done, for everybody to see.
    fn settle(&mut self, end: usize) -> Outcome {
        let deadline = Instant::now() + self.run.bench.timeout();
        let message = OpSpec::plain(What::Send, Local::Parts(Vec::new()));
        let message = OpSpec { fence: true, ..message };
        while self.ends[end].is_some() && !self.run.model.is_over(end) {
            self.wait(end ^ 1)?;
            if Instant::now() > deadline {
                let dump = self.dump();
                return Err(Failed::new("room for one operation, in time", "Again").with_dump(dump));
            }
            // Earlier messages may still wait, where the connection seemed to be over before.
            if !self.run.model.has_receive(end) {
                if !self.post_largest(end)? {
                    return Ok(());
                }
                continue;
            }
            let before = self.run.model.owed(end);
            self.post(end, std::slice::from_ref(&message))?;
            if self.run.model.owed(end) > before {
                self.wait(end ^ 1)?;
                return self.wait(end);
            }
            // Unsignaled operations may fill the queue until the library knows that they are done.
            self.poll(end, usize::MAX)?;
        }
        Ok(())
    }

    /// Waits for whatever the end of a connection still brings to this end.
    fn wait_for_end(&mut self, end: usize) -> Outcome {
        self.wait_until(end, &|model| {
            model.owes_event(end).then(|| format!("the Disconnected of e{end}"))
        })?;
        self.wait(end)
    }

    pub(super) fn drop_all(&mut self) -> Outcome {
        for end in 0..self.ends.len() {
            if let Some(endpoint) = self.ends[end].take() {
                drop(endpoint);
                self.run.model.dropped(end);
            }
            self.wait(end)?;
            self.wait_for_end(end ^ 1)?;
        }
        for queue in 0..self.shared.len() {
            if let Some(receives) = self.shared[queue].take() {
                drop(receives);
                self.run.model.shared_dropped(queue);
            }
        }
        for end in 0..self.ends.len() {
            // What is dropped has all its completions there.
            while self.poll(end, usize::MAX)? {}
        }
        self.run.finished()?;
        for (domain, queue) in self.queues.iter().enumerate() {
            if queue.room() != queue.capacity() {
                let expected =
                    format!("room for {} completions in domain {domain}", queue.capacity());
                return Err(Failed::new(expected, format!("{}", queue.room())));
            }
        }
        self.run.close_memories()
    }
}
