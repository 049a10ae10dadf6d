//! Time and resources: each operation ends, and a member holds no more than it may.

use std::time::{Duration, Instant};

use crate::member::Member;
use crate::{Outcome, text};

/// An operation that has a reason to end does so within this, however slow the machine is: connecting takes at most 15 s.
const LIMIT: Duration = Duration::from_secs(90);
/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(500);

/// Memory of a member, in bytes: all of it is about 30 MiB.
const MAX_RESIDENT: usize = 96 << 20;
/// Descriptors that each connection may have, and others.
const PER_CONNECTION: usize = 6;
const OTHERS: usize = 60;

#[derive(Default)]
pub(crate) struct Bounds {
    max_open: u32,
    last: Option<Instant>,
    /// The highest that were seen.
    pub(crate) resident: usize,
    pub(crate) descriptors: usize,
}

impl Bounds {
    pub(crate) fn new(max_open: u32) -> Self {
        Bounds { max_open, ..Bounds::default() }
    }

    pub(crate) fn check(&mut self, member: &mut Member, now: Instant) -> Outcome {
        let open = member.endpoint.connections().map_err(text)?;
        if open > self.max_open {
            return Err(format!("{} connections, not {open}", self.max_open));
        }
        if self.last.is_some_and(|last| now < last + INTERVAL) {
            return Ok(());
        }
        self.last = Some(now);
        member.roster.check()?;
        let is_late = |since: Option<Instant>| since.is_some_and(|since| since + LIMIT < now);
        if let Some(late) = member.posted.values().find(|posted| is_late(posted.since)) {
            return Err(format!(
                "an end of {late:?} after {:?}",
                late.since.map(|at| at.elapsed())
            ));
        }
        while let Some(oldest) = member.silent.first_entry()
            && is_late(oldest.get().since)
        {
            oldest.remove();
        }
        self.resident = self.resident.max(resident()?);
        self.descriptors = self.descriptors.max(descriptors()?);
        let max_descriptors = OTHERS + PER_CONNECTION * self.max_open as usize;
        if self.resident > MAX_RESIDENT || self.descriptors > max_descriptors {
            return Err(format!(
                "at most {MAX_RESIDENT} bytes and {max_descriptors} descriptors, not {} and {}",
                self.resident, self.descriptors
            ));
        }
        Ok(())
    }
}

fn resident() -> Outcome<usize> {
    let text = std::fs::read_to_string("/proc/self/statm").map_err(text)?;
    let pages: Option<usize> = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok(pages.ok_or("pages in /proc/self/statm")? * rustix::param::page_size())
}

fn descriptors() -> Outcome<usize> {
    Ok(std::fs::read_dir("/proc/self/fd").map_err(text)?.count())
}
