//! How a connection is made at the side that asks for it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::address::{Address, Resolved, resolve};
use crate::conn::Conn;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::handshake::{Handshake, Kind};
use crate::node::Node;

/// An attempt at one of several addresses has at least this long.
const MIN_SHARE: Duration = Duration::from_millis(10);

impl Connection {
    /// Connects to a [`Listener`](crate::Listener), on the [shared node](Node::shared).
    ///
    /// ```
    /// use fabric_async::{Connection, Listener, block_on};
    ///
    /// let listener = block_on(Listener::bind("127.0.0.1:0"))?;
    /// let to = listener.local_addr(); // of another machine, as a rule
    /// let client = std::thread::spawn(move || block_on(Connection::connect(to)));
    /// let peer = block_on(listener.accept())?;
    /// assert_eq!(client.join().unwrap()?.peer_addr(), Some(to));
    /// # drop(peer);
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Node::shared`]; `Address` for a name that cannot be resolved; the fabric's: `Refused`, `Unreachable`,
    /// `TimedOut`, or `Unreached` with the last of them for a name of several addresses, which are tried one after the other
    /// and share the connect time-out; `Unauthenticated` if the ends do not have the same security, secret or trusted identities;
    /// `DeviceLost`; and `InvalidArgument` if the node's completion queue has no room for another connection; `Rejected` with
    /// the peer's words; `Protocol` if the peer does not use this crate.
    pub async fn connect(to: impl Address) -> Result<Connection> {
        let given = to.given();
        Node::shared()?.connect_given(given, &[]).await
    }
}

impl Node {
    /// Connects to a [`Listener`](crate::Listener).
    ///
    /// ```
    /// use fabric_async::{Node, block_on};
    ///
    /// let node = Node::builder().max_message(100).build()?;
    /// let listener = block_on(node.listen("127.0.0.1:0"))?;
    /// let to = listener.local_addr();
    /// let accepting = std::thread::spawn(move || block_on(listener.accept()));
    /// let conn = block_on(node.connect(to))?;
    /// assert_eq!(conn.max_message(), 100);
    /// # assert_eq!(accepting.join().unwrap()?.peer_addr(), conn.local_addr());
    /// # Ok::<(), fabric_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Connection::connect`].
    pub async fn connect(&self, to: impl Address) -> Result<Connection> {
        let given = to.given();
        self.connect_given(given, &[]).await
    }

    /// Connects, with up to 32 bytes for the peer's application, which sees them before it accepts
    /// ([`Request::data`](crate::Request::data)).
    ///
    /// ```
    /// use fabric_async::{Node, block_on};
    ///
    /// # fn main() -> Result<(), fabric_async::Error> {
    /// let node = Node::builder().build()?;
    /// let listener = block_on(node.listen("127.0.0.1:0"))?;
    /// let to = listener.local_addr();
    /// let other = node.clone();
    /// let client = std::thread::spawn(move || block_on(other.connect_with(to, b"who I am")));
    /// let request = block_on(listener.request())?;
    /// assert_eq!(request.data(), b"who I am");
    /// let conn = block_on(request.accept_with(b"welcome"))?;
    /// assert_eq!(conn.peer_data(), b"who I am");
    /// assert_eq!(client.join().unwrap()?.peer_data(), b"welcome");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Connection::connect`], and the fabric's `InvalidArgument` for too many bytes.
    pub async fn connect_with(&self, to: impl Address, data: &[u8]) -> Result<Connection> {
        let given = to.given();
        self.connect_given(given, data).await
    }

    async fn connect_given(
        &self,
        given: Result<SocketAddr, String>,
        data: &[u8],
    ) -> Result<Connection> {
        self.connect_found(resolve(given).await?, data).await
    }

