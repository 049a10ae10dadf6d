//! The end of a program: what is still there is received, and nothing is left outstanding.

use std::time::{Duration, Instant};

use fabric_rdm::matching::Pattern;

use crate::executor::{Executor, Outcome};
use crate::program::{From, Step};
use crate::record::{Message, Record};

/// Far more than it takes anywhere.
const BOUND: Duration = Duration::from_secs(20);
/// Messages to a peer that may be lost, at most, so that they leave others their turns.
const POKES: usize = 8;
const ROOM: usize = 100_000;

impl Executor<'_> {
    /// Receives all that is there and ends all that is outstanding.
    pub(crate) fn finish(&mut self) -> Outcome {
        let until = Instant::now() + BOUND;
        let patterns = [Pattern::untagged(), Pattern::tagged(0).ignoring(!0)];
        let mut open: Vec<_> = vec![[None; 2]; self.ends.len()];
        self.until(
            until,
            |record| record.is_delivered(),
            |executor, at| {
                executor.now += 1;
                executor.revive(at)?;
                executor.poke(at)?;
                while executor.receive_kept(at, ROOM)? {}
                for (pattern, open) in patterns.into_iter().zip(&mut open[at]) {
                    let receives = &executor.record.receives;
                    if open.is_none_or(|open: usize| receives[open].ended.is_some()) {
                        *open = Some(receives.len());
                        executor.now += 1;
                        executor.receive(at, pattern, None, ROOM, None)?;
                    }
                }
                Ok(())
            },
        )?;
        for (at, op, which) in self.record.ops.clone() {
            self.now += 1;
            if self.record.is_open(which) {
                self.cancel(at, op, which)?;
            }
        }
        self.until(
            until,
            |record| record.receives.iter().all(|one| one.ended.is_some()),
            |_, _| Ok(()),
        )?;
        // What comes twice, or comes too late.
        for at in 0..self.ends.len() {
            self.now += 1;
            self.poll(at)?;
        }
        Ok(())
    }

    /// One that was removed, while no connection to it was there, is found lost by the next post only.
    fn poke(&mut self, at: usize) -> Outcome {
        for to in 0..self.ends.len() {
            let Record { messages, pokes, .. } = &self.record;
            let is_open = |one: &Message| (one.from, one.to) == (at, to) && one.ended.is_none();
            let pokes: Vec<_> = pokes.iter().map(|poke| &messages[*poke]).collect();
            let count = pokes.iter().filter(|one| (one.from, one.to) == (at, to)).count();
            let is_poked = count >= POKES || pokes.into_iter().any(is_open);
            if self.record.is_lossy(at, to) && !is_poked && messages.iter().any(is_open) {
                let (number, from) = (messages.len(), From::Inject);
                let (class, unique, len, matched) = (None, false, 0, false);
                self.send(Step::Send { at, to, class, unique, len, from, matched })?;
                if self.record.messages.len() > number {
                    self.record.pokes.push(number);
                }
            }
        }
        Ok(())
    }

    fn until(
        &mut self,
        until: Instant,
        is_done: impl Fn(&Record) -> bool,
        mut turn: impl FnMut(&mut Self, usize) -> Outcome,
    ) -> Outcome {
        loop {
            let mut taken = 0;
            for at in 0..self.ends.len() {
                turn(self, at)?;
                self.now += 1;
                taken += self.poll(at)?;
            }
            if is_done(&self.record) {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(self.outstanding());
            }
            if taken == 0 {
                self.now += 1;
                self.wait(self.now as usize % self.ends.len())?;
            }
        }
    }

    /// What has not ended, and the state of the endpoints.
    fn outstanding(&self) -> String {
        let Record { messages, receives, accesses, .. } = &self.record;
        let mut text = format!("everything ends within {BOUND:?}; there are still\n");
        for (number, one) in messages.iter().enumerate() {
            if one.ended.is_none() || self.record.has_to_arrive(one) && one.met.is_none() {
                text += &format!("  {number}: {one:?}\n");
            }
        }
        for (number, one) in receives.iter().enumerate().filter(|(_, one)| one.ended.is_none()) {
            let (at, room, canceled) = (one.at, one.room, one.canceled);
            text += &format!("  receive {number} of {at}, {room} bytes, canceled {canceled:?}\n");
        }
        for one in accesses.iter().filter(|one| one.ended.is_none()) {
            text += &format!("  {:?} of {} to {}\n", one.access, one.at, one.to);
        }
        for (at, end) in self.ends.iter().enumerate() {
            text += &format!(
                "endpoint {at}, {}: {}",
                end.endpoint.address().identity(),
                end.endpoint.dump()
            );
        }
        text
    }
}
