//! The engine of a domain: who drives its connections.
//!
//! A step reads what came, executes it, and writes what is due. Whoever polls a completion queue runs steps
//! inline; the domain's thread runs them when nobody polls. `polled` is the sign between the two:
//!
//! - a poll sets it, `arm` clears it and wakes the thread;
//! - the thread looks once a tick and clears it. Found set: somebody polls, so it stays away. Found clear:
//!   nobody has polled for a tick, so it takes over, and then it blocks in the selector and costs nothing.
//!
//! While the thread looks once a tick (`ticking`), an acknowledgement or credit that is due may wait for a
//! frame to ride on: the next poll sends it, or the thread when it takes over. While the thread blocks in
//! the selector nobody would, so then everything goes out at once.
//!
//! Connections where something happened are `hot`: a step reads them directly. The selector is
//! edge-triggered; a connection leaves the hot list only after a read that found it dry, so that the next
//! byte is a new edge. Locks, in order: `drive`, a connection, then leaves (rings, tables, the event sink).
//! The selector's lock is only tried by pollers, because the thread sleeps with it.

mod drive;
mod selector;
mod timers;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fabric_core::provider::RequestId;
use fabric_core::stats::Stats;
use fabric_core::{Error, EventSink, Failure, Info, Result};
use mio::{Interest, Registry, Token, Waker};

use crate::NAME;
use crate::adversary::Whims;
use crate::conn::Conn;
use crate::listener::{Door, Inbound};
use crate::region::Table;
use drive::Drive;
use selector::Selector;
pub(crate) use timers::Timer;
use timers::Timers;

/// How often the thread looks whether the application still polls.
const TICK: Duration = Duration::from_millis(1);
/// The selector's token of the waker.
const WAKE: Token = Token(0);

/// What has a socket.
pub(crate) enum Member {
    Conn(Arc<Conn>),
    Door(Arc<Door>),
    Inbound(Arc<Inbound>),
}

impl Clone for Member {
    fn clone(&self) -> Self {
        match self {
            Member::Conn(conn) => Member::Conn(conn.clone()),
            Member::Door(door) => Member::Door(door.clone()),
            Member::Inbound(inbound) => Member::Inbound(inbound.clone()),
        }
    }
}

/// The engine of a domain.
pub(crate) struct Engine {
    pub(crate) info: Info,
    pub(crate) events: Arc<dyn EventSink>,
    pub(crate) regions: Arc<Table>,
    stats: Arc<Stats>,
    members: Mutex<HashMap<usize, Member>>,
    next_member: AtomicUsize,
    pub(crate) requests: Mutex<HashMap<RequestId, Arc<Inbound>>>,
    next_request: AtomicU64,
    drive: Mutex<Drive>,
    /// Connections that become hot with the next step.
    heated: Mutex<Vec<Arc<Conn>>>,
    has_heated: AtomicBool,
    selector: Mutex<Selector>,
    registry: Registry,
    waker: Waker,
    timers: Mutex<Timers>,
    polled: AtomicBool,
    ticking: AtomicBool,
    /// Whether the thread sleeps through a tick; with it the condition that ends the sleep early.
    dozing: Mutex<bool>,
    roused: Condvar,
    stop: AtomicBool,
    /// Tests only: the seed of the adversary.
    adversary: Option<u64>,
}

