//! The endpoint as applications have it.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use fabric::{Armed, Capabilities, CqAttr, Domain, ListenerAttr, Op, SharedReceiveAttr};
use fabric_core::{Error, Result};
use fabric_util::fork::ForkEpoch;

use super::attr::RdmAttr;
use super::completion::{Completion, Kind};
use super::core::Core;
use super::counters::{Counter, Counters};
use super::driver::Driver;
use super::op::{Recv, Send};
use super::post_error::PostError;
use super::service::Place;
use super::shared::{PeerEvent, Shared};
use super::slots::Slots;
use super::table::OpKey;
use crate::address::Address;
use crate::connection::DeathCause;
use crate::identity::{EndpointIdentity, HostIdentity};
use crate::peers::Peer;
use crate::rail::reachable;

const OP: &str = "make rdm endpoint";

/// Names an operation that was posted, to cancel it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OpId(pub(super) Which);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) enum Which {
    Send(OpKey),
    Recv(OpKey),
}

/// An endpoint for messages, one-sided operations and atomics to many peers, without connections that the application would
/// have to make.
///
/// - Peers are known by their [`Address`], which the application ships however it likes, and [inserts](Endpoint::insert).
///   Connections are made when they are needed, and parked when there are too many.
/// - Messages may have a tag. A receive says which ones it takes ([`Pattern`](crate::matching::Pattern)). For each pair of endpoints, messages meet
///   receives in the order in which they were sent, and receives in the order in which they were posted.
/// - Each operation ends in exactly one [`Completion`].
/// - A message whose post succeeded reaches the target's matching, whatever else waits there; one more than the target has
///   places for is refused ([`PostError::Again`]).
/// - A peer that is lost stays so until it is [revived](Endpoint::revive).
/// - The thread that polls makes progress; where none does, a thread of the library: one for all endpoints of the process.
/// - Any thread may use it. It has a listener, a completion queue and an event queue of its own on the domain.
///
/// An `Ok` is weaker than that of a connected endpoint of `fabric`: the target's *library* has the message, not yet a receive.
/// [`Send::matched`] waits for the latter.
///
/// Dropping it closes all connections: peers find it lost. What has not ended by then ends without a completion.
///
/// ```
/// use std::time::Duration;
/// use fabric::{Access, Domain, Hints};
/// use fabric_rdm::matching::Pattern;
/// use fabric_rdm::{Endpoint, RdmAttr, Recv, Send};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let hints = Hints { provider: Some("tcp".into()), ..Hints::default() };
/// # if false {
/// let hints = Hints::default();
/// # }
/// // Both are in one process here; nothing would change if they were not.
/// let (domain_a, domain_b) = (Domain::open(&hints)?, Domain::open(&hints)?);
/// let a = Endpoint::new(&domain_a, &RdmAttr::default())?;
/// let b = Endpoint::new(&domain_b, &RdmAttr::default())?;
/// let to_b = a.insert(b.address())?;
/// let from_a = b.insert(a.address())?;
///
/// let inbox = domain_b.alloc(4096, Access::LOCAL_WRITE)?;
/// b.post_recv(&Recv::new(Pattern::tagged(7).from(from_a), &inbox).context(1))?;
/// a.post_send(to_b, &Send::inject(b"a message").tag(7).context(2))?;
///
/// let timeout = Some(Duration::from_secs(5));
/// let received = b.wait_one(timeout)?;
/// assert_eq!((received.context, received.len, received.tag), (1, 9, Some(7)));
/// assert_eq!(inbox.to_vec(..9)?, b"a message");
/// assert!(a.wait_one(timeout)?.is_ok());
/// # Ok(()) }
/// ```
pub struct Endpoint {
    /// It goes first: from then on the service's thread has nothing of it.
    _place: Place,
    pub(super) driver: Arc<Driver>,
    address: Address,
    domain: Domain,
    fork_epoch: ForkEpoch,
    counters: Counters,
}

