//! Waiting for a lease that the peer lends unasked.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Control, Remote};
use crate::error::Result;
use crate::line::Ticket;

/// The next lease that is lent unasked.
pub(crate) struct Borrowing {
    control: Arc<Control>,
    ticket: Ticket,
}

impl Borrowing {
    pub(super) fn new(control: &Arc<Control>) -> Self {
        Borrowing { control: control.clone(), ticket: Ticket::default() }
    }
}

impl Future for Borrowing {
    type Output = Result<Remote>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Borrowing { control, ticket } = &mut *self;
        for wait in [false, true] {
            if wait {
                control.line.join(ticket, cx.waker());
            }
            if let Some(next) = control.next_offer(ticket) {
                control.line.leave(ticket);
                return Poll::Ready(next);
            }
        }
        Poll::Pending
    }
}

impl Drop for Borrowing {
    fn drop(&mut self) {
        self.control.line.leave(&mut self.ticket);
    }
}
