//! Connection requests: those that wait at a listener, and those that the application took and has not answered.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_core::Error;
use fabric_core::provider::RequestId;

use crate::fair_table::FairTable;
use crate::sync::Mutex;

/// What listens (`L`, a socket for example), and the requests (`P`) that wait for the application, up to a number.
///
/// They are shared by the network that they come from: where one has most of a full backlog, a request from elsewhere takes
/// the place of its oldest.
pub struct Backlog<L, P> {
    max: usize,
    state: Mutex<BacklogState<L, P>>,
}

struct BacklogState<L, P> {
    listening: Option<L>,
    waiting: FairTable<P>,
}

impl<L, P> Backlog<L, P> {
    /// A backlog of at most `max` requests; it takes none before it is opened.
    pub fn new(max: usize) -> Self {
        Backlog {
            max,
            state: Mutex::new(BacklogState { listening: None, waiting: FairTable::default() }),
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

    /// Adds a request, under a key that no other has: the least one is the oldest. Gives the request that had to leave for
    /// it, to be refused.
    ///
    /// # Errors
    /// The request itself, to be refused: the backlog is closed, or full, and no network has more of it than this one would.
    pub fn push(&self, key: u64, from: SocketAddr, request: P) -> Result<Option<P>, P> {
        let mut state = self.state.lock();
        if state.listening.is_none() {
            return Err(request);
        }
        state.waiting.insert_up_to(self.max, key, from.ip(), request)
    }

    /// Takes the oldest request.
    pub fn pop(&self) -> Option<P> {
        self.state.lock().waiting.pop_oldest()
    }

    /// Takes a request out, since its peer has left; `None`: the application took it, or it was refused.
    pub fn remove(&self, key: u64) -> Option<P> {
        self.state.lock().waiting.remove(key)
    }

    /// Takes out the requests whose peers have left, where no event says so.
    pub fn extract_if(&self, has_left: impl Fn(&P) -> bool) -> Vec<P> {
        self.state.lock().waiting.extract_if(has_left)
    }

    /// Takes no more requests; gives what listened, and the requests that wait, to be refused.
    pub fn close(&self) -> (Option<L>, impl ExactSizeIterator<Item = P> + use<L, P>) {
        let mut state = self.state.lock();
        (state.listening.take(), state.waiting.take_all())
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
    pub fn take(&self, call: &'static str, id: RequestId) -> Result<P, Error> {
        let request = self.requests.lock().remove(&id);
        request.ok_or_else(|| Error::state(call, "the request was answered before"))
    }

    /// Calls `f` with a request, under the lock; `None` once it was answered.
    pub fn with<R>(&self, id: RequestId, f: impl FnOnce(&P) -> R) -> Option<R> {
        self.requests.lock().get(&id).map(f)
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

    fn from(host: u8) -> SocketAddr {
        ([192, 0, 2, host], 7471).into()
    }

    #[test]
    fn a_backlog_takes_requests_while_it_is_open_and_has_room() {
        let backlog = Backlog::new(2);
        let push = |number| backlog.push(number, from(1), number);
        assert_eq!(push(0), Err(0), "not open yet");
        backlog.open(|| "socket");
        assert_eq!((push(1), push(2), push(3)), (Ok(None), Ok(None), Err(3)));
        assert_eq!(backlog.pop(), Some(1));
        assert_eq!((push(4), backlog.with(|socket| socket.len())), (Ok(None), Some(6)));
        let (socket, waiting) = backlog.close();
        assert_eq!((socket, waiting.collect()), (Some("socket"), vec![2, 4]));
        assert_eq!((push(5), backlog.pop()), (Err(5), None));
        assert!(backlog.with(|_| ()).is_none());
    }

    #[test]
    fn a_crowd_from_one_place_makes_room_for_others() {
        let backlog = Backlog::new(3);
        backlog.open(|| ());
        let push = |number, host| backlog.push(number, from(host), number);
        assert_eq!((push(1, 1), push(2, 1), push(3, 1)), (Ok(None), Ok(None), Ok(None)));
        assert_eq!(push(4, 1), Err(4), "its own do not leave");
        assert_eq!((push(5, 2), push(6, 3)), (Ok(Some(1)), Ok(Some(2))));
        assert_eq!(push(7, 4), Err(7), "none has more than one");
        assert_eq!((backlog.remove(5), backlog.remove(5)), (Some(5), None));
        assert_eq!(push(8, 4), Ok(None));
        assert_eq!([backlog.pop(), backlog.pop(), backlog.pop()], [Some(3), Some(6), Some(8)]);
    }

    #[test]
    fn a_request_is_answered_once() {
        let table = RequestTable::default();
        let (one, two) = (table.insert("one"), table.insert("two"));
        assert_ne!(one, two);
        assert_eq!(
            (table.with(two, |two| two.len()), table.with(RequestId(9), |_| 0)),
            (Some(3), None)
        );
        assert_eq!(table.take("accept", two).unwrap(), "two");
        assert!(matches!(table.take("reject", two), Err(Error::InvalidState(_))));
        table.clear();
        assert!(table.take("accept", one).is_err());
    }
}
