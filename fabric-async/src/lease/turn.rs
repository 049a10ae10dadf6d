//! Waiting for one's turn in a line of a control: for a lease that the peer lends unasked, or for room to ask it something.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::control::Control;
use crate::error::Result;
use crate::line::{Line, Ticket};

/// Tries, first come, first served, until there is an outcome. Dropped, it gives up its place.
pub(super) struct Turn<F> {
    control: Arc<Control>,
    line: fn(&Control) -> &Arc<Line>,
    ticket: Ticket,
    attempt: F,
}

impl<F> Turn<F> {
    pub(super) fn new(
        control: &Arc<Control>,
        line: fn(&Control) -> &Arc<Line>,
        attempt: F,
    ) -> Self {
        Turn { control: control.clone(), line, ticket: Ticket::default(), attempt }
    }
}

impl<T, F> Future for Turn<F>
where
    F: FnMut(&Control, &Ticket) -> Option<Result<T>> + Unpin,
{
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Turn { control, line, ticket, attempt } = &mut *self;
        let line = line(control);
        for wait in [false, true] {
            if wait {
                line.join(ticket, cx.waker());
            }
            if let Some(outcome) = attempt(control, ticket) {
                line.leave(ticket);
                return Poll::Ready(outcome);
            }
        }
        Poll::Pending
    }
}

impl<F> Drop for Turn<F> {
    fn drop(&mut self) {
        (self.line)(&self.control).leave(&mut self.ticket);
    }
}
