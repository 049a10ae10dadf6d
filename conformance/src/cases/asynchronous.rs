//! The asynchronous layer: what `fabric-async` promises holds on every provider.
//!
//! Both ends are nodes of this process, made on the rig's domains.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use fabric_async::{Buffer, Connection, Error, Node, NodeBuilder, WaitStrategy, block_on};
use futures_util::future::try_join;

use super::crowd::joined;
use super::random::agree;
use crate::prelude::*;
use crate::random::{Fuzz, Program};

pub(super) const CASES: &[Case] = cases! { Async:
    self::messages, Needs::SEND,
        "messages of many lengths arrive whole and in order, both ways, however futures wait"
        .local_only(ONE_PROCESS);
    self::leased, Needs::ALL,
        "on leased memory writes, reads, notifications and atomics do what they say"
        .local_only(ONE_PROCESS);
    self::buffers_come_back, Needs::SEND,
        "what fails brings its buffer back, with its bytes; nothing stays in use"
        .local_only(ONE_PROCESS);
    self::dropped_futures, Needs::ALL,
        "futures dropped at random moments lose no message that was not theirs, and no memory"
        .local_only(ONE_PROCESS);
    self::lease_ends, Needs::ALL,
        "a write that reaches a lease which has ended is a RemoteAccess; from the end on no byte changes"
        .local_only(ONE_PROCESS);
    self::lease_keys, Needs::ALL.and(Capabilities::GRANTS),
        "with connection_keys a lease opens to its connection alone, and once it was passed on to all"
        .local_only(ONE_PROCESS);
    self::many_in_flight, Needs::SEND,
        "1000 sends over 16 connections wait for their receivers at the same time"
        .local_only(ONE_PROCESS);
    self::room_in_turn, Needs::SEND,
        "a future that waits for room in the send queue gets it when sends end that no future waits for"
        .local_only(ONE_PROCESS);
    self::held_futures, Needs::ALL,
        "futures that are held and not polled hold up nothing: messages, memory and leases go on, and the connection ends in order"
        .local_only(ONE_PROCESS);
    self::programs, Needs::ALL,
        "random programs, by this layer's futures and buffers, agree with the contract's model"
        .local_only(ONE_PROCESS).limit_s(120);
};

const ONE_PROCESS: &str = "both nodes are in this process";

/// A connection between a node on domain a and one on domain b.
struct Pair {
    a: Connection,
    b: Connection,
}

/// The longest that a peer lends for, unless set otherwise.
const LONG: Duration = Duration::from_secs(600);

type AsyncResult<T> = Result<T, Error>;

/// A node with these settings on a domain of the rig.
fn node(
    rig: &Rig,
    domain: &fabric::Domain,
    settings: impl FnOnce(NodeBuilder) -> NodeBuilder,
) -> Result<Node, Failed> {
    let builder = Node::builder().connect_timeout(rig.connect_timeout());
    Ok(settings(builder).build_on(domain)?)
}

impl Pair {
    #[track_caller]
    fn new(rig: &Rig, settings: impl Fn(NodeBuilder) -> NodeBuilder) -> Result<Self, Failed> {
        let from = node(rig, rig.domain_a(), &settings)?;
        let to = node(rig, rig.domain_b(), &settings)?;
        Pair::between(rig, &from, &to)
    }

    #[track_caller]
    fn between(rig: &Rig, from: &Node, to: &Node) -> Result<Self, Failed> {
        let pair = async {
            let listener = to.listen(rig.addr(rig.domain_b())).await?;
            try_join(from.connect(listener.local_addr()), listener.accept()).await
        };
        let (a, b) = block_on(pair)?;
        Ok(Pair { a, b })
    }

    /// Both connections end, and everything is given back.
    fn finish(self, rig: &Rig) -> Outcome {
        let nodes = [self.a.node(), self.b.node()];
        drop(self);
        rig.eventually(|| {
            for node in &nodes {
                check_eq!(node.pool().metrics().in_use, 0, "buffers in use");
                check_eq!(node.operations(), 0, "operations left");
            }
            Ok(())
        })
    }
}

/// A buffer with a pattern in it.
fn filled(conn: &Connection, pattern: Pattern, len: usize) -> AsyncResult<Buffer> {
    let mut buffer = conn.alloc(len)?;
    pattern.fill(0, &mut buffer);
    Ok(buffer)
}

