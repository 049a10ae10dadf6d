//! Connection requests: those that wait at a listener, and those that the application took and has not answered.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_core::provider::RequestId;
use fabric_core::{Error, Result};

use crate::sync::Mutex;

/// What listens (`L`, a socket for example), and the requests (`P`) that wait for the application, up to a number.
pub struct Backlog<L, P> {
    max: usize,
    state: Mutex<BacklogState<L, P>>,
}

struct BacklogState<L, P> {
    listening: Option<L>,
    waiting: VecDeque<P>,
}

impl<L, P> Backlog<L, P> {
    /// A backlog of at most `max` requests; it takes none before it is opened.
    pub fn new(max: usize) -> Self {
        Backlog {
            max,
            state: Mutex::new(BacklogState { listening: None, waiting: VecDeque::new() }),
        }
    }

    /// Begins to listen. Requests that come while `listen` runs wait until it has returned.
    pub fn open(&self, listen: impl FnOnce() -> L) {
        self.state.lock().listening = Some(listen());
    }

    /// Calls `f` with what listens, under the lock; `None` once it is closed.
    pub fn with<R>(&self, f: impl FnOnce(&L) -> R) -> Option<R> {
        self.state.lock().listening.as_ref().map(f)
    }

    /// Adds a request.
    ///
    /// # Errors
    /// The request itself, to be refused: the backlog is full or closed.
    pub fn push(&self, request: P) -> std::result::Result<(), P> {
        let mut state = self.state.lock();
        if state.listening.is_none() || state.waiting.len() >= self.max {
            return Err(request);
        }
        state.waiting.push_back(request);
        Ok(())
    }

    /// Takes the oldest request.
    pub fn pop(&self) -> Option<P> {
        self.state.lock().waiting.pop_front()
    }

    /// Takes no more requests; gives what listened, and the requests that wait, to be refused.
    pub fn close(&self) -> (Option<L>, VecDeque<P>) {
        let mut state = self.state.lock();
        (state.listening.take(), std::mem::take(&mut state.waiting))
    }
}

/// The requests that the application took and has not answered.
pub struct RequestTable<P> {
    next: AtomicU64,
    requests: Mutex<HashMap<RequestId, P>>,
}

impl<P> Default for RequestTable<P> {
    fn default() -> Self {
        RequestTable { next: AtomicU64::new(1), requests: Mutex::default() }
    }
}

impl<P> RequestTable<P> {
    /// Adds a request; gives its new number.
    pub fn insert(&self, request: P) -> RequestId {
        let id = RequestId(self.next.fetch_add(1, Ordering::Relaxed));
        self.requests.lock().insert(id, request);
        id
    }

    /// Takes a request, to answer it; `call` is the name of the application's call.
    ///
    /// # Errors
    /// `InvalidState`: it was answered before.
    pub fn take(&self, call: &'static str, id: RequestId) -> Result<P> {
        let request = self.requests.lock().remove(&id);
        request.ok_or_else(|| Error::state(call, "the request was answered before"))
    }

    /// Drops all requests.
    pub fn clear(&self) {
        let requests = std::mem::take(&mut *self.requests.lock());
        drop(requests);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_takes_requests_while_it_is_open_and_has_room() {
        let backlog = Backlog::new(2);
        assert_eq!(backlog.push(0), Err(0), "not open yet");
        backlog.open(|| "socket");
        assert_eq!((backlog.push(1), backlog.push(2), backlog.push(3)), (Ok(()), Ok(()), Err(3)));
        assert_eq!(backlog.pop(), Some(1));
        assert_eq!((backlog.push(4), backlog.with(|socket| socket.len())), (Ok(()), Some(6)));
        let (socket, waiting) = backlog.close();
        assert_eq!((socket, Vec::from(waiting)), (Some("socket"), vec![2, 4]));
        assert_eq!((backlog.push(5), backlog.pop()), (Err(5), None));
        assert!(backlog.with(|_| ()).is_none());
    }

    #[test]
    fn a_request_is_answered_once() {
        let table = RequestTable::default();
        let (one, two) = (table.insert("one"), table.insert("two"));
        assert_ne!(one, two);
        assert_eq!(table.take("accept", two).unwrap(), "two");
        assert!(matches!(table.take("reject", two), Err(Error::InvalidState(_))));
        table.clear();
        assert!(table.take("accept", one).is_err());
    }
}
