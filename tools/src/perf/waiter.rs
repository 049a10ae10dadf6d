//! Taking completions: by polling or asleep, with an end to patience.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fabric::{Completion, CompletionQueue, Error, Status};

use super::plan::Wait;
use super::problem::{GONE, Outcome, Problem};
use super::threads::GIVEN_UP;

/// Completions that are taken at a time.
pub(crate) const TAKE: usize = 32;
/// After so many polls in a row that found nothing, it looks at the clock, and lets others run.
const EMPTY_POLLS: u32 = 1024;

pub(crate) struct Waiter<'a> {
    queue: &'a CompletionQueue,
    wait: Wait,
    /// None: as long as the connection lives.
    patience: Option<Duration>,
    failed: &'a AtomicBool,
    empty: u32,
    quiet_since: Option<Instant>,
    taken: [Completion; TAKE],
}

impl<'a> Waiter<'a> {
    /// `failed` says that another thread has given up, and this one need not go on.
    pub(crate) fn new(
        queue: &'a CompletionQueue,
        wait: Wait,
        patience: Option<Duration>,
        failed: &'a AtomicBool,
    ) -> Self {
        let taken = [Completion::default(); TAKE];
        Waiter { queue, wait, patience, failed, empty: 0, quiet_since: None, taken }
    }

    /// What has completed; all of it well. When polling it may be nothing.
    #[inline]
    pub(crate) fn take(&mut self) -> Outcome<&[Completion]> {
        let got = match self.wait {
            Wait::Poll => self.queue.poll(&mut self.taken)?,
            Wait::Sleep => self.sleep()?,
        };
        if got == 0 {
            self.empty += 1;
            if self.empty == EMPTY_POLLS {
                self.idle()?;
            }
            return Ok(&[]);
        }
        (self.empty, self.quiet_since) = (0, None);
        let taken = &self.taken[..got];
        match taken.iter().find(|one| !one.is_ok()) {
            None => Ok(taken),
            Some(bad) => Err(failure(bad).into()),
        }
    }

    fn sleep(&mut self) -> Outcome<usize> {
        match self.queue.wait(&mut self.taken, self.patience) {
            Err(Error::TimedOut(_)) => Err(self.impatient()),
            got => Ok(got?),
        }
    }

    #[cold]
    fn idle(&mut self) -> Outcome {
        self.empty = 0;
        if self.failed.load(Ordering::Relaxed) {
            return Err(GIVEN_UP.into());
        }
        let since = *self.quiet_since.get_or_insert_with(Instant::now);
        if self.patience.is_some_and(|patience| since.elapsed() > patience) {
            return Err(self.impatient());
        }
        std::thread::yield_now(); // the other end may need this very processor
        Ok(())
    }

    fn impatient(&self) -> Problem {
        let patience = self.patience.unwrap_or_default();
        format!("nothing has completed for {patience:?} (--timeout): the other end hangs").into()
    }
}

fn failure(bad: &Completion) -> String {
    let what = format!("{:?}", bad.kind).to_lowercase();
    match bad.status {
        Status::Canceled => GONE.to_owned(),
        Status::PeerLost => "the other end is gone, or the way to it is".to_owned(),
        status => format!("a {what} failed: {status} (provider's code {})", bad.provider_code),
    }
}