fn messages(rig: &Rig) -> Outcome {
    const LENGTHS: [usize; 10] = [0, 1, 63, 64, 65, 511, 4095, 4096, 4097, 16_000];
    for wait in [WaitStrategy::Adaptive, WaitStrategy::Blocking, WaitStrategy::Busy] {
        let pair = Pair::new(rig, |node| node.wait(wait).max_message(16_000))?;
        for (from, to) in [(&pair.a, &pair.b), (&pair.b, &pair.a)] {
            let send = async {
                for (i, len) in LENGTHS.into_iter().enumerate() {
                    let sent = from.send_with(filled(from, rig.pattern(i), len)?, i as u32).await?;
                    drop(sent);
                }
                AsyncResult::Ok(())
            };
            let receive = async {
                let mut all = Vec::new();
                for _ in LENGTHS {
                    all.push(to.recv().await?);
                }
                AsyncResult::Ok(all)
            };
            let ((), all) = block_on(try_join(send, receive))?;
            for (i, message) in all.iter().enumerate() {
                check_eq!(message.immediate, Some(i as u32), "{wait:?}: the order");
                check_bytes!(message.to_vec(), rig.pattern(i).bytes(LENGTHS[i]), "{wait:?}: {i}");
            }
        }
        pair.finish(rig)?;
    }
    Ok(())
}

fn leased(rig: &Rig) -> Outcome {
    let pair = Pair::new(rig, |node| node)?;
    let Pair { a, b } = &pair;
    let remote = block_on(a.request_lease(4096 + 8, LONG))?;
    let Some(lent) = b.local_lease(remote.id()) else {
        fail!("the owner to know of the lease", "it does not")
    };
    let steps = async {
        let source = filled(a, rig.pattern(0), 4000)?;
        let source = a.write(source.slice(100..), remote.at(3)).delivered().await?;
        let notice = filled(a, rig.pattern(1), 50)?;
        drop(a.write_notify(notice, remote.at(3950), 7).await?);
        let parts = a.read(vec![a.alloc(10)?, a.alloc(3890)?], remote.at(3)).fence().await?;
        let old = a.fetch_add(remote.at(4096), 5).await?;
        let seen = a.compare_swap(remote.at(4096), 5, 9).await?;
        Ok::<_, Error>((source, parts, old, seen))
    };
    let (source, parts, old, seen) = block_on(steps)?;
    check_eq!((old, seen), (0, 5), "old values");
    check_eq!(lent.get::<u64>(4096)?, 9, "the word in the end");
    let there = [&*parts[0], &*parts[1]].concat();
    check_bytes!(there, source[100..].to_vec(), "what was written comes back");
    let mut bytes = vec![0; 50];
    lent.read_at(3950, &mut bytes)?;
    check_bytes!(bytes, rig.pattern(1).bytes(50), "what the owner sees");
    let notified = block_on(b.notified())?;
    check_eq!((notified.immediate, notified.len), (7, 50), "the notification");
    drop((source, parts, remote));
    rig.eventually(|| {
        check!(!lent.is_active(), "a lease that is dropped to end at its owner");
        Ok(())
    })?;
    drop(lent);
    pair.finish(rig)
}

fn buffers_come_back(rig: &Rig) -> Outcome {
    let pair = Pair::new(rig, |node| node.leases(false).max_message(1000))?;
    let Pair { a, b } = &pair;
    let failed = block_on(a.send(filled(a, rig.pattern(0), 1001)?));
    let Err(failed) = failed else {
        fail!("a message that is too long to be refused", "it was sent")
    };
    check_matches!(&failed.error, Error::TooLong { len: 1001, max: 1000 }, "the refusal");
    check_bytes!(failed.buffer.to_vec(), rig.pattern(0).bytes(1001), "the buffer of the refused");
    drop(failed);
    // That it was refused has harmed nothing.
    block_on(try_join(async { AsyncResult::Ok(a.send(a.alloc(1)?).await?) }, b.recv()))?;
    b.close();
    let reason = block_on(a.closed());
    check_eq!(reason, DisconnectReason::Remote, "the end of the connection");
    let failed = block_on(a.send(filled(a, rig.pattern(1), 999)?));
    let Err(failed) = failed else {
        fail!("a send on a connection that has ended to fail", "it succeeded")
    };
    check_matches!(&failed.error, Error::Disconnected(_), "the failure");
    check_bytes!(failed.buffer.to_vec(), rig.pattern(1).bytes(999), "the buffer of the failed");
    drop(failed);
    pair.finish(rig)
}

