//! Threads that do everything at random, beside a model of what must come of it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::cases::crowd::{Crowd, at_once, depths, joined, places, post_receives, slot};
use crate::prelude::*;

const THREADS: usize = 4;
const ENDS: usize = 3;
/// Words of the target that belong to one thread: one for each endpoint, so that what a thread does to a word is in
/// the order of one connection.
const OWN: usize = ENDS;
/// Operations that a thread has under way.
const WINDOW: usize = 16;
const DEPTH: usize = 64;

/// What a thread waits for.
enum Pending {
    /// Nothing to look at; the region was registered for it alone.
    Source(Guarded),
    /// A read, which finds this.
    Read(Guarded, u64),
    /// An add to the word that all threads count in.
    Add(Guarded),
    Nothing,
}

/// One thread, and what the model says of the words that are its own.
struct Actor<'a> {
    stage: &'a Stage<'a>,
    me: usize,
    rng: Rng,
    words: [u64; OWN],
    pending: HashMap<u64, Pending>,
    /// Reads under way, for each endpoint: what follows them needs a fence.
    reading: [usize; ENDS],
    posted: u64,
    messages: usize,
    olds: Vec<u64>,
}

/// What the threads share.
struct Stage<'a> {
    rig: &'a Rig,
    crowd: &'a Crowd,
    target: &'a Guarded,
    /// Completions that were taken by another thread than their own.
    mail: [Mutex<Vec<Completion>>; THREADS],
}

/// The word of a thread that it reaches by this endpoint.
fn own_word(thread: usize, end: usize) -> usize {
    8 * (1 + thread * OWN + end)
}