/// Room for connections beyond `max_open`: attempts that cross, those that are being closed, and both ends of the one to itself.
const SPARE: usize = 18;

impl Endpoint {
    /// Makes an endpoint on a domain, and listens for peers.
    ///
    /// # Errors
    /// `InvalidArgument` that names the setting; what listening, allocating and making queues can fail with.
    pub fn new(domain: &Domain, attr: &RdmAttr) -> Result<Self> {
        let info = domain.info();
        attr.check(info)?;
        let listen = match (attr.listen, info.addresses.first()) {
            (Some(addr), _) => addr,
            (None, Some(addr)) => (*addr, 0).into(),
            (None, None) => {
                return Err(Error::invalid(OP, "the device has no address: set `listen`"));
            }
        };
        let events = domain.event_queue()?;
        let listener_attr = {
            let mut listener_attr = ListenerAttr::default();
            listener_attr.backlog = attr.backlog.min(info.limits.backlog);
            listener_attr
        };
        let listener = domain.listen_into(listen, &listener_attr, &events)?;
        let rail = listener.local_addr();
        let me = match attr.named_by_place {
            true if rail.ip().is_unspecified() => {
                let detail =
                    "named_by_place: it listens at every address, and peers know one of them";
                return Err(Error::invalid(OP, detail));
            }
            true => EndpointIdentity::of_listener(rail),
            false => EndpointIdentity::random()?,
        };
        let rails: Vec<_> = match rail.ip().is_unspecified() {
            true => reachable(&info.addresses).map(|ip| (ip, rail.port()).into()).collect(),
            false => vec![rail],
        };
        let rails = &rails[..rails.len().min(crate::MAX_RAILS)];
        let address = Address::new(me, HostIdentity::read()?, rails)?;
        let slots = (attr.slots as usize).min(info.limits.shared_depth);
        let is_shared = info.capabilities.contains(Capabilities::SHARED_RECEIVES);
        let connections = attr.max_open as usize + SPARE;
        let own = if is_shared { 0 } else { attr.connection_attr(domain).recv_depth };
        let room = connections * (attr.connection_depth as usize + own) + slots;
        let queue =
            domain.completion_queue_with(&CqAttr::new(room.min(info.limits.cq_capacity)))?;
        let shared = if is_shared {
            let mut shared_attr = SharedReceiveAttr::new(slots);
            shared_attr.segments = 1;
            Some((domain.shared_receive_queue_with(&shared_attr, &queue)?, slots))
        } else {
            None
        };
        let slots = Slots::new(domain, attr.slot_len as usize, shared)?;
        let shared = Shared::new((domain, attr), &address, (events, queue), slots)?;
        let counters = shared.counters.clone();
        let (place, caller) = Place::new()?;
        let driver = Arc::new(Driver::new(Core::new(shared, listener)?, caller)?);
        place.serve(&driver);
        let (domain, fork_epoch) = (domain.clone(), ForkEpoch::current());
        Ok(Endpoint { _place: place, driver, address, domain, fork_epoch, counters })
    }

    /// What peers need to reach it.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The domain that it is on: for the memory of its operations.
    pub fn domain(&self) -> &Domain {
        &self.domain
    }

    pub(super) fn check(&self, operation: &'static str) -> Result<()> {
        if self.fork_epoch.is_current() {
            return Ok(());
        }
        Err(Error::state(operation, "the endpoint is of the parent process"))
    }

    /// Makes a peer of an address: the same one each time for the same identity. Its own address makes a peer of itself.
    ///
    /// # Errors
    /// `NoMemory`: there are as many peers as may be. `InvalidState` in a forked child.
    pub fn insert(&self, address: &Address) -> Result<Peer> {
        self.check("insert")?;
        let is_own = address.identity() == self.address.identity();
        self.driver.call(|core| {
            let peer = core.peers.insert(address)?;
            if is_own {
                core.own.peer = Some(peer);
            }
            Ok(peer)
        })
    }

