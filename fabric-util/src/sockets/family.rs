//! What a provider over sockets says of them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use fabric_core::{EndpointAttr, Memory, Result};

use crate::region_table::Windows;
use crate::stats::Stats;
use crate::stream::Transport;

/// A kind of stream sockets, whose ends are named by `ip:port`. No call blocks.
pub trait SocketFamily: Send + Sync + 'static {
    /// The provider's name.
    const NAME: &'static str;
    /// The provider's version.
    const VERSION: &'static str;
    /// The name of a domain's thread, at most 15 bytes (pthread_setname_np(3)).
    const THREAD: &'static str;

    /// Whether its transports do something when they are [armed](Transport::arm).
    const ARMS: bool = false;

    /// See [`EventLoop::FEW`](crate::progress::EventLoop::FEW).
    const FEW: usize = 4;
    /// See [`EventLoop::PATIENCE`](crate::progress::EventLoop::PATIENCE).
    const PATIENCE: u32 = 512;
    /// See [`EventLoop::EVENTS_EVERY`](crate::progress::EventLoop::EVENTS_EVERY).
    const EVENTS_EVERY: u64 = 32;
    /// See [`EventLoop::MAX_DEFERRED`](crate::progress::EventLoop::MAX_DEFERRED).
    const MAX_DEFERRED: usize = 64 << 10;

    /// What the peers of a domain reach of its memory by themselves.
    type Memory: PeerMemory;
    /// A socket that listens.
    type Listener: AsFd + Send + Sync;
    /// A socket that is connected or becomes so.
    type Transport: SocketTransport;

    /// Listens; gives the address with the real port, too. The kernel holds as many connections as it can: which of them
    /// are taken, and how many, is decided here.
    ///
    /// # Errors
    /// As bind(2) and listen(2).
    fn listen(addr: SocketAddr) -> io::Result<(Self::Listener, SocketAddr)>;

    /// Takes a connection that has come. `WouldBlock`: there is none.
    ///
    /// # Errors
    /// As accept(2). `ConnectionAborted` for one that is of no use: the next may be.
    fn accept(
        listener: &Self::Listener,
        shared: &Shared<Self::Memory>,
    ) -> io::Result<Arrival<Self::Transport>>;

    /// Connects, from `source` if there is one; gives the local address, if it is known.
    ///
    /// # Errors
    /// As connect(2); that nothing listens there may be said by [`Transport::finish_connect`], too.
    fn connect(
        to: SocketAddr,
        source: Option<IpAddr>,
        attr: &EndpointAttr,
        shared: &Shared<Self::Memory>,
    ) -> io::Result<(Self::Transport, Option<SocketAddr>)>;

    /// Bytes of its longest datagram; zero: it has none.
    const DATAGRAM: usize = 0;

    /// A socket for datagrams, bound to this address, which does not block; gives the address with the real port, too.
    ///
    /// # Errors
    /// As socket(2) and bind(2).
    fn datagram_socket(addr: SocketAddr) -> io::Result<(OwnedFd, SocketAddr)> {
        let _ = addr;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Datagrams that came to such a socket while its buffer was full, where the kernel says so.
    fn datagram_overrun(socket: BorrowedFd<'_>) -> Option<u64> {
        let _ = socket;
        None
    }
}

/// What the connections of a domain share.
#[derive(Default)]
pub struct Shared<M> {
    /// The domain's counters.
    pub stats: Arc<Stats>,
    /// The domain's memory.
    pub memory: Arc<M>,
}

/// The memory of a domain that its peers may reach by themselves ([`Transport::reach`]). `()`: none.
pub trait PeerMemory: Send + Sync + 'static {
    /// Whether there may be some.
    const SHARED: bool;

    /// Of a new domain.
    fn new(trust: Trust) -> Arc<Self>;

    /// See [`DomainOps::allocate`](fabric_core::DomainOps::allocate).
    ///
    /// # Errors
    /// As there.
    fn allocate(self: &Arc<Self>, len: usize) -> Result<Memory> {
        Memory::zeroed(len)
    }

    /// Where peers see what is registered.
    fn windows(self: &Arc<Self>) -> Option<Arc<dyn Windows>> {
        None
    }
}

impl PeerMemory for () {
    const SHARED: bool = false;

    fn new(_: Trust) -> Arc<()> {
        Arc::new(())
    }
}

/// Whose processes may reach a domain's memory by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those of the same user.
    #[default]
    User,
    /// None.
    None,
}

/// A connection that has come.
pub struct Arrival<T> {
    /// Its socket.
    pub transport: T,
    /// The address that it comes from.
    pub peer: SocketAddr,
    /// The address that it came to, if it is known.
    pub local: Option<SocketAddr>,
}

/// A socket that carries a connection's bytes. Its descriptor stays the same.
pub trait SocketTransport: Transport + AsFd + Send + 'static {
    /// An endpoint takes a connection that came in.
    fn belongs_to(&mut self, peer: SocketAddr, attr: &EndpointAttr);

    /// The peer waits for an answer: its host is looked at now and then, where it is another.
    fn keep_alive(&self);

    /// Whether nothing has come, and the peer is still there.
    fn is_quiet(&self) -> bool;
}
