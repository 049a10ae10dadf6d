//! Datagram endpoints: the handles, making and closing. Posting is in `datagram_post.rs`.

use std::sync::Arc;

use fabric_core::{
    AddressHandleOps, DatagramAddress, DatagramAttr, DatagramDrops, DatagramOps, DatagramSources,
    EndpointId, Error, Result, Security, Segment, Side, Token,
};
use fabric_util::callback;
use fabric_util::inflight::{Producer, inflight};
use fabric_util::sync::Mutex;

use crate::counters::Counters;
use crate::cq::{CompletionQueue, CqInner};
use crate::domain::DomainInner;
use crate::inflight::{Fate, InFlightOp};
use crate::process::ForkChecked;
use crate::registry::{EndpointShared, Settle};

/// An endpoint that sends datagrams to any address, without connections: unreliable, and cheap where peers are many.
///
/// Made by [`Domain::datagram_endpoint`](crate::Domain::datagram_endpoint), where
/// [`DATAGRAMS`](crate::Capabilities::DATAGRAMS) is declared: UDP on `tcp`, UD queue pairs on `verbs`.
///
/// - A datagram arrives whole or not at all. It may be lost, come late, behind later ones, or twice: a program that needs to
///   know numbers its datagrams, and has them answered.
/// - It has at most [`Limits::datagram`](crate::Limits::datagram) bytes; a longer one is refused where it is posted.
/// - One that finds no receive is dropped, and counted where the device says so ([`drops`](DatagramEndpoint::drops)). One that is
///   longer than its receive ends that [`TooLong`](crate::Status::TooLong), and nothing else.
/// - `Ok` of a send says that its memory is free again, and no more: whether there is a receiver is not known.
/// - A receive's completion has the sender's address ([`Completion::source`](crate::Completion)), which can be answered. It
///   is no proof: on most networks a sender can claim any.
/// - Operations of each queue complete in posting order, each exactly once. Any number of threads may post.
/// - Dropping it is abortive: what has not completed becomes `Canceled`, delivered by later polls.
///
/// ```
/// use fabric::{Access, Capabilities, DatagramAddress, Domain, Hints};
/// use std::time::Duration;
///
/// # let hints = Hints { provider: Some("tcp".to_owned()), ..Hints::default() };
/// let domain = Domain::open(&Hints { capabilities: Capabilities::DATAGRAMS, ..hints })?;
/// let queue = domain.completion_queue(512)?;
/// let server = domain.datagram_endpoint(&queue)?;
/// let client = domain.datagram_endpoint(&queue)?;
///
/// let inbox = domain.alloc(2048, Access::LOCAL_WRITE)?;
/// server.recv(inbox.slice(..1024), 1)?;
///
/// // The client has the server's address as 64 digits, from a file, an argument, a server of names.
/// let text = server.address().to_string();
/// let to = client.resolve(&text.parse::<DatagramAddress>()?)?;
/// client.inject_to(&to, b"question", 2)?;
///
/// let timeout = Some(Duration::from_secs(5));
/// let mut completion = queue.wait_one(timeout)?;
/// while completion.context != 1 {
///     completion = queue.wait_one(timeout)?; // that of the send
/// }
/// assert_eq!(inbox.to_vec(..completion.len)?, b"question");
/// assert_eq!(completion.source, Some(client.address()));
/// # Ok::<(), fabric::Error>(())
/// ```
pub struct DatagramEndpoint {
    pub(crate) inner: Arc<DatagramInner>,
}

/// An address that a datagram endpoint sends to ([`DatagramEndpoint::resolve`]).
///
/// - It is of that endpoint alone. Clones are the same handle.
/// - It takes what the device needs for an address: next to nothing on `tcp`, an object of the device on `verbs`. Dropping it gives
///   that back, when the last datagram for it has ended and as many others as the send queue is deep were posted, or the endpoint
///   is dropped.
#[derive(Clone)]
pub struct AddressHandle {
    pub(crate) target: Arc<Target>,
}

/// What a handle and the datagrams in flight to it share.
pub(crate) struct Target {
    pub(crate) ops: ForkChecked<Box<dyn AddressHandleOps>>,
    address: DatagramAddress,
    endpoint: EndpointId,
    domain: Arc<DomainInner>,
}

/// The posting end of a queue, under its lock.
pub(crate) struct DatagramQueue {
    pub(crate) ring: Producer<InFlightOp>,
    /// The queue's tokens, all but the sequence number.
    pub(crate) token: Token,
    /// What is handed to the provider; kept for its room, so that posting allocates nothing.
    pub(crate) segments: Vec<Segment>,
    /// By sequence number, what datagrams in flight go to; one stays until the next datagram takes its place.
    pub(crate) targets: Box<[Option<Arc<Target>>]>,
}