    /// Removes a peer: what is pending with it ends `Canceled`, its messages are dropped, and its handle names no peer any more.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no such peer. `InvalidState` in a forked child.
    pub fn remove(&self, peer: Peer) -> Result<()> {
        self.check("remove")?;
        self.driver.call(|core| core.remove(peer)).map(drop)
    }

    /// A peer's address: of a stranger, what it said of itself.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no such peer. `InvalidState` in a forked child.
    pub fn address_of(&self, peer: Peer) -> Result<Address> {
        self.check("address_of")?;
        self.driver.look(|core| Ok(core.peers.get(peer)?.0.clone()))
    }

    /// Why a peer is down; `None`: it is not.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no such peer. `InvalidState` in a forked child.
    pub fn down(&self, peer: Peer) -> Result<Option<DeathCause>> {
        self.check("down")?;
        self.driver.look(|core| {
            core.peers.get(peer)?;
            Ok(core.death_of(peer))
        })
    }

    /// Takes a peer that is down for alive again: posts connect anew. Nothing of before is repeated. One that is not down stays
    /// as it is.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no such peer. `NoMemory`: others have what the receive window would reserve for it.
    /// `InvalidState` in a forked child.
    pub fn revive(&self, peer: Peer) -> Result<()> {
        self.check("revive")?;
        self.driver.call(|core| core.revive(peer))
    }