/// What comes of a job: bytes, and what each of them should be.
type Job<'a> = Pin<Box<dyn Future<Output = AsyncResult<(Buffer, u8)>> + 'a>>;

/// What messages carry, and what the leased memory holds; so what is placed where it should not be is seen.
const FILL: u8 = 0xA5;
const LEASED: u8 = 0x5A;

/// One of the things that can be dropped half-way.
fn job<'a>(
    conn: &'a Connection,
    at: fabric_async::RemoteTarget,
    kind: usize,
    len: usize,
) -> Job<'a> {
    Box::pin(async move {
        let mut buffer = conn.alloc_wait(len).await?;
        buffer.fill(if kind == 2 { LEASED } else { FILL });
        Ok(match kind {
            0 => (conn.send(buffer).await?, FILL),
            1 => (conn.recv().await?.buffer, FILL),
            2 => (conn.write(buffer, at).await?, LEASED),
            _ => (conn.read(buffer, at).await?, LEASED),
        })
    })
}

fn dropped_futures(rig: &Rig) -> Outcome {
    const LEN: usize = 2048;
    let pair = Pair::new(rig, |node| node.max_message(LEN).pool_bytes(4 << 20))?;
    let Pair { a, b } = &pair;
    let remote = block_on(a.request_lease(LEN + 8, LONG))?;
    let Some(lent) = b.local_lease(remote.id()) else {
        fail!("the owner to know of the lease", "it does not")
    };
    lent.write_at(0, &[LEASED; LEN])?;
    let (mut rng, mut cx) = (rig.rng(), Context::from_waker(Waker::noop()));
    let mut jobs: Vec<Job<'_>> = Vec::new();
    for _ in 0..rig.count(1500, 200_000) {
        let conn = *rng.pick(&[a, b]);
        // Only the one side has the lease.
        let kind = if std::ptr::eq(conn, a) { rng.below(4) } else { rng.below(2) };
        jobs.push(job(conn, remote.at(0), kind, 1 + rng.below(LEN)));
        for _ in 0..rng.below(3) {
            let which = rng.below(jobs.len());
            if let Poll::Ready(done) = jobs[which].as_mut().poll(&mut cx) {
                let (bytes, what) = done?;
                let whole = bytes.iter().all(|byte| *byte == what);
                check!(whole, "a buffer to hold {what:#x} and nothing of another operation");
                drop(jobs.swap_remove(which));
                break;
            }
        }
        if jobs.len() > 40 {
            drop(jobs.swap_remove(rng.below(jobs.len())));
        }
    }
    drop(jobs);
    // It still stands, and what comes now is not lost.
    for (from, to) in [(a, b), (b, a)] {
        let last = async { AsyncResult::Ok(from.send(filled(from, rig.pattern(0), 100)?).await?) };
        let until = async {
            loop {
                let message = to.recv().await?;
                // What others have left on its way comes before.
                if message.iter().any(|byte| *byte != FILL) {
                    return AsyncResult::Ok(message);
                }
            }
        };
        let (_, message) = block_on(try_join(last, until))?;
        check_bytes!(message.to_vec(), rig.pattern(0).bytes(100), "the first that is not theirs");
    }
    let mut bytes = vec![0; LEN];
    lent.read_at(0, &mut bytes)?;
    check!(bytes.iter().all(|byte| *byte == LEASED), "no byte to change but by what was written");
    check_eq!(lent.get::<u64>(LEN)?, 0, "the word behind");
    drop((remote, lent));
    pair.finish(rig)
}

