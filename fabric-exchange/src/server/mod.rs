//! The TCP server: where it listens, and how it is started and ended.

mod connection;
mod options;
mod reactor;
mod service;
mod waits;

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use mio::Waker;

use crate::error::{ExchangeError, Result};
pub use options::ServerOptions;
use reactor::Reactor;

/// A server that listens, and does not serve yet.
pub struct Server {
    reactor: Reactor,
    local_addr: SocketAddr,
    stop: Stop,
}

impl Server {
    /// Listens on this address; port 0 is any that is free.
    ///
    /// # Errors
    /// `Invalid` for limits that cannot be; `Storage` if the address cannot be had, or the system has no descriptor left.
    pub fn bind(address: impl ToSocketAddrs, options: ServerOptions) -> Result<Self> {
        options.limits.check()?;
        let failed = |error: io::Error| ExchangeError::Storage(format!("cannot listen: {error}"));
        let listener = std::net::TcpListener::bind(address).map_err(failed)?;
        let local_addr = listener.local_addr().map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (reactor, waker) =
            Reactor::new(listener, options, Arc::clone(&is_over)).map_err(failed)?;
        let stop = Stop { is_over, waker: Arc::new(waker) };
        Ok(Server { reactor, local_addr, stop })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Serves until the system fails.
    ///
    /// # Errors
    /// `Storage`: the system cannot wait for sockets any more.
    pub fn run(mut self) -> Result<()> {
        self.reactor
            .run()
            .map_err(|error| ExchangeError::Storage(format!("cannot wait for sockets: {error}")))
    }

    /// Serves in a thread of its own, until what it gives is dropped.
    ///
    /// # Errors
    /// `Storage`: the system has no thread.
    pub fn spawn(self) -> Result<RunningServer> {
        let (local_addr, stop) = (self.local_addr, self.stop.clone());
        let thread = thread::Builder::new().name("fabric-rendezvous".into());
        let thread = thread.spawn(move || self.run()).map_err(|error| {
            ExchangeError::Storage(format!("cannot start the server's thread: {error}"))
        })?;
        Ok(RunningServer { local_addr, stop, thread: Some(thread) })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.local_addr)
    }
}

/// How the server's thread is ended.
#[derive(Clone)]
struct Stop {
    is_over: Arc<AtomicBool>,
    waker: Arc<Waker>,
}

/// A server in a thread of its own. When it is dropped the server ends, and every connection with it.
pub struct RunningServer {
    local_addr: SocketAddr,
    stop: Stop,
    thread: Option<JoinHandle<Result<()>>>,
}

impl RunningServer {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Ends it.
    ///
    /// # Errors
    /// As [`Server::run`], if it ended before.
    pub fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        self.stop.is_over.store(true, Ordering::Release);
        self.stop.waker.wake().map_err(|error| {
            ExchangeError::Storage(format!("cannot wake the server's thread: {error}"))
        })?;
        let panicked = || ExchangeError::Storage("the server's thread panicked".to_owned());
        thread.join().unwrap_or_else(|_| Err(panicked()))
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

impl fmt::Debug for RunningServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunningServer({})", self.local_addr)
    }
}

#[cfg(test)]
pub(crate) mod tests;