    /// Posts a message to a peer. There is no need to be connected.
    ///
    /// # Errors
    /// [`PostError::Again`] with what is full, [`PostError::PeerDown`]; `InvalidArgument` that says what is wrong, for a peer
    /// that was removed too; `InvalidState` for a closed region or in a forked child; `DeviceLost`.
    pub fn post_send(&self, peer: Peer, send: &Send<'_>) -> Result<OpId, PostError> {
        self.check("send")?;
        self.driver.call(|core| core.post_send(peer, send)).map(|key| OpId(Which::Send(key)))
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// [`PostError::Again`] at the depth; else as [`post_send`](Endpoint::post_send): `PeerDown` where it is from a peer alone that
    /// is down, and none of its messages waits for it.
    pub fn post_recv(&self, recv: &Recv<'_>) -> Result<OpId, PostError> {
        self.check("recv")?;
        self.driver.call(|core| core.post_recv(recv)).map(|key| OpId(Which::Recv(key)))
    }

    /// Posts a one-sided operation: a write, a read or an atomic, with the contract of a connected endpoint. Operations to one
    /// peer are executed in the order of their posts as there, across connections that are parked too.
    ///
    /// A write with [immediate data](Op::immediate) takes no receive: the peer has a completion of its own, a
    /// [`RecvWrite`](crate::Kind::RecvWrite), in the order of messages, and the bytes are there by then. It takes a place in the
    /// peer's window, as a message does, until the peer has taken that completion.
    ///
    /// # Errors
    /// As [`post_send`](Endpoint::post_send); `InvalidArgument` for a message.
    pub fn post(&self, peer: Peer, op: &Op<'_>) -> Result<OpId, PostError> {
        self.check("post")?;
        self.driver.call(|core| core.post_one_sided(peer, op)).map(|key| OpId(Which::Send(key)))
    }

    /// Cancels an operation that is not on its way, or a receive that has not met a message: it ends `Canceled`, and was
    /// certainly not executed. Any other ends as it would have. Either way it has exactly one completion. Whether it was
    /// canceled.
    ///
    /// # Errors
    /// `InvalidState` in a forked child.
    pub fn cancel(&self, op: OpId) -> Result<bool> {
        self.check("cancel")?;
        Ok(self.driver.call(|core| match op.0 {
            Which::Send(key) => core.cancel_send(key),
            Which::Recv(key) => core.cancel_recv(key),
        }))
    }

    /// Takes completions, at most as many as `out` holds, and says how many. Never blocks; none is no error.
    ///
    /// # Errors
    /// `InvalidState` in a forked child.
    pub fn poll(&self, out: &mut [Completion]) -> Result<usize> {
        self.check("poll")?;
        Ok(self.driver.poll(|core| core.take(out)))
    }

    /// Takes one completion, if there is one.
    ///
    /// # Errors
    /// As [`poll`](Endpoint::poll).
    pub fn poll_one(&self) -> Result<Option<Completion>> {
        let mut one = [Completion::default()];
        Ok((self.poll(&mut one)? == 1).then_some(one[0]))
    }

    /// Takes at least one completion, sleeping for it as long as `timeout` (`None`: for ever).
    ///
    /// # Errors
    /// `TimedOut`; `InvalidArgument` if `out` is empty; `InvalidState` in a forked child.
    pub fn wait(&self, out: &mut [Completion], timeout: Option<Duration>) -> Result<usize> {
        self.check("wait")?;
        if out.is_empty() {
            return Err(Error::invalid("wait", "there is no room for a completion in `out`"));
        }
        let taken = self.driver.wait(timeout, |core| {
            let taken = core.take(out);
            (taken > 0).then_some(taken)
        })?;
        taken.ok_or(Error::TimedOut(None))
    }

    /// Takes one completion, sleeping for it as long as `timeout` (`None`: for ever).
    ///
    /// # Errors
    /// As [`wait`](Endpoint::wait).
    pub fn wait_one(&self, timeout: Option<Duration>) -> Result<Completion> {
        let mut one = [Completion::default()];
        self.wait(&mut one, timeout)?;
        Ok(one[0])
    }

    /// Takes what happened to a peer, if something has, as far as the last call or poll knew. It makes no progress and is no
    /// poll: where there is nothing, it costs a look at a flag. If the application does nothing else, the library's thread
    /// goes on.
    ///
    /// # Errors
    /// `InvalidState` in a forked child.
    pub fn poll_event(&self) -> Result<Option<PeerEvent>> {
        self.check("poll_event")?;
        if !self.driver.has_event() {
            return Ok(None);
        }
        Ok(self.driver.look(|core| core.shared.peer_events.pop_front()))
    }

    /// Makes progress as a [poll](Endpoint::poll) does, and takes nothing.
    ///
    /// # Errors
    /// `InvalidState` in a forked child.
    pub fn progress(&self) -> Result<()> {
        self.check("progress")?;
        self.driver.progress();
        Ok(())
    }

    /// Takes completions as a [poll](Endpoint::poll) does, without making progress: the windows that this opens are known to peers
    /// after the next one.
    ///
    /// # Errors
    /// `InvalidState` in a forked child.
    pub fn take(&self, out: &mut [Completion]) -> Result<usize> {
        self.check("take")?;
        Ok(self.driver.take(out))
    }

    /// A descriptor for event loops. Once [armed](Endpoint::arm) it is readable when there may be something to poll for.
    ///
    /// # Errors
    /// `InvalidState` in a forked child. `Internal`: the first call makes four descriptors, and there are no more.
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        self.check("descriptor")?;
        self.driver.fd()
    }

