//! Completions of writes to memory here, where they are taken apart from all others.

use fabric_core::{Error, Result};

use super::completion::Completion;
use super::core::Core;
use super::handle::Endpoint;

impl Endpoint {
    /// Takes completions of writes with immediate data to memory here, where [`RdmAttr::writes_apart`](crate::RdmAttr::writes_apart)
    /// has them taken apart; at most as many as `out` holds, and says how many. It makes no progress. Until a write is taken it
    /// has its place among the messages that wait.
    ///
    /// # Errors
    /// `InvalidState` in a forked child, and where they are not taken apart.
    pub fn take_written(&self, out: &mut [Completion]) -> Result<usize> {
        const OP: &str = "take_written";
        self.check(OP)?;
        self.driver.call_if(|core| match core.shared.attr.writes_apart {
            true => {
                let (taken, frees) = core.take_written(out);
                (Ok(taken), frees)
            }
            false => {
                let why = "a poll takes them: `writes_apart` is not set";
                (Err(Error::state(OP, why)), false)
            }
        })
    }

    /// Whether [`take_written`](Endpoint::take_written) has something to give, as far as the last call or poll knew.
    pub fn has_written(&self) -> bool {
        self.driver.has_written()
    }
}

impl Core {
    /// How many were taken, and whether that freed places.
    fn take_written(&mut self, out: &mut [Completion]) -> (usize, bool) {
        let (taken, frees) = self.shared.take_written(out);
        if frees {
            // Places that the peers are to know of.
            self.pump();
        }
        (taken, frees)
    }
}
