//! What the server does for its clients: requests against jobs, and what waits for what.

use std::time::{Duration, Instant};

use serde_bytes::ByteBuf;

use super::connection::Place;
use super::options::ServerOptions;
use super::waits::{Awaited, Wait, Waits};
use crate::error::{ExchangeError, MissingRanks, Result};
use crate::job::{MAX_KEY_BYTES, Membership, check_name, gather_key};
use crate::jobs::Jobs;
use crate::limits::{Deadline, Limits};
use crate::wire::{Ask, Request, Say};

/// What a store's key has more than a user's.
const KEY_PREFIX: usize = 1;

/// An answer, and to which connection's request.
pub(super) struct Reply {
    pub(super) connection: u64,
    pub(super) request: u32,
    pub(super) say: Say,
}

impl Wait {
    /// Its answer.
    fn reply(&self, say: Say) -> Reply {
        Reply { connection: self.connection, request: self.request, say }
    }
}

/// The jobs, and all that waits.
pub(super) struct Service {
    limits: Limits,
    jobs: Jobs,
    waits: Waits,
}

impl Service {
    pub(super) fn new(options: &ServerOptions) -> Self {
        let ServerOptions { limits, max_jobs, max_bytes, keep_time, .. } = *options;
        let jobs = Jobs::new(limits, max_jobs, max_bytes, keep_time);
        Service { limits, jobs, waits: Waits::default() }
    }

    /// A client joins.
    pub(super) fn join(&mut self, membership: Membership, now: Instant) -> Result<(Place, Say)> {
        let membership = membership.checked()?;
        let (job, rank) = (self.jobs.join(&membership, now)?, membership.rank());
        Ok((Place { job, rank }, Say::Joined(self.limits)))
    }

    /// Does what a member asks. The replies are to it and to others; none to it if it waits.
    pub(super) fn serve(&mut self, client: (u64, Place), request: Request) -> Vec<Reply> {
        let ((connection, place), number) = (client, request.number);
        let reply = |say| Reply { connection, request: number, say };
        match self.act(client, request) {
            Ok(Act::Kept(is_kept, key)) => {
                let mut replies = vec![reply(Say::Kept(is_kept))];
                let woken = self.waits.take_for(place.job, &Awaited::Blob(key));
                replies.append(&mut self.settle(woken));
                replies
            }
            Ok(Act::Say(say)) => vec![reply(say)],
            Ok(Act::Wait(wait)) => {
                let awaited = wait.awaited.clone();
                let mut replies = self.settle(vec![*wait]);
                // The last rank opens a barrier for all.
                let is_open =
                    |reply: &Reply| matches!(&reply.say, Say::Missing(ranks) if ranks.is_empty());
                if replies.first().is_some_and(is_open) {
                    let woken = self.waits.take_for(place.job, &awaited);
                    replies.append(&mut self.settle(woken));
                }
                replies
            }
            Err(error) => vec![reply(Say::Failed(error))],
        }
    }

    fn act(&mut self, (connection, place): (u64, Place), request: Request) -> Result<Act> {
        let Place { job, rank } = place;
        let number = request.number;
        let wait = |awaited, gather, ms| {
            let until = Deadline::after(Duration::from_millis(ms)).end();
            let wait = Wait { connection, request: number, job, rank, awaited, gather, until };
            Ok(Act::Wait(Box::new(wait)))
        };
        match request.ask {
            Ask::Join { .. } => Err(ExchangeError::AlreadyJoined { rank }),
            Ask::Put { key, blob } => {
                check_name("the key", &key, MAX_KEY_BYTES + KEY_PREFIX)?;
                Ok(Act::Kept(self.jobs.put(job, &key, &blob)?, key))
            }
            Ask::Get { key, wait_ms } => {
                check_name("the key", &key, MAX_KEY_BYTES + KEY_PREFIX)?;
                wait(Awaited::Blob(key), None, wait_ms)
            }
            Ask::Gather { round, first, wait_ms } => {
                let awaited = Awaited::Blob(gather_key(round, first));
                wait(awaited, Some((round, first)), wait_ms)
            }
            Ask::Barrier { name, round, wait_ms } => {
                check_name("the name of the barrier", &name, MAX_KEY_BYTES)?;
                self.jobs.arrive(job, (&name, round), rank)?;
                wait(Awaited::Gate { name, round }, None, wait_ms)
            }
            Ask::Forget { round } => {
                self.jobs.take_back(job, round, rank)?;
                Ok(Act::Say(Say::Forgotten))
            }
            Ask::Here | Ask::Leave { .. } => {
                let text = "a connection that begins or ends is the server's, not the job's";
                Err(ExchangeError::Invalid(text.to_owned()))
            }
        }
    }

