//! Receive queues that endpoints share: the handle, and posting to it.

use std::sync::Arc;

use fabric_core::{
    Access, EndpointId, Error, OpKind, Posted, Result, Segment, SharedReceiveAttr,
    SharedReceiveOps, Token, cold_path, unlikely,
};
use fabric_util::callback;
use fabric_util::slots::{SlotProducer, slots};
use fabric_util::sync::Mutex;

use crate::batch::{self, BatchError, Chunk, recv_work};
use crate::counters::SideCounters;
use crate::cq::{CompletionQueue, CqInner};
use crate::domain::DomainInner;
use crate::inflight::{Fate, InFlightOp, RegionRefs, ReportMode};
use crate::op::{Recv, Slices};
use crate::process::ForkChecked;

/// A receive queue that endpoints share: a server with many clients posts receives once, for whichever sends.
///
/// Made by [`Domain::shared_receive_queue`](crate::Domain::shared_receive_queue); an endpoint takes its receives from it if
/// it is made with [`EndpointBuilder::shared_receives`](crate::EndpointBuilder::shared_receives), and none are posted to that
/// endpoint then. Where [`SHARED_RECEIVES`](crate::Capabilities::SHARED_RECEIVES) is declared.
///
/// - A message takes the receive that was posted first of those that are left. [`Completion::endpoint`](crate::Completion)
///   says whose message it was. Messages of one endpoint complete in the order in which they were sent; those of several
///   in any order.
/// - A message for which there is no receive waits at its sender, and holds up only what its sender posted behind it on that
///   connection. Other connections, one-sided operations of other endpoints, and what goes the other way are not held up.
/// - If a connection ends while a message is coming in, the receive that it took is `Canceled`. The others stay for the
///   other endpoints.
/// - The completions go to the completion queue that it was made with, which has room for all of them reserved: once, however
///   many endpoints there are.
/// - Dropping it lets go of it; it stays as it is for the endpoints that use it. With the last of them it closes, and what is
///   left in it is `Canceled`, named by its own [`id`](SharedReceiveQueue::id).
/// - Any number of threads may post.
///
/// ```
/// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (a, b) = doc::pair()?;
/// # let (domain, client) = (&a.domain, &b);
/// # let timeout = doc::TIMEOUT;
/// use fabric::{Access, Capabilities};
///
/// # if !domain.info().capabilities.contains(Capabilities::SHARED_RECEIVES) { return Ok(()) }
/// let queue = domain.completion_queue(1024)?;
/// let receives = domain.shared_receive_queue(64, &queue)?;
/// let inbox = domain.alloc(64 * 256, Access::LOCAL_WRITE)?;
/// for n in 0..64 {
///     receives.recv(inbox.slice(n * 256..(n + 1) * 256), n as u64)?;
/// }
/// // As many endpoints as there are clients; this is one.
/// let endpoint = domain.endpoint().send_depth(16).shared_receives(&receives).build(&queue)?;
/// # let listener = domain.listen((domain.info().addresses[0], 0).into())?;
/// # let theirs = client.domain.endpoint().build(&client.queue)?;
/// # theirs.connect(listener.local_addr(), b"")?;
/// # listener.accept(timeout)?.accept(&endpoint, b"")?;
/// # theirs.wait_connected(timeout)?;
/// # theirs.inject(b"hello", 0)?;
///
/// let completion = queue.wait_one(timeout)?;
/// assert_eq!((completion.endpoint, completion.context), (endpoint.id(), 0));
/// receives.recv(inbox.slice(..256), 0)?; // the slice is free again
/// # Ok(()) }
/// ```
pub struct SharedReceiveQueue {
    pub(crate) inner: Arc<SharedReceives>,
}

/// What a thread that posts needs.
struct Posting {
    operations: SlotProducer<InFlightOp>,
    segments: Vec<Segment>,
}

/// What the handle and the endpoints that use it share.
pub(crate) struct SharedReceives {
    pub(crate) ops: ForkChecked<Box<dyn SharedReceiveOps>>,
    id: EndpointId,
    pub(crate) cq: Arc<CqInner>,
    /// All but the sequence number.
    pub(crate) token: Token,
    /// Held while receives are posted, so that they go to the provider in the order of their checks.
    posting: Mutex<Posting>,
    counters: SideCounters,
    attr: SharedReceiveAttr,
    domain: Arc<DomainInner>,
}

impl SharedReceiveQueue {
    pub(crate) fn new(
        domain: &Arc<DomainInner>,
        attr: &SharedReceiveAttr,
        queue: &CompletionQueue,
    ) -> Result<Self> {
        const OP: &str = "make shared receive queue";
        domain.ops.check(OP)?;
        attr.check(&domain.info)?;
        if !Arc::ptr_eq(&queue.inner.domain, domain) {
            return Err(Error::invalid(OP, "the completion queue is of another domain"));
        }
        let cq = &queue.inner;
        let ops = ForkChecked::new(domain.ops.shared_receives(attr, cq.ops())?);
        let id = EndpointId(domain.next_id());
        let (operations, ends) = slots(attr.depth);
        let token = cq.bind_receives(id, ends, attr.depth)?;
        let inner = SharedReceives {
            ops,
            id,
            cq: cq.clone(),
            token,
            posting: Mutex::new(Posting { operations, segments: Vec::new() }),
            counters: SideCounters::default(),
            attr: attr.clone(),
            domain: domain.clone(),
        };
        Ok(SharedReceiveQueue { inner: Arc::new(inner) })
    }

