//! Receives without completions: what they took is seen in their memory.

use super::RdmExecutor;
use super::posts::payload;
use crate::check::{Failed, Outcome};
use crate::random::rdm::program::NUMBER;

impl RdmExecutor<'_> {
    /// Looks into the memory of all receives without completions.
    pub(super) fn reveal_all(&mut self) -> Outcome {
        let is_silent = |number: &usize| self.model.receives[*number].silent;
        let numbers: Vec<_> = (0..self.model.receives.len()).filter(is_silent).collect();
        numbers.into_iter().try_for_each(|number| self.reveal(number))
    }

    /// Notes the messages that a receive without completions has, as far as they are whole.
    pub(super) fn reveal(&mut self, number: usize) -> Outcome {
        while let Some(message) = self.next_in(number)? {
            let at = self.model.receives[number].at;
            self.note(format!("e{at}: receive {number} has message {message}"));
            self.members[at].received.0 += 1;
            let seen = self.model.found(number, message)?;
            self.look(at, number, &seen)?;
        }
        Ok(())
    }

    /// The next message in the memory of a receive, if all of it is there.
    fn next_in(&self, number: usize) -> Result<Option<usize>, Failed> {
        let receive = &self.model.receives[number];
        let from = receive.next_offset();
        let Some(buffer) = self.buffers.get(&(true, number)).filter(|_| !receive.ended) else {
            return Ok(None);
        };
        if from + NUMBER > receive.room {
            return Ok(None);
        }
        let Ok(first) = buffer.bytes(from..from + NUMBER)?.try_into() else { return Ok(None) };
        let message = u64::from_le_bytes(first) as usize;
        let Some(sent) = self.model.messages.get(message) else { return Ok(None) };
        let to = from + sent.spec.len;
        // One that is too long has a completion.
        let is_whole =
            to <= receive.room && buffer.bytes(from..to)? == payload(message, sent.spec.len);
        Ok(is_whole.then_some(message))
    }
}
