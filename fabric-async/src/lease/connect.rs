//! How the connection for leases comes to be: who connects makes it too, with a token by which the listener knows whose it is.

use std::task::Poll;
use std::time::Instant;

use super::registry::Expected;
use super::terms::after;
use crate::error::{Error, Result};
use crate::hello::Kind;
use crate::link::Link;

impl Link {
    /// Connects the connection for leases too, to the listener that let this one in.
    pub(crate) async fn connect_control(&self, to: std::net::SocketAddr, token: u64) -> Result<()> {
        let control = self.node.leases.add_control(&self.lane)?;
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
        let control = self.node.leases.add_control(&self.lane)?;
        let hello = self.node.hello(Kind::Control, &[], 0);
        request.accept(&control.endpoint, &hello.to_bytes())?;
        control.lane.outcome().await?;
        let _ = self.control.set(control);
        Ok(())
    }
}
