//! Two endpoints that can send to each other, and a way to send what may be lost.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use fabric_async::datagram::{AddressHandle, Datagram, DatagramAttr, DatagramEndpoint};
use fabric_async::{Buffer, NodeBuilder, Payload};

pub(crate) use crate::everywhere::{eventually, node_with};

/// How often a datagram is sent before it counts as one that never comes, and how long each time is waited for it.
const TRIES: u32 = 20;

/// Those that run here.
pub(crate) fn providers() -> Vec<&'static str> {
    crate::everywhere::providers(&["mem", "tcp"])
}

/// Runs it over each provider, by `block_on` and on tokio.
pub(crate) fn everywhere<F>(test: impl Fn(&'static str) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    crate::everywhere::over(providers(), test);
}

pub(crate) struct Pair {
    pub(crate) a: DatagramEndpoint,
    pub(crate) b: DatagramEndpoint,
    pub(crate) to_b: AddressHandle,
}

/// Two endpoints, with these settings of their node and of their own.
pub(crate) async fn pair_with(
    provider: &str,
    node: impl FnOnce(NodeBuilder) -> NodeBuilder,
    settings: impl FnOnce(&mut DatagramAttr),
) -> Pair {
    let node = node_with(provider, node);
    let mut attr = DatagramAttr::default();
    settings(&mut attr);
    let a = DatagramEndpoint::new(&node, &attr).unwrap();
    let b = DatagramEndpoint::new(&node, &attr).unwrap();
    let to_b = a.resolve(&b.address()).await.unwrap();
    Pair { a, b, to_b }
}

pub(crate) async fn pair(provider: &str) -> Pair {
    pair_with(provider, |node| node, |_| ()).await
}

impl Pair {
    pub(crate) fn buffer(&self, bytes: &[u8]) -> Buffer {
        self.a.pool().alloc_from(bytes).unwrap()
    }

    /// Sends what `payload` makes until it arrives at `b`; what arrives besides is passed over. Gives what came back, too.
    pub(crate) async fn deliver<P: Payload>(
        &self,
        number: u32,
        mut payload: impl FnMut() -> P,
    ) -> (P::Back, Datagram) {
        for _ in 0..TRIES {
            let back = self.a.send_to(&self.to_b, payload()).immediate(number).await;
            let back = back.unwrap_or_else(|failed| panic!("{failed}"));
            if let Some(came) = self.next(number).await {
                return (back, came);
            }
        }
        panic!("{TRIES} datagrams, and none came: {}", self.b.dump());
    }

    /// The next datagram at `b` with this number, if one comes soon.
    pub(crate) async fn next(&self, number: u32) -> Option<Datagram> {
        within(Duration::from_secs(1), async {
            loop {
                let came = self.b.recv_from().await.unwrap();
                if came.immediate == Some(number) {
                    return came;
                }
            }
        })
        .await
    }
}

/// What a future gives, if it does in time.
pub(crate) async fn within<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let (late, mut begun) = (Arc::new(AtomicBool::new(false)), false);
    poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        if late.load(Ordering::SeqCst) {
            return Poll::Ready(None);
        }
        if !std::mem::replace(&mut begun, true) {
            let (late, waker) = (late.clone(), cx.waker().clone());
            std::thread::spawn(move || {
                std::thread::sleep(time);
                late.store(true, Ordering::SeqCst);
                waker.wake();
            });
        }
        Poll::Pending
    })
    .await
}

/// Polls a future once, and drops it; whether it was ready.
pub(crate) async fn polled_once<T>(future: impl Future<Output = T>) -> bool {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}