    /// By which the completions of receives name it that no message took.
    pub fn id(&self) -> EndpointId {
        self.inner.id
    }

    /// The settings it was made with.
    pub fn attr(&self) -> &SharedReceiveAttr {
        &self.inner.attr
    }

    /// Receives that have not ended: those no message has taken, and those whose message is coming in.
    pub fn len(&self) -> usize {
        self.inner.posting.lock().operations.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Receives that were posted so far.
    pub fn posted(&self) -> u64 {
        self.inner.counters.posts.operations.get()
    }

    /// Posts one receive into `into`.
    ///
    /// # Errors
    /// As [`Endpoint::recv`](crate::Endpoint::recv); no endpoint's end is one.
    #[inline]
    pub fn recv<'a>(&self, into: impl Into<Slices<'a>>, context: u64) -> Result<()> {
        self.post_recvs(&[Recv::new(into, context)]).map_err(|stopped| stopped.error)
    }

    /// Posts receives, taken in this order.
    ///
    /// # Errors
    /// As [`recv`](SharedReceiveQueue::recv), with the number that was posted before the first that could not be.
    pub fn post_recvs(&self, recvs: &[Recv<'_>]) -> Result<(), BatchError> {
        let inner = &*self.inner;
        inner.ops.check("post").map_err(|error| BatchError { posted: 0, error })?;
        let mut posting = inner.posting.lock();
        batch::post_recvs(recvs, &inner.counters.posts, |chunk| inner.post(chunk, &mut posting))
    }
}

impl SharedReceives {
    fn post(&self, recvs: &[Recv<'_>], posting: &mut Posting) -> Posted {
        posting.segments.clear();
        let mut checked: Chunk<(usize, Token)> = Chunk::new();
        let mut refusal = None;
        for recv in recvs {
            match self.prepare(recv, posting) {
                Ok(one) => checked.push(one),
                Err(error) => {
                    refusal = Some(error);
                    break;
                }
            }
        }
        if checked.is_empty() {
            return Posted { accepted: 0, refusal };
        }
        let work = recv_work(&posting.segments, checked.iter().copied());
        // SAFETY: the slots just filled keep the regions registered and their memory allocated until the completions are
        // taken, or `quiesce` has returned `Ok`.
        let posted = unsafe { self.ops.post_recv(&work) };
        let accepted = posted.accepted.min(work.len());
        if accepted == work.len() {
            return Posted { accepted, refusal };
        }
        cold_path();
        self.cq.take_refused(checked[accepted..].iter().map(|(_, token)| *token));
        Posted::until(accepted, posted.refusal.unwrap_or(Error::DeviceLost))
    }

    /// Checks a receive, and gives it a slot; says how many segments it has.
    fn prepare(&self, recv: &Recv<'_>, posting: &mut Posting) -> Result<(usize, Token)> {
        let Posting { operations, segments } = posting;
        let before = segments.len();
        let (into, mut regions) = (&recv.into, RegionRefs::default());
        let max = self.attr.segments;
        let len =
            self.domain.add_slices("recv", into, Access::LOCAL_WRITE, max, segments, &mut regions);
        let len = len.inspect_err(|_| segments.truncate(before))?;
        if unlikely(!operations.has_room()) {
            self.cq.try_reap();
        }
        let (context, kind, report) = (recv.context, OpKind::Recv, ReportMode::Always);
        let operation = InFlightOp { context, len, kind, report, regions };
        let Ok(number) = operations.insert(operation) else {
            cold_path();
            segments.truncate(before);
            return Err(Error::Again);
        };
        Ok((segments.len() - before, self.token.with_sequence(number)))
    }
}

impl Drop for SharedReceives {
    /// No endpoint uses it any more.
    fn drop(&mut self) {
        if !self.ops.is_current_process() {
            return;
        }
        let quiesced = callback::caught(|| self.ops.quiesce());
        let fate = if matches!(quiesced, Some(Ok(()))) { Fate::Free } else { Fate::Leak };
        let (fate, leaked) = self.cq.unbind_receives(self.token, fate);
        if fate == Fate::Leak {
            self.domain.report_leaked(
                format_args!("the shared receive queue {}", self.id),
                leaked,
                quiesced,
            );
        }
    }
}

impl std::fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (id, len, depth) = (self.id(), self.len(), self.inner.attr.depth);
        write!(f, "SharedReceiveQueue({id}, {len} of {depth})")
    }
}
