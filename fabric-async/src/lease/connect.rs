//! How the connection for leases comes to be: who connects makes it too, with a token by which the listener knows whose it is.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use fabric::ConnectRequest;

use super::Control;
use super::terms::after;
use crate::error::{Error, Result};
use crate::hello::{Hello, Kind};
use crate::link::Link;
use crate::node::NodeInner;
use crate::oneshot::Promise;
use crate::wakers::Wakers;

impl Link {
    /// Connects the connection for leases too, to the listener that let this one in.
    pub(crate) async fn connect_control(&self, to: std::net::SocketAddr, token: u64) -> Result<()> {
        let control = Control::new(&self.node, &self.lane)?;
        let hello = self.node.hello(Kind::Control, &[], token);
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
        let mut timer = self.node.reactor.timer();
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
        let hello = self.node.hello(Kind::Control, &[], 0);
        request.accept(&control.endpoint, &hello.to_bytes())?;
        control.lane.outcome().await?;
        let _ = self.control.set(control);
        Ok(())
    }
}

/// Whose connection for leases it is: the token that both connections give, and the address that both come from.
pub(crate) type Whose = (u64, IpAddr);

/// A connection for leases that a peer will make, or not.
pub(crate) struct Expected {
    node: Arc<NodeInner>,
    whose: Whose,
    promise: Arc<Promise<ConnectRequest>>,
}

impl Drop for Expected {
    fn drop(&mut self) {
        let promise = self.node.expected().remove(&self.whose);
        drop(promise); // not under the lock
    }
}

impl NodeInner {
    /// The peer at this address will make a connection for leases, with this token. `None` if another one there says the same.
    pub(crate) fn expect(self: &Arc<Self>, token: u64, from: IpAddr) -> Option<Expected> {
        let (promise, whose) = (Promise::new(), (token, from));
        let mut expected = self.expected();
        if expected.contains_key(&whose) {
            return None;
        }
        expected.insert(whose, promise.clone());
        drop(expected);
        Some(Expected { node: self.clone(), whose, promise })
    }

    /// A peer makes a connection for leases.
    pub(crate) fn take_control(
        &self,
        mut request: ConnectRequest,
        hello: &Hello,
        wakers: &mut Wakers,
    ) {
        // A token alone does not do: it goes over the network in clear.
        let promise = self.expected().remove(&(hello.token, request.peer_addr().ip()));
        match promise {
            Some(promise) => promise.keep(request, wakers),
            None => crate::listener::reject(&mut request, "no connection waits for its leases"),
        }
    }
}
