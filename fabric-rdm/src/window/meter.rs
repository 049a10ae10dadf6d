//! The sender's side of one resource: what it was granted, and what of that it has used.

use fabric_core::{likely, unlikely};

/// What a receiver says of one resource. Numbers count from the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// As much as the sender may have used by now.
    pub granted: u64,
    /// As much of what it used as is free again.
    pub freed: u64,
    /// Others need it: give back what is not used.
    pub recall: bool,
}

/// What a sender says of one resource, behind the messages that it sent before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notice {
    /// So much is given back: it counts as used, and free again.
    pub unused: u64,
    /// More is wanted.
    pub wants: bool,
}

impl Notice {
    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        likely((self.unused == 0) & !self.wants)
    }
}

/// A peer that breaks the rules of flow control: the connection to it has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// It used more than it was granted.
    #[error("the peer sends more than it was granted")]
    Exceeded,
    /// It granted more than its window, took a grant back, or freed what was not used.
    #[error("the peer's grant goes back, or beyond its window, or frees what was not used")]
    Grant,
}

/// One resource of a sender.
#[derive(Debug)]
pub(super) struct Meter {
    /// As much as may be used and not freed.
    window: u64,
    used: u64,
    granted: u64,
    freed: u64,
    /// Given back, and not said yet.
    unused: u64,
    /// More was wanted than there was.
    wants: bool,
    /// That was said, and no grant has come since.
    asked: bool,
}

impl Meter {
    pub(super) fn new(window: u64) -> Self {
        let (used, granted, freed, unused) = (0, 0, 0, 0);
        Meter { window, used, granted, freed, unused, wants: false, asked: false }
    }

    /// Uses so much, if it may. Else more is asked for.
    pub(super) fn take(&mut self, amount: u64) -> bool {
        let may = self.has(amount);
        if likely(may) {
            self.used += amount;
        } else {
            self.wants = true;
        }
        may
    }

    /// So much was taken, and is not used after all.
    pub(super) fn give_back(&mut self, amount: u64) {
        // A receiver that freed it before it was sent has it that way.
        self.used = self.used.saturating_sub(amount).max(self.freed);
    }

    /// Asks for more where all is used, before more is needed.
    pub(super) fn ask_ahead(&mut self) {
        self.wants |= unlikely(!self.has(1)) && !self.is_exhausted();
    }

    pub(super) fn has(&self, amount: u64) -> bool {
        self.left() >= amount
    }

    pub(super) fn left(&self) -> u64 {
        self.granted - self.used
    }

    /// Whether all of the window is used: no receiver could grant more.
    pub(super) fn is_exhausted(&self) -> bool {
        self.used - self.freed >= self.window
    }

    /// What the receiver says. Whether there is more than before.
    pub(super) fn on_allowance(&mut self, from: Allowance) -> Result<bool, WindowError> {
        let Allowance { granted, freed, recall } = from;
        let is_fair = granted >= self.granted
            && freed >= self.freed
            && freed <= self.used - self.unused
            && granted - freed <= self.window;
        if !is_fair {
            return Err(WindowError::Grant);
        }
        let is_more = granted > self.granted;
        (self.granted, self.freed) = (granted, freed);
        // What was wanted has come, or has to be asked for again: the receiver forgot it when it asked for what is not used.
        self.asked &= !(is_more || recall);
        self.wants &= !is_more;
        if recall {
            self.unused += self.granted - self.used;
            self.used = self.granted;
        }
        Ok(is_more && !recall)
    }

    /// The receiver has freed so much, and grants nothing: the last that it says before a connection is parked.
    pub(super) fn on_freed(&mut self, freed: u64) -> Result<(), WindowError> {
        if freed < self.freed || freed > self.used.saturating_sub(self.unused) {
            return Err(WindowError::Grant);
        }
        self.freed = freed;
        Ok(())
    }

    /// What is used and not freed, as far as is known.
    pub(super) fn in_use(&self) -> u64 {
        // What was taken back may have been freed before.
        self.used.saturating_sub(self.unused + self.freed)
    }

    /// As much as may be used and not freed.
    pub(super) fn window(&self) -> u64 {
        self.window
    }

    /// The connection is parked, with nothing under way on it: what is not used is not there any more, as the receiver knows.
    pub(super) fn park(&mut self) {
        // What was given back and not said is neither used nor there.
        self.used = self.used.saturating_sub(std::mem::take(&mut self.unused)).max(self.freed);
        self.granted = self.used;
        (self.wants, self.asked) = (false, false);
    }

    /// What is to be said to the receiver now.
    pub(super) fn notice(&self) -> Notice {
        Notice { unused: self.unused, wants: self.wants && !self.asked }
    }

    /// The same, which is as good as said: nothing is said twice.
    pub(super) fn take_notice(&mut self) -> Notice {
        let notice = self.notice();
        (self.unused, self.wants) = (0, false);
        self.asked |= notice.wants;
        notice
    }
}