pub(super) fn mt_everything(rig: &Rig) -> Outcome {
    const RECEIVES: usize = DEPTH;
    let each = rig.bulk(rig.count(500, 30_000));
    let crowd = Crowd::new(rig, ENDS, depths(DEPTH, RECEIVES))?;
    let target = crowd.peers[0].buffer(8 * (1 + THREADS * OWN))?;
    let sink = crowd.peers[0].buffer(ENDS * RECEIVES * 8)?;
    let stage = Stage { rig, crowd: &crowd, target: &target, mail: Default::default() };
    let (sent, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (actors, messages) = thread::scope(|scope| -> Result<_, Failed> {
        let receiver = scope.spawn(|| receive(&stage, &sink, RECEIVES, &done, &sent));
        let actors = at_once(&[(); THREADS], |me, ()| {
            let mut actor = Actor::new(&stage, me);
            actor.act(each)?;
            sent.fetch_add(actor.messages, Ordering::Relaxed);
            Ok((actor.words, actor.messages, actor.olds))
        });
        done.store(true, Ordering::Release);
        let messages = joined(receiver);
        Ok((actors?, messages?))
    })?;

    crowd.pairs().try_for_each(|(end, peer)| {
        // The receives that are left are in the way of settling.
        end.run(Op::inject(&[]), Done::ok(u64::MAX))?;
        peer.next().map(drop)
    })?;
    let mut expected = vec![0u64];
    let mut olds = Vec::new();
    for (me, (words, count, seen)) in actors.into_iter().enumerate() {
        expected.extend(words);
        olds.extend(seen);
        check_eq!(messages[me], count, "messages of thread {me}");
    }
    olds.sort_unstable();
    let total = olds.len() as u64;
    check!(olds.iter().copied().eq(0..total), "each of {total} adds to find another value");
    expected[0] = total;
    let expected: Vec<u8> = expected.into_iter().flat_map(u64::to_ne_bytes).collect();
    check_bytes!(target.bytes(..)?, expected, "the target, as the model has it");
    Ok(())
}

/// Takes the messages of all peers; gives how many came of each thread.
fn receive(
    stage: &Stage<'_>,
    sink: &Guarded,
    receives: usize,
    done: &AtomicBool,
    sent: &AtomicUsize,
) -> Result<[usize; THREADS], Failed> {
    let peers = &stage.crowd.peers;
    let place = places(peers);
    post_receives(peers, sink, receives)?;
    let mut count = [0; THREADS];
    // Of each thread and endpoint, the last message: they ascend.
    let mut last = [[None; ENDS]; THREADS];
    let mut next = [0u64; ENDS];
    let mut until = None;
    loop {
        let Some(one) = peers[0].cq().poll_one()? else {
            if done.load(Ordering::Acquire) {
                let until =
                    until.get_or_insert_with(|| stage.rig.deadline(Duration::from_secs(10)));
                let (all, got) = (sent.load(Ordering::Relaxed), count.iter().sum::<usize>());
                if got >= all {
                    return Ok(count);
                }
                check!(Instant::now() < *until, "all of {all} messages, not {got}");
            }
            thread::yield_now();
            continue;
        };
        let Some(&who) = place.get(&one.endpoint) else { fail!("one of the peers", "{one:?}") };
        check_eq!((one.context, one.status), (next[who], Status::Ok), "receive of peer {who}");
        next[who] += 1;
        let slot = slot(who, one.context, receives);
        let message: u64 = sink.get(slot.start)?;
        let (from, i) = ((message >> 32) as usize, message as u32);
        check!(from < THREADS, "a message of one of the threads, not {message:#x}");
        check!(last[from][who] < Some(i), "ascending messages of thread {from}, not {i} next");
        last[from][who] = Some(i);
        count[from] += 1;
        peers[who].recv(sink.slice(slot), one.context + receives as u64)?;
    }
}

impl<'a> Actor<'a> {
    fn new(stage: &'a Stage<'a>, me: usize) -> Self {
        let rng = Rng::new(stage.rig.rng().next_u64() ^ me as u64);
        let (words, pending, reading) = ([0; OWN], HashMap::new(), [0; ENDS]);
        let (posted, messages, olds) = (0, 0, Vec::new());
        Actor { stage, me, rng, words, pending, reading, posted, messages, olds }
    }

    fn act(&mut self, operations: usize) -> Outcome {
        for _ in 0..operations {
            self.post()?;
            if self.pending.len() >= WINDOW {
                // All of them, or only as many as make room.
                let left = *self.rng.pick(&[0, WINDOW / 2, WINDOW - 1]);
                self.take_until(left)?;
            }
        }
        self.take_until(0)
    }

    /// Posts one operation, whatever comes, from or into a region that is registered for it.
    fn post(&mut self) -> Outcome {
        let which = self.rng.below(ENDS);
        let end = &self.stage.crowd.ends[which];
        let number = (self.me as u64) << 32 | self.posted;
        let context = number << 2 | which as u64;
        self.posted += 1;
        let (own, local) = (self.stage.target.at(own_word(self.me, which)), end.buffer(8)?);
        let op = match self.rng.below(5) {
            0 => {
                self.messages += 1;
                self.pending.insert(context, Pending::Nothing);
                end.post_when_room(&Op::inject(&number.to_ne_bytes()).context(context))?;
                return Ok(());
            }
            1 => {
                self.reading[which] += 1;
                let read = Op::read(&local, own);
                end.post_when_room(&read.context(context))?;
                Pending::Read(local, self.words[which])
            }
            2 => {
                let counter = self.stage.target.at(0);
                let add = Op::fetch_atomic(AtomicOp::Add, 1u64, local.slice(..), counter);
                end.post_when_room(&add.context(context))?;
                Pending::Add(local)
            }
            kind => {
                local.put(0, &number.to_ne_bytes())?;
                let write = Op::write(&local, own).context(context);
                // Or a read of the word before it might see it.
                let write = if self.reading[which] > 0 { write.fence() } else { write };
                end.post_when_room(&write)?;
                self.words[which] = number;
                if kind == 3 {
                    // The operation holds on to the memory itself.
                    drop(local);
                    Pending::Nothing
                } else {
                    // Whether it is still under way is open; closed or not, it happens.
                    match local.region().close() {
                        Ok(()) | Err(Error::Busy) => Pending::Source(local),
                        Err(error) => fail!("Busy or closed", "{error:?}"),
                    }
                }
            }
        };
        self.pending.insert(context, op);
        Ok(())
    }

    /// Takes completions, its own and others', until so many of its own are left.
    fn take_until(&mut self, left: usize) -> Outcome {
        let stage = self.stage;
        let mut until = stage.rig.deadline(Duration::from_secs(10));
        let mut room = [Completion::default(); 4];
        while self.pending.len() > left {
            let got = stage.crowd.ends[0].cq().poll(&mut room)?;
            for done in &room[..got] {
                let Some(mail) = stage.mail.get((done.context >> 34) as usize) else {
                    fail!("a context that was posted", "{done:?}");
                };
                lock(mail).push(*done);
            }
            let mine = std::mem::take(&mut *lock(&stage.mail[self.me]));
            if mine.is_empty() {
                let pending = self.pending.len();
                check!(Instant::now() < until, "one of {pending} completions within 10 s");
                thread::yield_now();
                continue;
            }
            mine.iter().try_for_each(|done| self.finish(done))?;
            until = stage.rig.deadline(Duration::from_secs(10));
        }
        Ok(())
    }

    fn finish(&mut self, done: &Completion) -> Outcome {
        let which = (done.context & 3) as usize;
        check_eq!(done.status, Status::Ok, "status of {done:?}");
        check_eq!(Some(done.endpoint), self.stage.crowd.ends.get(which).map(|e| e.id()), "whose");
        let Some(pending) = self.pending.remove(&done.context) else {
            fail!("one completion of each operation", "{done:?} once more");
        };
        match pending {
            Pending::Nothing => Ok(()),
            Pending::Source(local) => {
                // Nothing uses it now.
                local.region().close()?;
                Ok(())
            }
            Pending::Read(local, expected) => {
                self.reading[which] -= 1;
                let seen: u64 = local.get(0)?;
                check_eq!(seen, expected, "what a read of thread {} found", self.me);
                Ok(())
            }
            Pending::Add(local) => {
                self.olds.push(local.get(0)?);
                Ok(())
            }
        }
    }
}

/// Mail is whole between statements, whatever a failing thread did.
fn lock(mail: &Mutex<Vec<Completion>>) -> std::sync::MutexGuard<'_, Vec<Completion>> {
    mail.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
