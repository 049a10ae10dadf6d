//! Addresses as people write them.

use std::net::{SocketAddr, ToSocketAddrs};

use crate::error::{Error, Result};
use crate::node::Promise;
use crate::wakers::Wakers;

/// An address to connect to or listen on: a [`SocketAddr`], or text: `"10.0.0.7:7471"`, `"[::1]:7471"`, `"storage-3:7471"`.
/// Sealed.
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

/// The address; a name is resolved by a thread of its own, since that blocks.
pub(crate) async fn resolve(given: Result<SocketAddr, String>) -> Result<SocketAddr> {
    let name = match given {
        Ok(addr) => return Ok(addr),
        Err(name) => name,
    };
    let fail = |name, cause| Err(Error::Address { name, cause });
    let promise = Promise::new();
    let (keeper, wanted) = (promise.clone(), name.clone());
    let thread = std::thread::Builder::new().name("fabric-resolve".to_owned());
    let spawned = thread.spawn(move || {
        let found = wanted.to_socket_addrs().map(|mut all| all.next());
        keeper.keep(found, &mut Wakers::new());
    });
    if let Err(cause) = spawned {
        return fail(name, cause);
    }
    match promise.value().await {
        Ok(Some(addr)) => Ok(addr),
        Ok(None) => fail(name, std::io::ErrorKind::NotFound.into()),
        Err(cause) => fail(name, cause),
    }
}
