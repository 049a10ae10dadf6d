//! One future after the other, as a stream: what the streams of this crate do.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::error::Result;

/// The result of the next future, behind which `another` is to follow; the first error is the last item, and leaves none.
pub(crate) fn poll_following<F, T>(
    next: &mut Option<F>,
    cx: &mut Context<'_>,
    another: impl FnOnce(&F) -> F,
) -> Poll<Option<Result<T>>>
where
    F: Future<Output = Result<T>> + Unpin,
{
    let Some(future) = next else { return Poll::Ready(None) };
    let item = ready!(Pin::new(&mut *future).poll(cx));
    let then = item.is_ok().then(|| another(future));
    *next = then;
    Poll::Ready(Some(item))
}
