//! Messages that came: each once, whole, and in the order of its pair.

use std::collections::VecDeque;

use fabric_rdm::matching::{Envelope, Pattern};

use crate::Outcome;
use crate::content::Message;

/// More receives than can be outstanding.
const RECENT: usize = 256;

/// A message and the receive that took it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Met {
    pub(crate) receive: u64,
    pub(crate) pattern: Pattern,
    pub(crate) envelope: Envelope,
    pub(crate) number: u32,
}

impl Met {
    /// Of two messages and the receives that took them: the older receive would have taken the older message.
    fn is_overtaken_by(&self, other: &Met) -> bool {
        self.receive < other.receive
            && other.number < self.number
            && self.pattern.matches(&other.envelope)
    }
}

/// What came from one member.
#[derive(Default)]
pub(crate) struct Inbox {
    seen: Vec<u64>,
    pub(crate) count: u64,
    recent: VecDeque<Met>,
}

impl Inbox {
    pub(crate) fn add(&mut self, message: &Message, met: Met) -> Outcome {
        let (word, bit) = (message.number as usize / 64, 1 << (message.number % 64));
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        if self.seen[word] & bit != 0 {
            return Err(format!("{message:?} once"));
        }
        self.seen[word] |= bit;
        self.count += 1;
        for other in &self.recent {
            if other.is_overtaken_by(&met) || met.is_overtaken_by(other) {
                return Err(format!("the order of the pair, not {other:?} and {met:?}"));
            }
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(met);
        Ok(())
    }
}