    /// Answers what can be answered, or has no time left; the others wait on.
    fn settle(&mut self, waits: Vec<Wait>) -> Vec<Reply> {
        let (mut replies, now) = (Vec::new(), Instant::now());
        for wait in waits {
            match self.ready(&wait) {
                Some(say) => replies.push(wait.reply(say)),
                None if wait.until <= now => {
                    let late = self.late(&wait);
                    replies.push(wait.reply(late));
                }
                None => self.waits.add(wait),
            }
        }
        replies
    }

    /// The answer to what waited, if there is one.
    fn ready(&mut self, wait: &Wait) -> Option<Say> {
        self.look(wait).unwrap_or_else(|error| Some(Say::Failed(error)))
    }

    fn look(&mut self, wait: &Wait) -> Result<Option<Say>> {
        Ok(match (&wait.awaited, wait.gather) {
            (Awaited::Blob(_), Some((round, first))) => {
                let part = self.jobs.existing(wait.job)?.gather(round, first)?;
                let part: Vec<_> = part.into_iter().map(ByteBuf::from).collect();
                (!part.is_empty()).then_some(Say::Blobs(part))
            }
            (Awaited::Blob(key), None) => {
                let blob = self.jobs.existing(wait.job)?.look(key)?;
                blob.map(|blob| Say::Blob(ByteBuf::from(blob)))
            }
            (Awaited::Gate { name, round }, _) => {
                let is_open = self.jobs.pass(wait.job, (name, *round), wait.rank)?;
                is_open.then(|| Say::Missing(MissingRanks::default()))
            }
        })
    }

    /// A member leaves or is lost: what waited for it learns that.
    pub(super) fn depart(
        &mut self,
        connection: u64,
        place: Place,
        is_lost: bool,
        now: Instant,
    ) -> Vec<Reply> {
        self.waits.take_of_connection(connection);
        self.jobs.depart(place.job, place.rank, is_lost, now);
        // What waits for a blob may get it from any other rank.
        let woken = match is_lost {
            true => self.waits.take_of_job(place.job),
            false => self.waits.take_for_ranks(place.job),
        };
        self.settle(woken)
    }

    /// A member that asked for nothing yet does not know that it joined, and may join again.
    pub(super) fn withdraw(&mut self, place: Place, now: Instant) {
        self.jobs.withdraw(place.job, place.rank, now);
    }

    /// What names a member's job, for logs.
    pub(super) fn job_name(&self, place: Place) -> String {
        self.jobs.name(place.job)
    }

    /// Forgets jobs that had no member for long.
    pub(super) fn forget_idle(&mut self, now: Instant) {
        self.jobs.forget_idle(now);
    }

    /// Answers those whose time is over.
    pub(super) fn take_late(&mut self, now: Instant) -> Vec<Reply> {
        let late = self.waits.take_late(now);
        late.into_iter().map(|wait| wait.reply(self.late(&wait))).collect()
    }

    /// The answer to what did not come in time.
    fn late(&mut self, wait: &Wait) -> Say {
        match (&wait.awaited, self.jobs.board(wait.job)) {
            (Awaited::Gate { name, round }, Some(board)) => {
                Say::Missing(board.missing(name, *round))
            }
            _ => Say::Late,
        }
    }

    /// When there is something to do at the latest.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.waits.next()
    }

    /// How many requests of a connection wait.
    pub(super) fn waiting(&self, connection: u64) -> usize {
        self.waits.count(connection)
    }
}

/// What follows from a request.
enum Act {
    Say(Say),
    /// Whether a blob is kept, and its key, for which others may wait.
    Kept(bool, String),
    Wait(Box<Wait>),
}
