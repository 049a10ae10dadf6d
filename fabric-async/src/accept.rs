//! Letting peers in, several at a time: one that does not finish its set-up holds up nobody else.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::listener::{Listener, NextRequest};
use crate::lock;

/// So many come in at a time; the others wait at the listener.
const MOST: usize = 64;

/// A peer that is being let in.
pub(crate) type Settling = Pin<Box<dyn Future<Output = Result<Connection>> + Send>>;

/// The next connection that stands. Dropped, it leaves those that do not stand yet to the next one.
pub(crate) struct Accepting<'a> {
    listener: &'a Listener,
    next: NextRequest,
    settling: Vec<Settling>,
}

impl<'a> Accepting<'a> {
    pub(crate) fn new(listener: &'a Listener) -> Self {
        Accepting { listener, next: listener.request(), settling: Vec::new() }
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
}

impl Future for Accepting<'_> {
    type Output = Result<Connection>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.settling.append(&mut lock(&this.listener.inner.settling));
        if let Some(outcome) = this.poll_settling(cx) {
            return Poll::Ready(outcome);
        }
        while this.settling.len() < MOST {
            let request = std::task::ready!(Pin::new(&mut this.next).poll(cx))?;
            this.next = this.listener.request();
            let mut one: Settling = Box::pin(request.accept());
            match one.as_mut().poll(cx) {
                Poll::Pending => this.settling.push(one),
                Poll::Ready(done) => {
                    if let Some(outcome) = this.outcome(done) {
                        return Poll::Ready(outcome);
                    }
                }
            }
        }
        // Others may go on in its place.
        this.next = this.listener.request();
        Poll::Pending
    }
}

impl Drop for Accepting<'_> {
    fn drop(&mut self) {
        if !self.settling.is_empty() {
            lock(&self.listener.inner.settling).append(&mut self.settling);
            // Another one that waits takes care of them.
            self.listener.inner.line.wake_first();
        }
    }
}

/// Whether nobody at all can be let in.
fn is_everybodys(error: &Error) -> bool {
    use fabric::Error as E;
    matches!(error, Error::Fabric(E::DeviceLost | E::InvalidState(_) | E::Internal(_)))
}
