//! Posting receives, as `post.rs` posts to the send queue.

use fabric_core::{Access, EndpointState, Error, OpKind, Posted, RecvWork, Result, Segment};

use crate::batch::{BatchError, CHUNK, Chunk, recv_work};
use crate::endpoint::{Endpoint, PostQueue, PostState};
use crate::inflight::{InFlightOp, RegionRefs, ReportMode};
use crate::op::{Recv, Slices};
use crate::post::reserve;

impl Endpoint {
    /// Posts one receive into `into`. Allowed from the making of the endpoint on.
    ///
    /// # Errors
    /// `Again` at the depth, `NotConnected` once the endpoint is dead, `DeviceLost`, `InvalidArgument` that says what is wrong (the
    /// regions need `LOCAL_WRITE`), `InvalidState` for a closed region, in a forked child, and where receives are shared.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (a, b) = doc::pair()?;
    /// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
    /// # let (peer, timeout) = (&b, doc::TIMEOUT);
    /// use fabric::Access;
    ///
    /// let inbox = domain.alloc(4096, Access::LOCAL_WRITE)?;
    /// endpoint.recv(inbox.slice(..1024), 1)?;
    /// peer.endpoint.inject(b"hello", 0)?;
    ///
    /// let completion = queue.wait_one(timeout)?;
    /// assert!(completion.is_ok() && completion.context == 1);
    /// assert_eq!(inbox.to_vec(..completion.len as usize)?, b"hello");
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn recv<'a>(&self, into: impl Into<Slices<'a>>, context: u64) -> Result<()> {
        self.inner.ops.check("post")?;
        if self.inner.receives.is_some() {
            return Err(self.shares_receives());
        }
        // The conversion may be a user's, so it comes before the lock.
        let recv = Recv::new(into, context);
        let mut guard = self.lock_recv();
        let PostState { queue, segments } = &mut *guard;
        let result = self.post_receive(queue, &recv, segments);
        if matches!(result, Err(Error::Again)) {
            self.inner.shared.counters.recv.posts.again.add(1);
        }
        result
    }

    #[cold]
    fn shares_receives(&self) -> Error {
        let id = self.id();
        let text = format!("{id} takes its receives from a shared queue: post them there");
        Error::state("recv", text)
    }

    #[inline]
    fn post_receive(
        &self,
        queue: &mut PostQueue,
        recv: &Recv<'_>,
        segments: &mut Vec<Segment>,
    ) -> Result<()> {
        if self.inner.shared.state.get() == EndpointState::Dead {
            return Err(self.inner.not_connected());
        }
        segments.clear();
        let token = queue.token.with_sequence(queue.ring.next());
        self.prepare_recv(queue, recv, segments)?;
        match self.submit_recv(queue, &[RecvWork::new(token, segments)]) {
            Posted { refusal: Some(error), .. } => Err(error),
            _ => Ok(()),
        }
    }

    /// Posts receives, matched in this order.
    ///
    /// # Errors
    /// As [`recv`](Endpoint::recv), with the number that was posted before the first that could not be.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (a, b) = doc::pair()?;
    /// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
    /// # let (peer, timeout) = (&b, doc::TIMEOUT);
    /// use fabric::{Access, Recv};
    ///
    /// // Eight receives, each with its own part of one region; the context says which part.
    /// let inbox = domain.alloc(8 * 256, Access::LOCAL_WRITE)?;
    /// let recvs: Vec<_> = (0..8).map(|n| Recv::new(inbox.slice(n * 256..(n + 1) * 256), n as u64)).collect();
    /// endpoint.post_recvs(&recvs)?;
    ///
    /// peer.endpoint.inject(b"first", 0)?;
    /// assert_eq!(queue.wait_one(timeout)?.context, 0);
    /// # Ok(()) }
    /// ```
    pub fn post_recvs(&self, recvs: &[Recv<'_>]) -> Result<(), BatchError> {
        let mut posted = 0;
        let refuse = |posted, error: Error| Err(BatchError { posted, error });
        if let Err(error) = self.inner.ops.check("post") {
            return refuse(0, error);
        }
        if self.inner.receives.is_some() {
            return refuse(0, self.shares_receives());
        }
        let mut guard = self.lock_recv();
        for chunk in recvs.chunks(CHUNK) {
            if self.inner.shared.state.get() == EndpointState::Dead {
                return refuse(posted, self.inner.not_connected());
            }
            let PostState { queue, segments } = &mut *guard;
            let Posted { accepted, refusal } = self.post_receives(queue, chunk, segments);
            posted += accepted;
            if let Some(error) = refusal {
                if matches!(error, Error::Again) {
                    self.inner.shared.counters.recv.posts.again.add(1);
                }
                return refuse(posted, error);
            }
        }
        Ok(())
    }

    fn post_receives(
        &self,
        queue: &mut PostQueue,
        recvs: &[Recv<'_>],
        segments: &mut Vec<Segment>,
    ) -> Posted {
        segments.clear();
        let mut counts: Chunk<usize> = Chunk::new();
        let first = queue.ring.next();
        let mut refusal = None;
        for recv in recvs {
            match self.prepare_recv(queue, recv, segments) {
                Ok(count) => counts.push(count),
                Err(error) => {
                    refusal = Some(error);
                    break;
                }
            }
        }
        if counts.is_empty() {
            return Posted { accepted: 0, refusal };
        }
        let tokens = (0..).map(|i| queue.token.with_sequence(first.wrapping_add(i)));
        let work = recv_work(segments, counts.iter().copied().zip(tokens));
        let posted = self.submit_recv(queue, &work);
        Posted { accepted: posted.accepted, refusal: posted.refusal.or(refusal) }
    }

    /// Hands receives to the provider, and takes back what that refuses.
    #[inline]
    fn submit_recv(&self, queue: &mut PostQueue, work: &[RecvWork<'_>]) -> Posted {
        // SAFETY: the slots just pushed keep the regions registered and their memory allocated until the completions are
        // taken, or `quiesce` has returned `Ok`.
        let mut posted = unsafe { self.inner.ops.post_recv(work) };
        if posted.accepted < work.len() {
            // SAFETY: the provider never completes what it refused.
            unsafe { queue.ring.unpush((work.len() - posted.accepted) as u32) };
            let refusal = posted.refusal.unwrap_or(Error::NotConnected);
            self.inner.shared.note_refusal(&refusal);
            posted = Posted::until(posted.accepted, refusal);
        } else {
            posted = Posted::all(work.len());
        }
        self.inner.shared.counters.recv.posts.operations.add(posted.accepted as u64);
        posted
    }

    #[inline]
    fn prepare_recv(
        &self,
        queue: &mut PostQueue,
        recv: &Recv<'_>,
        segments: &mut Vec<Segment>,
    ) -> Result<usize> {
        let before = segments.len();
        let (into, mut regions) = (&recv.into, RegionRefs::default());
        let max = self.inner.attr.recv_segments;
        let domain = &self.inner.domain;
        let len = domain.add_slices("recv", into, Access::LOCAL_WRITE, max, segments, &mut regions);
        let len = len.inspect_err(|_| segments.truncate(before))?;
        let Some(vacancy) = reserve(&mut queue.ring, &self.inner.recv_cq) else {
            segments.truncate(before);
            return Err(Error::Again);
        };
        let (context, kind, report) = (recv.context, OpKind::Recv, ReportMode::Always);
        vacancy.insert(InFlightOp { context, len, kind, report, regions });
        Ok(segments.len() - before)
    }
}
