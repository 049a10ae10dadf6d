//! The peers that may reach a domain's memory by themselves: who they are, what they have to have mapped, and until when they
//! are there.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use socket2::Socket;

use crate::preface;
use crate::restart;
use crate::ring::Peer;

/// A peer whose thread runs is at a window for less.
const SOON: Duration = Duration::from_millis(2);
/// How long one whose thread does not run is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the end of a connection waits for a peer that is somewhere.
const PATIENCE_AT_END: Duration = Duration::from_millis(1);

/// A connection's peer.
pub(crate) struct Visitor {
    peer: Peer,
    socket: Arc<Socket>,
    /// Files that it has got: it knows them by their order.
    sent: AtomicUsize,
}

impl Visitor {
    pub(crate) fn new(peer: Peer, socket: &Arc<Socket>) -> Self {
        Visitor { peer, socket: socket.clone(), sent: AtomicUsize::new(0) }
    }

    /// Sends it those of all files that it has not got. False: it does not get them, for want of room in its socket or of
    /// descriptors. It reaches what it has; the rest is done for it.
    fn send(&self, files: &[BorrowedFd<'_>]) -> bool {
        let rest = files.get(self.sent.load(Ordering::Relaxed)..).unwrap_or_default();
        let is_sent = rest.is_empty() || preface::send_files(self.socket.as_fd(), rest).is_ok();
        if is_sent {
            self.sent.store(files.len(), Ordering::Relaxed);
        }
        is_sent
    }

    /// Whether it may still be at a window; one without an end of the socket has no thread, or has let go of its own.
    fn is_at(&self, window: u32) -> bool {
        self.peer.hazard().is_at(window) && !self.is_gone()
    }

    fn is_anywhere(&self) -> bool {
        self.peer.hazard().is_anywhere() && !self.is_gone()
    }

    fn is_gone(&self) -> bool {
        let mut ends = [PollFd::new(&*self.socket, PollFlags::empty())];
        let looked = poll(&mut ends, Some(&rustix::event::Timespec::default()));
        looked.is_ok() && ends[0].revents().contains(PollFlags::HUP)
    }
}

/// Waits until it is not so, at most so long; false: it still is.
fn wait_while(limit: Duration, is_so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    for round in 0_u32.. {
        if !is_so() {
            return true;
        }
        if begun.elapsed() > limit {
            break;
        }
        match round {
            0..100 => std::hint::spin_loop(),
            100..200 => thread::yield_now(),
            _ => thread::sleep(Duration::from_micros(50)),
        }
    }
    false
}

/// The visitors of a domain, by the names of their connections.
#[derive(Default)]
pub(crate) struct Visitors {
    open: HashMap<u64, Arc<Visitor>>,
    /// Those of connections that have ended, where a peer was in the middle of an access and did not get on.
    late: Vec<Arc<Visitor>>,
    /// One lacks files.
    lack_files: bool,
}

impl Visitors {
    /// A connection is open to its peer, which gets all files.
    pub(crate) fn add(&mut self, connection: u64, visitor: Visitor, files: &[BorrowedFd<'_>]) {
        self.late.retain(|late| late.is_anywhere());
        self.lack_files |= !visitor.send(files);
        visitor.peer.hazard().open(connection);
        self.open.insert(connection, Arc::new(visitor));
    }

    /// All get what they lack of all files.
    pub(crate) fn send(&mut self, files: &[BorrowedFd<'_>]) {
        self.lack_files = false;
        for visitor in self.open.values() {
            self.lack_files |= !visitor.send(files);
        }
    }

    /// Whether one did not get files that it may get another time.
    pub(crate) fn lack_files(&self) -> bool {
        self.lack_files
    }

    /// A connection is open to its peer no longer.
    pub(crate) fn remove(&mut self, connection: u64) {
        self.late.retain(|late| late.is_anywhere());
        let Some(visitor) = self.open.remove(&connection) else { return };
        visitor.peer.hazard().close();
        if !wait_while(PATIENCE_AT_END, || visitor.is_anywhere()) {
            self.late.push(visitor);
        }
    }

    /// Those that are at a window that is closed, which may have been for one connection only.
    pub(crate) fn at(&self, window: u32, only: Option<u64>) -> Vec<Arc<Visitor>> {
        let mut there = Vec::new();
        let mut look = |visitor: &Arc<Visitor>| {
            if visitor.is_at(window) {
                there.push(visitor.clone());
            }
        };
        match only {
            None => self.open.values().for_each(&mut look),
            Some(connection) => self.open.get(&connection).into_iter().for_each(&mut look),
        }
        self.late.iter().for_each(look);
        there
    }
}

/// Waits until they have left a window that is closed, or can do nothing there any more; false: one may.
pub(crate) fn wait_for(visitors: &[Arc<Visitor>], window: u32) -> bool {
    let begun = Instant::now();
    let all_leave = |limit: Duration, visitors: &[&Arc<Visitor>]| {
        let left = || limit.saturating_sub(begun.elapsed());
        visitors.iter().all(|visitor| wait_while(left(), || visitor.is_at(window)))
    };
    let mut visitors: Vec<_> = visitors.iter().collect();
    if all_leave(SOON, &visitors) {
        return true;
    }
    if restart::visit_processors(PATIENCE).is_ok() {
        visitors.retain(|visitor| !visitor.peer.hazard().restarts());
    }
    all_leave(PATIENCE, &visitors)
}
