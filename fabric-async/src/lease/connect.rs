//! How the connection for leases comes to be: who connects makes it too, with a token by which the listener knows whose it is.

use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use fabric::ConnectRequest;

use super::{Control, after};
use crate::error::{Error, Result};
use crate::hello::{Hello, Kind};
use crate::link::Link;
use crate::node::{NodeInner, Promise};
use crate::wakers::Wakers;

impl Link {
    /// Connects the connection for leases too, to the listener that let this one in.
    pub(crate) async fn connect_control(&self, to: std::net::SocketAddr, token: u64) -> Result<()> {
        let control = Control::new(&self.node, &self.lane)?;
        let mut hello = self.node.hello(Kind::Control, &[]);
        hello.token = token;
        control.endpoint.connect(to, &hello.to_bytes())?;
        control.lane.outcome().await?;
        let _ = self.control.set(control);
        Ok(())
    }

    /// Lets in the connection for leases, which the peer makes now.
    pub(crate) async fn accept_control(&self, expected: Expected) -> Result<()> {
        let patience = self.endpoint.attr().connect_timeout;
        let deadline = after(Instant::now(), patience);
        let lane = &self.lane;
        let mut timer = self.node.service.timer();
        let mut request = std::future::poll_fn(|cx| {
            if let Poll::Ready(request) = expected.promise.poll(cx) {
                return Poll::Ready(Ok(request));
            }
            if let Some(reason) = lane.poll_end(cx.waker()) {
                return Poll::Ready(Err(Error::Disconnected(reason)));
            }
            if Instant::now() >= deadline {
                return Poll::Ready(Err(Error::TimedOut(patience)));
            }
            timer.wake_at(deadline, cx.waker());
            Poll::Pending
        })
        .await?;
        let control = Control::new(&self.node, &self.lane)?;
        let hello = self.node.hello(Kind::Control, &[]);
        request.accept(&control.endpoint, &hello.to_bytes())?;
        control.lane.outcome().await?;
        let _ = self.control.set(control);
        Ok(())
    }
}

/// A connection for leases that a peer will make, or not.
pub(crate) struct Expected {
    node: Arc<NodeInner>,
    token: u64,
    promise: Arc<Promise<ConnectRequest>>,
}

impl Drop for Expected {
    fn drop(&mut self) {
        self.node.expected().remove(&self.token);
    }
}

impl NodeInner {
    /// The peer with this token will make a connection for leases. `None` if another one says the same.
    pub(crate) fn expect(self: &Arc<Self>, token: u64) -> Option<Expected> {
        let promise = Promise::new();
        let mut expected = self.expected();
        if expected.contains_key(&token) {
            return None;
        }
        expected.insert(token, promise.clone());
        drop(expected);
        Some(Expected { node: self.clone(), token, promise })
    }

    /// A peer makes a connection for leases.
    pub(crate) fn take_control(
        &self,
        mut request: ConnectRequest,
        hello: &Hello,
        wakers: &mut Wakers,
    ) {
        let promise = self.expected().remove(&hello.token);
        match promise {
            Some(promise) => promise.keep(request, wakers),
            None => crate::listener::reject(&mut request, "no connection waits for its leases"),
        }
    }
}
