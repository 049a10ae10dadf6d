//! A connection as the port of its operations: what all of them have in common.

use std::sync::Arc;
use std::task::Waker;

use fabric::{Completion, CompletionQueue, Op};

use crate::conn::Conn;
use crate::conn_source::ConnKeeps;
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::lease::RemoteTarget;
use crate::op_future::Port;
use crate::receives::InboxOwner;
use crate::wait_queue::Waiter;

impl Port for Arc<Conn> {
    type Source = CompletionQueue;
    type Place = Waiter;
    type Posted = ();

    const POSTS_UNDER_LOCK: bool = true;

    #[inline]
    fn driver(&self) -> &Driver<CompletionQueue> {
        &self.node.driver
    }

    #[inline]
    fn watch(&self) -> bool {
        self.node.watch()
    }

    #[inline]
    fn is_turn(&self, place: &mut Waiter, waker: Option<&Waker>) -> bool {
        self.conn_state.room.is_turn(place, waker)
    }

    #[inline]
    fn leave(&self, place: &mut Waiter) {
        self.conn_state.room.leave(place);
    }

    fn is_alive(&self) -> bool {
        Conn::is_alive(self)
    }

    /// How the connection ended: that takes events, which wake others.
    fn explain(&self, error: Error) -> Error {
        InboxOwner::explain(&**self, error)
    }
}

impl Conn {
    /// Posts an operation; `None`: there is no room now.
    #[inline]
    pub(crate) fn post(&self, op: &Op<'_>, context: u64) -> Result<Option<()>> {
        match self.endpoint.post(&op.context(context)) {
            Ok(()) => Ok(Some(())),
            Err(fabric::Error::Again) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// What an operation of the connection keeps.
    #[inline]
    pub(crate) fn keeps(&self, target: Option<&RemoteTarget>) -> ConnKeeps {
        let lease = target.and_then(|at| at.lease.clone());
        ConnKeeps { conn_state: Some(self.conn_state.clone()), lease }
    }

    /// Why an operation ended badly.
    pub(crate) fn error_of(&self, completion: &Completion) -> Error {
        // The event comes before the completions that it causes; it may not have been taken yet.
        self.node.router.take_events();
        Error::of(completion.status, self.conn_state.end())
    }
}