impl DatagramQueue {
    fn new(ring: Producer<InFlightOp>, token: Token, side: Side, targets: usize) -> Mutex<Self> {
        let token = Token::new(token.slot(), token.generation(), side, 0);
        let targets = (0..targets).map(|_| None).collect();
        Mutex::new(DatagramQueue { ring, token, segments: Vec::new(), targets })
    }
}

pub(crate) struct DatagramInner {
    pub(crate) ops: ForkChecked<Box<dyn DatagramOps>>,
    pub(crate) shared: Arc<EndpointShared>,
    pub(crate) send: Mutex<DatagramQueue>,
    pub(crate) recv: Mutex<DatagramQueue>,
    pub(crate) send_cq: Arc<CqInner>,
    pub(crate) recv_cq: Arc<CqInner>,
    pub(crate) attr: DatagramAttr,
    address: DatagramAddress,
    pub(crate) domain: Arc<DomainInner>,
}

impl DatagramEndpoint {
    pub(crate) fn new(
        domain: &Arc<DomainInner>,
        attr: &DatagramAttr,
        send: &CompletionQueue,
        recv: &CompletionQueue,
    ) -> Result<Self> {
        check(domain, attr, [send, recv])?;
        let sources = DatagramSources::new(attr.recv_depth);
        let id = EndpointId(domain.next_id());
        let shared = Arc::new(EndpointShared::of_datagrams(id, &sources));
        domain.endpoints.add(&shared)?;
        let undo = Undo { domain, shared: &shared, bound: Vec::new() };
        let (send_ring, send_end) = inflight(attr.send_depth);
        let (recv_ring, recv_end) = inflight(attr.recv_depth);
        let sends = Some((send_end, attr.send_depth));
        let recvs = Some((recv_end, attr.recv_depth));
        let (send_cq, recv_cq) = (&send.inner, &recv.inner);
        let (undo, send_token, recv_token) = if Arc::ptr_eq(send_cq, recv_cq) {
            let token = send_cq.bind(&shared, sends, recvs)?;
            (undo.and(send_cq, token), token, token)
        } else {
            let send = send_cq.bind(&shared, sends, None)?;
            let undo = undo.and(send_cq, send);
            let recv = recv_cq.bind(&shared, None, recvs)?;
            (undo.and(recv_cq, recv), send, recv)
        };
        let queues = (send_cq.ops(), recv_cq.ops());
        let ops = domain.ops.datagram_endpoint(id, attr, &sources, queues.0, queues.1)?;
        undo.forget();
        let targets = attr.send_depth.next_power_of_two();
        let inner = Arc::new(DatagramInner {
            address: ops.address(),
            ops: ForkChecked::new(ops),
            send: DatagramQueue::new(send_ring, send_token, Side::Send, targets),
            recv: DatagramQueue::new(recv_ring, recv_token, Side::Recv, 0),
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            attr: attr.clone(),
            domain: domain.clone(),
            shared: shared.clone(),
        });
        domain.endpoints.made(id, Arc::<DatagramInner>::downgrade(&inner));
        Ok(DatagramEndpoint { inner })
    }

    /// By which completions name it.
    pub fn id(&self) -> EndpointId {
        self.inner.shared.id
    }

    /// Its address, for those who send to it: ship it by any way, as bytes or text.
    pub fn address(&self) -> DatagramAddress {
        self.inner.address
    }

    /// The settings it was made with.
    pub fn attr(&self) -> &DatagramAttr {
        &self.inner.attr
    }

    /// Bytes of the longest datagram; [`Limits::datagram`](crate::Limits::datagram).
    pub fn max_len(&self) -> usize {
        self.inner.domain.info.limits.datagram
    }

    /// Makes ready to send to an address. On RoCE that asks the network for the host, which may take some seconds if it is not
    /// there; elsewhere it returns at once.
    ///
    /// # Errors
    /// `InvalidArgument` for an address of another kind of endpoint, or of another family than this one's; `Unreachable` where no
    /// way is known; `NoMemory`, `DeviceLost`, `InvalidState` in a forked child.
    pub fn resolve(&self, address: &DatagramAddress) -> Result<AddressHandle> {
        self.inner.ops.check("resolve")?;
        let ops = ForkChecked::new(self.inner.ops.resolve(address)?);
        let (endpoint, domain) = (self.id(), self.inner.domain.clone());
        Ok(AddressHandle { target: Arc::new(Target { ops, address: *address, endpoint, domain }) })
    }

    /// What it did so far: posts, and how they ended.
    pub fn counters(&self) -> Counters {
        self.inner.shared.counters.snapshot()
    }

    /// Datagrams that were dropped at this end so far; `None` where the device does not say.
    ///
    /// # Errors
    /// `InvalidState` in a forked child.
    pub fn drops(&self) -> Result<DatagramDrops> {
        self.inner.ops.check("drops")?;
        Ok(self.inner.ops.drops())
    }

