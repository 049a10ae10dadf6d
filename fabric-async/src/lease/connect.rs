//! How the connection for leases comes to be: who connects makes it too, with a token by which the listener knows whose it is.

use std::sync::{Arc, Weak};
use std::task::Poll;

use fabric::{Access, PendingGrant, Region};

use super::control::{GrantsTo, UserConnection};
use super::registry::ExpectedControl;
use crate::conn::Conn;
use crate::error::{Error, Result};
use crate::handshake::Kind;
use crate::timers::within;

impl Conn {
    fn user_connection(self: &Arc<Self>) -> UserConnection {
        let grants_to: Weak<Conn> = Arc::downgrade(self);
        let (id, conn_state) = (self.endpoint.id(), self.conn_state.clone());
        UserConnection { id, conn_state, grants_to }
    }

    /// Connects the connection for leases too, to the listener that let this one in.
    pub(crate) async fn connect_control(
        self: &Arc<Self>,
        to: std::net::SocketAddr,
        token: u64,
    ) -> Result<()> {
        let control = self.node.leases.add_control(self.user_connection())?;
        let handshake = self.node.handshake(Kind::Control, &[], token);
        control.endpoint.connect(to, &handshake.to_bytes())?;
        control.conn_state.outcome().await?;
        let _ = self.control.set(control);
        Ok(())
    }

    /// Lets in the connection for leases, which the peer makes now.
    pub(crate) async fn accept_control(self: &Arc<Self>, expected: ExpectedControl) -> Result<()> {
        let patience = self.endpoint.attr().connect_timeout;
        let mut end = self.conn_state.wait();
        let mut request = within(self.node.reactor.timer(), patience, |cx| {
            if let Poll::Ready(request) = expected.oneshot.poll(cx) {
                return Poll::Ready(Ok(request));
            }
            end.poll_end(cx).map(|reason| Err(Error::Disconnected(reason)))
        })
        .await?;
        let control = self.node.leases.add_control(self.user_connection())?;
        let handshake = self.node.handshake(Kind::Control, &[], 0);
        request.accept(&control.endpoint, &handshake.to_bytes())?;
        control.conn_state.outcome().await?;
        let _ = self.control.set(control);
        Ok(())
    }
}

impl GrantsTo for Conn {
    fn begin_grant(&self, region: &Region, rights: Access) -> fabric::Result<PendingGrant> {
        region.begin_grant(&self.endpoint, .., rights)
    }
}
