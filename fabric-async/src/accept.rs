//! Letting peers in, several at a time: one that does not finish its set-up holds up nobody else.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::listener::{Listener, NextRequest};
use crate::lock;

/// So many come in at a time; the others wait at the listener.
const MOST: usize = 64;

/// A peer that is being let in.
type Settling = Pin<Box<dyn Future<Output = Result<Connection>> + Send>>;

/// Who accepts at a listener, and what one who has got its connection leaves to the others.
#[derive(Default)]
pub(crate) struct Acceptors {
    pub(crate) left: Vec<Settling>,
    asleep: HashMap<u64, Waker>,
    named: u64,
}

/// The next connection that stands. Dropped, it leaves those that do not stand yet to the next one.
pub(crate) struct Accepting<'a> {
    name: u64,
    listener: &'a Listener,
    next: NextRequest,
    settling: Vec<Settling>,
}

impl<'a> Accepting<'a> {
    pub(crate) fn new(listener: &'a Listener) -> Self {
        let mut acceptors = lock(&listener.inner.acceptors);
        acceptors.named += 1;
        let name = acceptors.named;
        drop(acceptors);
        Accepting { name, listener, next: listener.request(), settling: Vec::new() }
    }

    /// What `accept` gives, if this is it. Who cannot be let in is passed over.
    fn outcome(&self, done: Result<Connection>) -> Option<Result<Connection>> {
        match done {
            Err(error) if !is_everybodys(&error) => {
                self.listener.inner.node.lines.tell(format_args!("a peer is not let in: {error}"));
                None
            }
            done => Some(done),
        }
    }

    fn poll_settling(&mut self, cx: &mut Context<'_>) -> Option<Result<Connection>> {
        let mut index = 0;
        while let Some(one) = self.settling.get_mut(index) {
            let Poll::Ready(done) = one.as_mut().poll(cx) else {
                index += 1;
                continue;
            };
            drop(self.settling.remove(index));
            if let Some(outcome) = self.outcome(done) {
                return Some(outcome);
            }
        }
        None
    }

    /// Begins with those who ask; `Pending` when nobody does, or enough are under way.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Poll<Result<Connection>> {
        while self.settling.len() < MOST {
            let request = std::task::ready!(Pin::new(&mut self.next).poll(cx))?;
            self.next = self.listener.request();
            let mut one: Settling = Box::pin(request.accept());
            match one.as_mut().poll(cx) {
                Poll::Pending => self.settling.push(one),
                Poll::Ready(done) => {
                    if let Some(outcome) = self.outcome(done) {
                        return Poll::Ready(outcome);
                    }
                }
            }
        }
        // Others may go on in its place.
        self.next = self.listener.request();
        Poll::Pending
    }
}

impl Future for Accepting<'_> {
    type Output = Result<Connection>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            this.settling.append(&mut lock(&this.listener.inner.acceptors).left);
            if let Some(outcome) = this.poll_settling(cx) {
                return Poll::Ready(outcome);
            }
            if let Poll::Ready(outcome) = this.poll_requests(cx) {
                return Poll::Ready(outcome);
            }
            let mut acceptors = lock(&this.listener.inner.acceptors);
            if acceptors.left.is_empty() {
                let old = acceptors.asleep.insert(this.name, cx.waker().clone());
                drop(acceptors);
                drop(old);
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Accepting<'_> {
    fn drop(&mut self) {
        let mut acceptors = lock(&self.listener.inner.acceptors);
        let own = acceptors.asleep.remove(&self.name);
        acceptors.left.append(&mut self.settling);
        let others = match acceptors.left.is_empty() {
            true => HashMap::new(),
            false => std::mem::take(&mut acceptors.asleep),
        };
        drop(acceptors);
        drop(own);
        others.into_values().for_each(Waker::wake);
    }
}

/// Whether nobody at all can be let in.
fn is_everybodys(error: &Error) -> bool {
    use fabric::Error as E;
    matches!(error, Error::Fabric(E::DeviceLost | E::InvalidState(_) | E::Internal(_)))
}