    /// Arms the descriptor for the next completion. `Ready`: there is something to poll for now, and it is not armed.
    ///
    /// After `Waiting` it becomes readable no later than the next completion, and stays so until it is armed again, whatever
    /// thread polls meanwhile. The event loop that watches it does the endpoint's work, by a [poll](Endpoint::poll) whenever it is
    /// readable, which may find no completion. Progress does not depend on that: if no thread polls for some milliseconds although
    /// it is readable, the library's thread takes over.
    ///
    /// ```
    /// # use fabric::{Access, Armed, Domain, Hints};
    /// # use fabric_rdm::matching::Pattern;
    /// # use fabric_rdm::{Endpoint, RdmAttr, Recv, Send};
    /// # fn sleep_until_readable(_: std::os::fd::BorrowedFd<'_>) { std::thread::yield_now() }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let hints = Hints { provider: Some("tcp".into()), ..Hints::default() };
    /// # let domain = Domain::open(&hints)?;
    /// # let endpoint = Endpoint::new(&domain, &RdmAttr::default())?;
    /// # let me = endpoint.insert(endpoint.address())?;
    /// # let inbox = domain.alloc(64, Access::LOCAL_WRITE)?;
    /// # endpoint.post_recv(&Recv::new(Pattern::untagged(), &inbox))?;
    /// # endpoint.post_send(me, &Send::inject(b"hello"))?;
    /// let completion = loop {
    ///     if let Some(completion) = endpoint.poll_one()? {
    ///         break completion;
    ///     }
    ///     if endpoint.arm()? == Armed::Waiting {
    ///         sleep_until_readable(endpoint.descriptor()?); // epoll, mio, tokio's AsyncFd
    ///     }
    /// };
    /// # assert!(completion.is_ok());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`descriptor`](Endpoint::descriptor).
    pub fn arm(&self) -> Result<Armed> {
        self.check("arm")?;
        self.driver.arm()
    }

    /// Whether [`poll_event`](Endpoint::poll_event) has something to give, as far as the last call or poll knew.
    pub fn has_event(&self) -> bool {
        self.driver.has_event()
    }

    /// How many messages arrived and met no receive, ever, as far as the last call or poll knew: with one more of them
    /// [`probe`](Endpoint::probe) is worth another call.
    pub fn arrived(&self) -> u64 {
        self.driver.arrived()
    }

    /// Whether a message to that peer would be posted, or refused with [`PostError::Again`]; `None`: the same of a receive. A
    /// post that fails otherwise has room.
    ///
    /// # Errors
    /// `InvalidState` in a forked child.
    pub fn has_room(&self, peer: Option<Peer>) -> Result<bool> {
        self.check("has_room")?;
        Ok(self.driver.look(|core| core.has_room(peer)))
    }

    /// Sends and one-sided operations that have not ended, or whose completion was not taken.
    ///
    /// # Errors
    /// `InvalidState` in a forked child.
    pub fn outstanding(&self) -> Result<u32> {
        self.check("outstanding")?;
        Ok(self.driver.look(|core| core.shared.sends_out))
    }

    /// What counts the operations of a kind that ended.
    pub fn counter(&self, kind: Kind) -> &Counter {
        self.counters.of(kind)
    }

    /// The most bytes that [`Send::inject`] takes: at least 96.
    ///
    /// # Errors
    /// `InvalidState` in a forked child.
    pub fn max_inject(&self) -> Result<usize> {
        self.check("max_inject")?;
        Ok(self.driver.look(|core| core.max_inject()))
    }

    /// Connections to others that are open, or being made: never more than [`RdmAttr::max_open`].
    ///
    /// # Errors
    /// `InvalidState` in a forked child.
    pub fn connections(&self) -> Result<u32> {
        self.check("connections")?;
        Ok(self.driver.look(|core| core.open.len() as u32))
    }

    /// Begins to park all connections, in agreement with the peers: they go when there is [none](Endpoint::connections) any more.
    /// Peers have then heard of the end of all that they sent, and do not find this endpoint lost when it is dropped. A post
    /// connects anew.
    ///
    /// # Errors
    /// `InvalidState` in a forked child.
    pub fn park_all(&self) -> Result<()> {
        self.check("park_all")?;
        self.driver.call(|core| core.park_all());
        Ok(())
    }

    /// Its state as text, for a bug report. Slow; not for the data path.
    pub fn dump(&self) -> String {
        match self.check("dump") {
            Ok(()) => self.driver.look(|core| core.dump()),
            Err(error) => error.to_string(),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({:?})", self.address)
    }
}
