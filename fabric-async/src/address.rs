//! Addresses as people write them.

use std::net::{SocketAddr, ToSocketAddrs};

use crate::error::{Error, Result};
use crate::oneshot::Oneshot;
use crate::wakers::Wakers;

/// An address to connect to or listen on: a [`SocketAddr`], or text: `"10.0.0.7:7471"`, `"[::1]:7471"`, `"storage-3:7471"`.
/// The addresses of a name are tried in the resolver's order. Sealed.
///
/// ```
/// use fabric_async::{Listener, block_on};
/// use std::net::SocketAddr;
///
/// // A socket address, or text with a port; names are resolved.
/// let listener = block_on(Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0))))?;
/// let other = block_on(Listener::bind("localhost:0"))?;
/// assert_ne!(listener.local_addr(), other.local_addr());
/// # Ok::<(), fabric_async::Error>(())
/// ```
pub trait Address: sealed::Sealed {
    #[doc(hidden)]
    fn given(self) -> Result<SocketAddr, String>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for std::net::SocketAddr {}
    impl Sealed for &str {}
    impl Sealed for String {}
    impl Sealed for &String {}
}

impl Address for SocketAddr {
    fn given(self) -> Result<SocketAddr, String> {
        Ok(self)
    }
}

impl Address for &str {
    fn given(self) -> Result<SocketAddr, String> {
        self.parse().map_err(|_| self.to_owned())
    }
}

impl Address for String {
    fn given(self) -> Result<SocketAddr, String> {
        self.parse().map_err(|_| self)
    }
}

impl Address for &String {
    fn given(self) -> Result<SocketAddr, String> {
        self.as_str().given()
    }
}

/// What an address is of: one, or those of a name, in the resolver's order.
pub(crate) struct Resolved {
    /// As it was written.
    pub(crate) name: String,
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Resolved {
    /// What it is where there is no address at all.
    pub(crate) fn nothing(&self) -> Error {
        let cause = std::io::ErrorKind::NotFound.into();
        Error::Address { name: self.name.clone(), cause }
    }
}

/// The addresses; a name is resolved by a thread of its own, since that blocks.
pub(crate) async fn resolve(given: Result<SocketAddr, String>) -> Result<Resolved> {
    let name = match given {
        Ok(addr) => return Ok(Resolved { name: addr.to_string(), addresses: vec![addr] }),
        Err(name) => name,
    };
    let oneshot = Oneshot::new();
    let (keeper, wanted) = (oneshot.clone(), name.clone());
    let thread = std::thread::Builder::new().name("fabric-resolve".to_owned());
    let spawned = thread.spawn(move || {
        let found = wanted.to_socket_addrs().map(Vec::from_iter);
        keeper.send(found, &mut Wakers::new());
    });
    if let Err(cause) = spawned {
        return Err(Error::Address { name, cause });
    }
    match oneshot.value().await {
        Ok(addresses) => Ok(Resolved { name, addresses }),
        Err(cause) => Err(Error::Address { name, cause }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_all_their_addresses() {
        let found = crate::block_on(resolve("127.0.0.1:7".given())).unwrap();
        assert_eq!(found.addresses, [([127, 0, 0, 1], 7).into()]);
        let found = crate::block_on(resolve("localhost:7".given())).unwrap();
        let expected: Vec<_> = "localhost:7".to_socket_addrs().unwrap().collect();
        assert_eq!(found.addresses, expected);
    }
}
