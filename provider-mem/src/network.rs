//! The addresses of this process that are listened on.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use fabric_util::sync::Mutex;

use crate::acceptor::Acceptor;

/// The first port that is given out; IANA leaves those from here on to such use (RFC 6335, section 6).
const FIRST_PORT: u16 = 49_152;
/// How many there are.
pub(crate) const LAST_PORTS: u16 = u16::MAX - FIRST_PORT;

static LISTENERS: LazyLock<Mutex<HashMap<SocketAddr, Arc<Acceptor>>>> =
    LazyLock::new(Mutex::default);
static NEXT_PORT: AtomicU32 = AtomicU32::new(0);

/// A port for an end that does not listen, or one to try for a listener.
pub(crate) fn next_port() -> u16 {
    let count = NEXT_PORT.fetch_add(1, Ordering::Relaxed);
    FIRST_PORT + (count % u32::from(u16::MAX - FIRST_PORT)) as u16
}

/// The address of an end that connects, at this port or, for 0, at one of those that are given out.
///
/// # Errors
/// `AddrInUse`: a listener has it.
pub(crate) fn source(ip: IpAddr, port: u16) -> io::Result<SocketAddr> {
    let from = SocketAddr::new(ip, if port == 0 { next_port() } else { port });
    let is_taken = port != 0 && find(from).is_some();
    if is_taken { Err(ErrorKind::AddrInUse.into()) } else { Ok(from) }
}

/// Enters a listener under its address, with a free port for port 0.
///
/// # Errors
/// `AddrInUse`: another listener has the address, or all ports are taken.
pub(crate) fn listen(
    addr: SocketAddr,
    make: impl FnOnce(SocketAddr) -> Arc<Acceptor>,
) -> io::Result<Arc<Acceptor>> {
    let mut listeners = LISTENERS.lock();
    let tries = if addr.port() == 0 { usize::from(u16::MAX - FIRST_PORT) } else { 1 };
    let candidates = (0..tries).map(|_| match addr.port() {
        0 => SocketAddr::new(addr.ip(), next_port()),
        _ => addr,
    });
    let free = candidates.into_iter().find(|addr| !listeners.contains_key(addr));
    let addr = free.ok_or(ErrorKind::AddrInUse)?;
    let acceptor = make(addr);
    listeners.insert(addr, acceptor.clone());
    Ok(acceptor)
}

/// The listener at an address.
pub(crate) fn find(addr: SocketAddr) -> Option<Arc<Acceptor>> {
    LISTENERS.lock().get(&addr).cloned()
}

/// Closes a listener, which is not found from now on.
pub(crate) fn close(acceptor: &Acceptor) {
    let removed = LISTENERS.lock().remove(&acceptor.addr);
    drop(removed);
    acceptor.close();
}

/// All listeners.
pub(crate) fn all() -> Vec<Arc<Acceptor>> {
    LISTENERS.lock().values().cloned().collect()
}