    /// Tries the addresses one after the other, each for its share of the time that is left.
    async fn connect_found(&self, found: Resolved, data: &[u8]) -> Result<Connection> {
        let (began, whole) = (Instant::now(), self.inner.connect_timeout());
        let mut last = None;
        for (index, to) in found.addresses.iter().enumerate() {
            let shares = (found.addresses.len() - index) as u32;
            let time = whole.saturating_sub(began.elapsed()) / shares;
            match self.connect_one(*to, data, time.max(MIN_SHARE)).await {
                // Another one may do.
                Err(error) if is_of_the_address(&error) => last = Some(error),
                done => return done,
            }
        }
        match last {
            None => Err(found.nothing()),
            Some(error) if found.addresses.len() == 1 => Err(error),
            Some(error) => {
                let Resolved { name, addresses: tried } = found;
                Err(Error::Unreached { name, tried, last: Box::new(error) })
            }
        }
    }

    async fn connect_one(&self, to: SocketAddr, data: &[u8], time: Duration) -> Result<Connection> {
        let conn = Conn::new(&self.inner, time)?;
        let handshake = self.inner.handshake(Kind::User, data, crate::random()?);
        conn.endpoint.connect(to, &handshake.to_bytes())?;
        let peer = Handshake::from_bytes(&conn.conn_state.outcome().await?)?;
        if handshake.leases && peer.leases {
            conn.connect_control(to, handshake.token).await?;
        }
        let _ = conn.peer.set(peer);
        Ok(Connection::new(conn))
    }
}

/// Whether another address of the same host may succeed: there was no answer.
fn is_of_the_address(error: &Error) -> bool {
    use fabric::Error as E;
    matches!(error, Error::Fabric(E::Refused(_) | E::TimedOut(_) | E::Unreachable(_)))
}

impl crate::node::NodeInner {
    /// This side's introduction.
    pub(crate) fn handshake(&self, kind: Kind, data: &[u8], token: u64) -> Handshake {
        Handshake {
            kind,
            leases: self.options.leases,
            max_message: self.options.conn.max_message as u32,
            token,
            data: data.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Node, block_on};

    /// Addresses without a listener, and one with one.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no sockets")]
    fn addresses_of_a_name_are_tried_in_turn() {
        let node = Node::shared().unwrap();
        let ip = node.domain().info().addresses.iter().copied();
        let ip = ip.min_by_key(|ip| !ip.is_loopback()).unwrap();
        let listen = || block_on(node.listen(SocketAddr::new(ip, 0))).unwrap();
        let (gone, here) = (listen(), listen());
        let (nowhere, to) = (gone.local_addr(), here.local_addr());
        drop(gone);
        let found = |addresses: &[SocketAddr]| {
            let name = "storage-3:7471".to_owned();
            Resolved { name, addresses: addresses.to_vec() }
        };

        let connecting = node.clone();
        let first_fails = found(&[nowhere, to]);
        let client =
            std::thread::spawn(move || block_on(connecting.connect_found(first_fails, &[])));
        let peer = block_on(here.accept()).unwrap();
        assert_eq!(client.join().unwrap().unwrap().local_addr(), peer.peer_addr());

        let error = block_on(node.connect_found(found(&[nowhere, nowhere]), &[])).unwrap_err();
        let kind = std::io::Error::from(error).kind();
        assert_eq!(kind, std::io::ErrorKind::ConnectionRefused);
        let error = block_on(node.connect_found(found(&[nowhere, nowhere]), &[])).unwrap_err();
        let text = error.to_string();
        let both =
            format!("no address of storage-3:7471 could be connected to ({nowhere}, {nowhere})");
        assert!(text.starts_with(&both), "{text}");
        let error = block_on(node.connect_found(found(&[nowhere]), &[])).unwrap_err();
        assert!(matches!(error, Error::Fabric(fabric::Error::Refused(_))), "{error}");
        assert!(matches!(
            block_on(node.connect_found(found(&[]), &[])),
            Err(Error::Address { .. })
        ));
    }
}