    /// Its state, in a few lines for a bug report.
    pub fn dump(&self) -> String {
        let provider = match self.inner.ops.check("dump") {
            Ok(()) => self.inner.ops.dump(),
            Err(_) => "in a fork".to_owned(),
        };
        format!("{} {:?}: {}\n{provider}", self.id(), self.address(), self.counters())
    }
}

fn check(
    domain: &Arc<DomainInner>,
    attr: &DatagramAttr,
    queues: [&CompletionQueue; 2],
) -> Result<()> {
    const OP: &str = "make datagram endpoint";
    domain.ops.check(OP)?;
    attr.check(&domain.info)?;
    if domain.security > Security::Open {
        let level = domain.security;
        let text = format!(
            "datagrams prove nothing and hide nothing, and the domain is {level}: open one for them without security"
        );
        return Err(Error::unsupported(OP, domain.info.provider, text));
    }
    if queues.iter().any(|queue| !Arc::ptr_eq(&queue.inner.domain, domain)) {
        return Err(Error::invalid(OP, "the completion queue is of another domain"));
    }
    Ok(())
}

/// Unrolls what was done if an endpoint cannot be made after all.
struct Undo<'a> {
    domain: &'a DomainInner,
    shared: &'a EndpointShared,
    bound: Vec<(&'a CqInner, Token)>,
}

impl<'a> Undo<'a> {
    fn and(mut self, cq: &'a CqInner, token: Token) -> Self {
        self.bound.push((cq, token));
        self
    }

    fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        for (cq, token) in self.bound.drain(..) {
            cq.unbind(token, Fate::Free);
        }
        self.domain.endpoints.remove(self.shared);
    }
}

impl DatagramInner {
    /// Ends all that is in flight. Its regions go only if the provider has proven that nothing touches them any more.
    fn close(&self) {
        let send = self.send.lock().token;
        let recv = self.recv.lock().token;
        let quiesced = callback::caught(|| self.ops.quiesce());
        let fate = if matches!(quiesced, Some(Ok(()))) { Fate::Free } else { Fate::Leak };
        let mut leaked = self.send_cq.unbind(send, fate);
        if !Arc::ptr_eq(&self.send_cq, &self.recv_cq) {
            leaked += self.recv_cq.unbind(recv, fate);
        }
        self.domain.endpoints.remove(&self.shared);
        let targets = std::mem::take(&mut self.send.lock().targets);
        if fate == Fate::Free {
            return;
        }
        // The device may still read them.
        std::mem::forget(targets);
        self.domain.report_leaked(self.shared.id, leaked, quiesced);
    }
}

// Here and not at the end of what it shares: the thread that reclaims regions may have a part of that.
impl Drop for DatagramEndpoint {
    fn drop(&mut self) {
        if self.inner.ops.is_current_process() {
            self.inner.close();
        }
    }
}

impl Settle for DatagramInner {
    fn settle(&self) -> bool {
        let token = self.send.lock().token;
        self.send_cq.reap();
        self.send_cq.outstanding(token, Side::Send) == 0
    }

    fn hand_over(&self) {
        // Arming clears the descriptor, so sleepers on it look again.
        let _ = self.send_cq.arm(false);
        self.send_cq.ops().wake();
    }
}

impl AddressHandle {
    /// Where it leads.
    pub fn address(&self) -> DatagramAddress {
        self.target.address
    }

    /// Whether it was made by this endpoint.
    #[inline]
    pub(crate) fn is_of(&self, endpoint: &DatagramInner) -> bool {
        self.target.endpoint == endpoint.shared.id
            && Arc::ptr_eq(&self.target.domain, &endpoint.domain)
    }
}

impl std::fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AddressHandle({:?} of {})", self.target.address, self.target.endpoint)
    }
}

impl std::fmt::Debug for DatagramEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DatagramEndpoint({}, {:?})", self.id(), self.address())
    }
}

#[cfg(all(test, feature = "tcp"))]
mod tests {
    use super::*;
    use crate::{Access, Domain, Hints, Status};

    /// As the thread that reclaims regions does, which looks at all endpoints.
    #[test]
    #[cfg_attr(miri, ignore)] // no sockets
    fn a_drop_ends_all_while_another_thread_looks_at_it() {
        let hints = Hints { provider: Some("tcp".to_owned()), ..Hints::default() };
        let domain = Domain::open(&hints).unwrap();
        let queue = domain.completion_queue(DatagramAttr::default().recv_depth * 2).unwrap();
        let endpoint = domain.datagram_endpoint(&queue).unwrap();
        let inbox = domain.alloc(64, Access::LOCAL_WRITE).unwrap();
        endpoint.recv(inbox.slice(..), 7).unwrap();
        let looks = endpoint.inner.clone();
        drop(endpoint);
        let canceled = queue.poll_one().unwrap().expect("it is canceled by now");
        assert_eq!((canceled.context, canceled.status), (7, Status::Canceled));
        inbox.close().unwrap();
        domain.datagram_endpoint(&queue).expect("its room of the queue is free");
        assert!(looks.settle());
    }
}