/// Locks, whatever a panic elsewhere left: every structure here is whole between statements.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    pub(crate) fn new(
        info: &Info,
        events: Arc<dyn EventSink>,
        adversary: Option<u64>,
    ) -> Result<Arc<Self>> {
        let fail = |cause| Error::system("open domain", NAME, cause);
        let selector = Selector::new().map_err(fail)?;
        let registry = selector.registry().map_err(fail)?;
        let waker = Waker::new(&registry, WAKE).map_err(fail)?;
        Ok(Arc::new(Engine {
            info: info.clone(),
            events,
            regions: Arc::default(),
            stats: Arc::default(),
            members: Mutex::default(),
            next_member: AtomicUsize::new(1),
            requests: Mutex::default(),
            next_request: AtomicU64::new(1),
            drive: Mutex::new(Drive::new(adversary.map(|seed| Whims::new(seed, 0)))),
            heated: Mutex::default(),
            has_heated: AtomicBool::new(false),
            selector: Mutex::new(selector),
            registry,
            waker,
            timers: Mutex::default(),
            polled: AtomicBool::new(false),
            ticking: AtomicBool::new(false),
            dozing: Mutex::new(false),
            roused: Condvar::new(),
            stop: AtomicBool::new(false),
            adversary,
        }))
    }

    /// Starts the domain's thread.
    pub(crate) fn start(self: &Arc<Self>) -> Result<JoinHandle<()>> {
        let engine = self.clone();
        let thread = std::thread::Builder::new().name("fabric-tcp".to_owned());
        thread
            .spawn(move || engine.run())
            .map_err(|cause| Error::system("open domain", NAME, cause))
    }

    /// Ends the thread and closes every socket.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.rouse();
        // It fails only when its descriptor is gone, and then the thread is too.
        let _ = self.waker.wake();
    }

    pub(crate) fn clear(&self) {
        let members: Vec<_> = lock(&self.members).drain().map(|(_, member)| member).collect();
        for member in members {
            match member {
                Member::Conn(conn) => conn.abandon(),
                Member::Door(door) => door.close(),
                Member::Inbound(inbound) => inbound.drop_socket(),
            }
        }
        lock(&self.requests).clear();
        lock(&self.drive).clear();
        lock(&self.heated).clear();
    }

    pub(crate) fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// A new name for something with a socket.
    pub(crate) fn name(&self) -> usize {
        self.next_member.fetch_add(1, Ordering::Relaxed)
    }

    /// Tests only: the adversary's choices for a connection.
    pub(crate) fn whims(&self, name: usize) -> Option<Whims> {
        self.adversary.map(|seed| Whims::new(seed, name))
    }

    pub(crate) fn name_request(&self) -> RequestId {
        RequestId(self.next_request.fetch_add(1, Ordering::Relaxed))
    }

    /// Watches a socket, edge-triggered, in the name of a member.
    pub(crate) fn watch(
        &self,
        source: &mut impl mio::event::Source,
        name: usize,
        member: Member,
        interest: Interest,
    ) -> Result<()> {
        lock(&self.members).insert(name, member);
        self.registry.register(source, Token(name), interest).map_err(|cause| {
            self.forget(name);
            Error::system("watch socket", NAME, cause)
        })
    }

    /// Stops watching a socket that stays open.
    pub(crate) fn unwatch(&self, source: &mut impl mio::event::Source, name: usize) {
        // It fails only for a socket that is not watched.
        let _ = self.registry.deregister(source);
        self.forget(name);
    }

    /// Forgets a member whose socket is closed.
    pub(crate) fn forget(&self, name: usize) {
        let gone = lock(&self.members).remove(&name);
        drop(gone);
    }

    fn member(&self, name: usize) -> Option<Member> {
        lock(&self.members).get(&name).cloned()
    }

    /// Sets a deadline for a member.
    pub(crate) fn deadline(&self, after: Duration, name: usize, timer: Timer) {
        let nearest = lock(&self.timers).add(Instant::now() + after, name, timer);
        if nearest {
            // The thread may be asleep in the selector until a later deadline.
            let _ = self.waker.wake();
        }
    }

    /// Whether what is due can wait for a frame to ride on.
    #[inline]
    pub(crate) fn can_wait(&self) -> bool {
        self.ticking.load(Ordering::SeqCst)
    }

    /// An application polls.
    #[inline]
    pub(crate) fn note_poll(&self) {
        if !self.polled.load(Ordering::Relaxed) {
            self.polled.store(true, Ordering::Relaxed);
        }
    }

    /// An application polls and found nothing: run a step.
    #[inline]
    pub(crate) fn poll(&self) {
        self.note_poll();
        if let Ok(mut drive) = self.drive.try_lock() {
            drive.inline(self);
        }
    }

    /// The application stops polling: the thread takes over now.
    pub(crate) fn hand_over(&self) {
        self.polled.store(false, Ordering::Release);
        self.rouse();
    }

    fn rouse(&self) {
        let mut dozing = lock(&self.dozing);
        if std::mem::take(&mut *dozing) {
            self.roused.notify_one();
        }
    }

    /// Makes a connection part of the next step.
    pub(crate) fn heat(&self, conn: &Arc<Conn>) {
        if conn.mark_hot() {
            lock(&self.heated).push(conn.clone());
            self.has_heated.store(true, Ordering::Release);
        }
    }

    /// As [`heat`](Engine::heat), for who is not part of a step: if the thread has taken over meanwhile it is
    /// woken to look. (It clears `ticking` before it looks at `has_heated`; here it is the other way round.)
    pub(crate) fn heat_from_outside(&self, conn: &Arc<Conn>) {
        if conn.mark_hot() {
            lock(&self.heated).push(conn.clone());
            self.has_heated.store(true, Ordering::SeqCst);
            if !self.can_wait() {
                // It fails only when its descriptor is gone, and then the thread is too.
                let _ = self.waker.wake();
            }
        }
    }

    /// Waits for what the selector reports, and heats the connections it names.
    fn select(&self, selector: &mut Selector, timeout: Option<Duration>) {
        self.stats.system_calls.add(1);
        for (token, ended) in selector.select(timeout) {
            if token == WAKE {
                continue;
            }
            match self.member(token.0) {
                Some(Member::Conn(conn)) => {
                    conn.note_event(ended);
                    self.heat(&conn);
                }
                Some(Member::Door(door)) => door.ready(self),
                Some(Member::Inbound(inbound)) => inbound.ready(self),
                None => {}
            }
        }
    }

    fn run(&self) {
        while !self.stop.load(Ordering::Acquire) {
            let turn = std::panic::AssertUnwindSafe(|| self.turn());
            if std::panic::catch_unwind(turn).is_err() {
                self.fail();
            }
        }
    }

    /// One turn of the thread.
    fn turn(&self) {
        self.expire();
        let tick = if self.adversary.is_some() { lock(&self.drive).late_tick() } else { TICK };
        // The look and the doze are one step for `hand_over`, which clears the sign before it locks: either it
        // is seen clear here, or the doze is ended.
        let mut dozing = lock(&self.dozing);
        if self.polled.swap(false, Ordering::AcqRel) {
            *dozing = true;
            self.ticking.store(true, Ordering::SeqCst);
            let (mut dozing, _) = self
                .roused
                .wait_timeout_while(dozing, tick, |dozing| *dozing)
                .unwrap_or_else(PoisonError::into_inner);
            *dozing = false;
            return;
        }
        drop(dozing);
        self.ticking.store(false, Ordering::SeqCst);
        let more = lock(&self.drive).background(self);
        if more {
            return;
        }
        let next = lock(&self.timers).next();
        let timeout = next.map(|at| at.saturating_duration_since(Instant::now()));
        let mut selector = lock(&self.selector);
        if self.stop.load(Ordering::Acquire) || self.has_heated.load(Ordering::SeqCst) {
            return;
        }
        self.select(&mut selector, timeout);
    }

    fn expire(&self) {
        loop {
            let expired = lock(&self.timers).expired(Instant::now());
            let Some((name, timer)) = expired else { break };
            match self.member(name) {
                Some(Member::Conn(conn)) if timer == Timer::PutOff => self.heat(&conn),
                Some(Member::Conn(conn)) => conn.expired(self, timer),
                Some(Member::Door(door)) => door.ready(self),
                Some(Member::Inbound(inbound)) => inbound.expired(self),
                None => {}
            }
        }
    }

    /// The thread panicked: nothing of the domain can be relied on.
    #[cold]
    fn fail(&self) {
        log::error!("the engine of {}:{} panicked; its endpoints end", NAME, self.info.device);
        let members: Vec<_> = lock(&self.members).values().cloned().collect();
        for member in members {
            if let Member::Conn(conn) = member {
                conn.fail();
            }
        }
    }

    pub(crate) fn dump(&self) -> String {
        let members = lock(&self.members);
        let (mut doors, mut inbound, mut lines) = (0, 0, Vec::new());
        for member in members.values() {
            match member {
                Member::Conn(conn) => lines.push(conn.try_dump()),
                Member::Door(_) => doors += 1,
                Member::Inbound(_) => inbound += 1,
            }
        }
        drop(members);
        lines.sort();
        format!(
            "engine: {} connections, {doors} listeners, {inbound} half-open, {} regions, polled: {}\n{}",
            lines.len(),
            self.regions.len(),
            self.polled.load(Ordering::Relaxed),
            lines.join("\n")
        )
    }

    pub(crate) fn closed() -> Error {
        Error::InvalidState(Failure::new("use domain", "the domain is closing").of(NAME))
    }
}

/// For what must not keep the engine alive.
pub(crate) type EngineRef = Weak<Engine>;