fn lease_ends(rig: &Rig) -> Outcome {
    let pair = Pair::new(rig, |node| node)?;
    let Pair { a, b } = &pair;
    // Long enough for some writes on a slow machine.
    let time = rig.scaled(Duration::from_secs(1)).min(Duration::from_secs(10));
    let remote = block_on(a.request_lease(4096, time))?;
    let Some(lent) = b.local_lease(remote.id()) else {
        fail!("the owner to know of the lease", "it does not")
    };
    // By the descriptor, as one who knows nothing of leases.
    let at = remote.descriptor().at(0);
    let mut accepted = 0u64;
    let end = loop {
        let mut buffer = a.alloc(4096)?;
        buffer.view_all_mut::<u64>()?.fill(accepted + 1);
        match block_on(a.write(buffer, at)) {
            Ok(_) => accepted += 1,
            Err(failed) => break failed.error,
        }
    };
    // The latter if it ended during a transfer.
    check_matches!(&end, Error::RemoteAccess | Error::Disconnected(_), "the end of the writes");
    check!(accepted > 0, "writes before the end");
    // A write may be refused while the registration still goes.
    rig.eventually(|| {
        check!(!lent.is_active(), "the lease to be over");
        Ok(())
    })?;
    let buffer = lent.take()?;
    let words = buffer.view_all::<u64>()?;
    // Of the write during which it ended a first part may be there.
    let part = words.iter().take_while(|word| **word == accepted + 1).count();
    let rest = words[part..].iter().all(|word| *word == accepted);
    check!(rest, "the last write that was accepted, behind {part} words of the one that was not");
    let then = words.to_vec();
    thread::sleep(rig.scaled(Duration::from_millis(50)));
    check_eq!(words, then, "the memory a while later");
    drop((buffer, lent, remote));
    pair.finish(rig)
}

fn lease_keys(rig: &Rig) -> Outcome {
    let pair = Pair::new(rig, |node| node.connection_keys(true))?;
    let (from, to, a) = (pair.a.node(), pair.b.node(), &pair.a);
    let (remote, bytes) = (block_on(a.request_lease(64, LONG))?, rig.pattern(1).bytes(64));
    let read = |conn: &Connection, at| {
        block_on(async { AsyncResult::Ok(conn.read(conn.alloc(64)?, at).await?) })
    };
    let write = |conn: &Connection, pattern, at| {
        block_on(async { AsyncResult::Ok(conn.write(filled(conn, pattern, 64)?, at).await?) })
    };
    write(a, rig.pattern(1), remote.at(0))?;
    let thief = Pair::between(rig, &from, &to)?;
    let failed = write(&thief.a, rig.pattern(2), remote.at(0));
    check_err!(failed, Error::RemoteAccess, "a write by another connection's key");
    drop(thief);
    check_bytes!(*read(a, remote.at(0))?, bytes, "the lease");
    let third = Pair::between(rig, &from, &to)?;
    block_on(remote.pass_on(&third.a))?;
    let passed = block_on(third.b.next_lease())?;
    check_bytes!(*read(&third.a, passed.at(0))?, bytes, "the lease as the third peer sees it");
    drop((passed, remote, third));
    pair.finish(rig)
}

fn many_in_flight(rig: &Rig) -> Outcome {
    const EACH: usize = 63;
    let settings = |node: NodeBuilder| {
        node.leases(false).send_depth(EACH).receives(2).max_message(64).wait(WaitStrategy::Blocking)
    };
    let from = node(rig, rig.domain_a(), settings)?;
    let to = node(rig, rig.domain_b(), settings)?;
    let pairs = (0..16).map(|_| Pair::between(rig, &from, &to));
    let pairs = pairs.collect::<Result<Vec<_>, Failed>>()?;
    let mut cx = Context::from_waker(Waker::noop());
    let mut sends = Vec::new();
    for (i, pair) in pairs.iter().enumerate() {
        for number in 0..EACH {
            let bytes = ((i << 32 | number) as u64).to_le_bytes();
            sends.push(pair.a.send(from.pool().alloc_from(&bytes)?));
        }
    }
    let mut failure = None;
    sends.retain_mut(|send| match Pin::new(send).poll(&mut cx) {
        Poll::Ready(done) => {
            failure = failure.take().or(done.err());
            false
        }
        Poll::Pending => true,
    });
    if let Some(failed) = failure {
        return Err(failed.error.into());
    }
    check!(sends.len() >= 16 * (EACH - 2), "sends without receivers to wait, not {}", sends.len());
    for (i, pair) in pairs.iter().enumerate() {
        for number in 0..EACH {
            let expected = ((i << 32 | number) as u64).to_le_bytes();
            check_bytes!(block_on(pair.b.recv())?.to_vec(), expected.to_vec(), "{i}: {number}");
        }
    }
    for send in sends {
        block_on(send).map_err(|failed| failed.error)?;
    }
    drop(pairs);
    rig.eventually(|| {
        check_eq!(from.pool().metrics().in_use + to.pool().metrics().in_use, 0, "buffers in use");
        Ok(())
    })
}

fn room_in_turn(rig: &Rig) -> Outcome {
    const DEPTH: usize = 4;
    for wait in [WaitStrategy::Blocking, WaitStrategy::Adaptive] {
        let settings =
            |node: NodeBuilder| node.wait(wait).leases(false).send_depth(DEPTH).receives(2);
        let pair = Pair::new(rig, settings)?;
        let Pair { a, b } = &pair;
        // More than queue and receives have room for; what is not posted at its first poll is never sent.
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..4 * DEPTH {
            let mut send = a.send(filled(a, rig.pattern(0), 8)?);
            let _ = Pin::new(&mut send).poll(&mut cx);
        }
        let last = filled(a, rig.pattern(1), 8)?;
        thread::scope(|scope| -> Outcome {
            let waiting = scope.spawn(|| block_on(a.send(last)));
            thread::sleep(rig.scaled(Duration::from_millis(50)));
            check!(!waiting.is_finished(), "{wait:?}: no room before there are receives");
            while *block_on(b.recv())? != *rig.pattern(1).bytes(8) {}
            joined(waiting).map_err(|failed| failed.error)?;
            Ok(())
        })?;
        pair.finish(rig)?;
    }
    Ok(())
}

/// One of everything that can be awaited of a connection.
fn awaited<'a>(
    a: &'a Connection,
    b: &'a Connection,
    at: &fabric_async::RemoteTarget,
    kind: usize,
) -> Pin<Box<dyn Future<Output = AsyncResult<()>> + 'a>> {
    let at = at.clone();
    match kind {
        0 => Box::pin(async { b.recv().await.map(drop) }),
        1 => Box::pin(async { Ok(a.send(a.node().pool().alloc_from(b"held")?).await.map(drop)?) }),
        2 => Box::pin(async { a.recv().await.map(drop) }),
        3 => Box::pin(async { Ok(b.send(b.node().pool().alloc_from(b"held")?).await.map(drop)?) }),
        4 => Box::pin(async { b.notified().await.map(|_| ()) }),
        5 => Box::pin(async { Ok(a.write(a.alloc(8)?, at).await.map(drop)?) }),
        6 => Box::pin(async { Ok(a.read(a.alloc(8)?, at).await.map(drop)?) }),
        7 => Box::pin(async { b.next_lease().await.map(drop) }),
        8 => Box::pin(async { a.request_lease(64, LONG).await.map(drop) }),
        _ => Box::pin(async move { a.fetch_add(at, 1).await.map(|_| ()) }),
    }
}

/// To others, a future that was forgotten is one that is held for ever.
fn held_futures(rig: &Rig) -> Outcome {
    const KINDS: usize = 10;
    let pair = Pair::new(rig, |node| node.send_depth(8).receives(8))?;
    let Pair { a, b } = &pair;
    let remote = block_on(a.request_lease(64, LONG))?;
    let (mut rng, mut cx) = (rig.rng(), Context::from_waker(Waker::noop()));
    let mut held = Vec::new();
    // More than queues and receives have room for.
    for _ in 0..rig.count(100, 1000) {
        let mut future = awaited(a, b, &remote.at(0), rng.below(KINDS));
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(done) => done?,
            Poll::Pending => held.push(future),
        }
    }
    // Messages first: those of the held ones fill the inbox.
    for (from, to) in [(a, b), (b, a)] {
        let last = async { Ok(from.send(filled(from, rig.pattern(1), 100)?).await.map(drop)?) };
        let until = async {
            while *to.recv().await? != *rig.pattern(1).bytes(100) {}
            AsyncResult::Ok(())
        };
        block_on(try_join(last, until))?;
    }
    let write = async { Ok(a.write_notify(a.alloc(8)?, remote.at(8), 7).await.map(drop)?) };
    let notified = async {
        while b.notified().await?.immediate != 7 {}
        AsyncResult::Ok(())
    };
    block_on(try_join(write, notified))?;
    drop(block_on(a.request_lease(64, LONG))?);
    block_on(a.shutdown(rig.scaled(Duration::from_secs(10))))?;
    drop(held);
    drop(remote);
    pair.finish(rig)
}

fn programs(rig: &Rig) -> Outcome {
    let mut fuzz = Fuzz { factor: Some(rig.factor()), layered: true, ..Fuzz::default() };
    agree(rig, &fuzz)?;
    (fuzz.seed, fuzz.programs) = (rig.rng().next_u64(), rig.count(50, 2000) as u64);
    match fuzz.run::<Program>(rig.target(), |_| ()) {
        Ok(_) => Ok(()),
        Err(found) => fail!("programs that agree", "{found}"),
    }
}
