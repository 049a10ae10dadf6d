//! Posting to the send queue: from operations with handles to work in plain words. Receives are in `recv.rs`.
//!
//! Every argument is checked (`check.rs`) before the provider sees it; so is the depth. The queue's lock spans
//! accounting and the provider's post, which makes its order the posting order.

use std::sync::atomic::Ordering;

use fabric_core::{
    EndpointState, Error, Posted, Result, Segment, SendFlags, SendOp, SendWork, cold_path, unlikely,
};
use fabric_util::inflight::{Producer, Vacancy};

use crate::batch::{BatchError, CHUNK, Chunk};
use crate::check::add_inject;
use crate::cq::CqInner;
use crate::endpoint::{Endpoint, PostQueue, PostState};
use crate::inflight::{InFlightOp, RegionRefs, ReportMode};
use crate::op::{Local, Op};

/// One checked operation: what the provider gets, less the segments themselves.
struct CheckedOp {
    op: SendOp,
    flags: SendFlags,
    segments: usize,
    len: usize,
}

impl Endpoint {
    /// Posts one operation to the send queue.
    ///
    /// Returns once it is accepted for sending; its completion says how it ended. The regions it names
    /// stay registered until that completion is taken.
    ///
    /// # Errors
    /// `Again` at the depth (take completions), `NotConnected`, `DeviceLost`, `InvalidArgument` that says what is wrong,
    /// `Unsupported` for `delivery_complete` on all but writes, for immediate data on reads and atomics, and for what the device does
    /// not offer, `InvalidState` for a closed region or in a forked child. The endpoint is unharmed, and nothing of the
    /// operation happens later.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (a, b) = doc::pair()?;
    /// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
    /// # let (peer, timeout) = (&b, doc::TIMEOUT);
    /// use fabric::{Access, Op};
    ///
    /// let theirs = peer.domain.alloc(4096, Access::ALL)?;
    /// let remote = theirs.remote(); // in a program of its own, the peer would send its 40 bytes
    /// let ours = domain.alloc(64, Access::empty())?;
    /// ours.write_at(0, b"bytes")?;
    ///
    /// // No completion if it succeeds; the operation behind it reports for both.
    /// endpoint.post(&Op::write(ours.slice(..5), remote.at(0)).unsignaled())?;
    /// endpoint.post(&Op::inject_write(&1u64.to_ne_bytes(), remote.at(8)).delivery_complete().context(7))?;
    ///
    /// let completion = queue.wait_one(timeout)?;
    /// assert!(completion.is_ok() && completion.context == 7);
    /// assert_eq!(theirs.to_vec(..5)?, b"bytes");
    /// # Ok(()) }
    /// ```
    #[inline]
    pub fn post(&self, op: &Op<'_>) -> Result<()> {
        self.inner.ops.check("post")?;
        let mut guard = self.inner.lock_send();
        let PostState { queue, segments } = &mut *guard;
        let result = self.post_one(queue, op, segments);
        if unlikely(matches!(result, Err(Error::Again))) {
            self.inner.shared.counters.send.posts.again.add(1);
        }
        result
    }

    #[inline]
    fn post_one(
        &self,
        queue: &mut PostQueue,
        op: &Op<'_>,
        segments: &mut Vec<Segment>,
    ) -> Result<()> {
        if self.inner.shared.state.get() != EndpointState::Connected {
            return Err(self.inner.not_connected());
        }
        segments.clear();
        let unsignaled_run = queue.unsignaled_run;
        let token = queue.token.with_sequence(queue.ring.next());
        let one = self.prepare_send(queue, op, segments)?;
        let work = [SendWork::new(token, one.op, segments, one.flags)];
        // SAFETY: the slot just pushed keeps the regions registered and their memory allocated until the completion is taken,
        // or `quiesce` has returned `Ok`; injected bytes are borrowed for this call.
        let posted = unsafe { self.inner.ops.post_send(&work) };
        if posted.accepted == 0 {
            return Err(self.unpush_refused(queue, &work, posted, unsignaled_run));
        }
        self.count(1, one.len);
        Ok(())
    }

    /// Posts operations in order; they go out together, which costs less than one by one.
    ///
    /// # Errors
    /// As [`post`](Endpoint::post), with the number that was posted before the first that could not be.
    ///
    /// ```
    /// # mod doc { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/pair.rs")); }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (a, b) = doc::pair()?;
    /// # let (domain, queue, endpoint) = (&a.domain, &a.queue, &a.endpoint);
    /// # let (peer, timeout) = (&b, doc::TIMEOUT);
    /// use fabric::{Access, Op};
    ///
    /// let theirs = peer.domain.alloc(64, Access::ALL)?;
    /// let remote = theirs.remote();
    /// let adds = [1u64, 2, 3].map(|n| Op::atomic(fabric::AtomicOp::Add, n, remote.at(0)).context(n));
    /// if let Err(stopped) = endpoint.post_batch(&adds) {
    ///     // After taking completions, go on with `adds[stopped.posted..]`.
    ///     return Err(stopped.error.into());
    /// }
    /// for n in 1..=3 {
    ///     assert_eq!(queue.wait_one(timeout)?.context, n); // in posting order
    /// }
    /// assert_eq!(theirs.get::<u64>(0)?, 6);
    /// # Ok(()) }
    /// ```
    pub fn post_batch(&self, ops: &[Op<'_>]) -> Result<(), BatchError> {
        let mut posted = 0;
        let refuse = |posted, error: Error| Err(BatchError { posted, error });
        if let Err(error) = self.inner.ops.check("post") {
            return refuse(0, error);
        }
        let mut guard = self.inner.lock_send();
        for chunk in ops.chunks(CHUNK) {
            if self.inner.shared.state.get() != EndpointState::Connected {
                return refuse(posted, self.inner.not_connected());
            }
            let PostState { queue, segments } = &mut *guard;
            let Posted { accepted, refusal } = self.post_sends(queue, chunk, segments);
            posted += accepted;
            if let Some(error) = refusal {
                if matches!(error, Error::Again) {
                    self.inner.shared.counters.send.posts.again.add(1);
                }
                return refuse(posted, error);
            }
        }
        Ok(())
    }

    fn post_sends(
        &self,
        queue: &mut PostQueue,
        ops: &[Op<'_>],
        segments: &mut Vec<Segment>,
    ) -> Posted {
        segments.clear();
        let mut checked: Chunk<CheckedOp> = Chunk::new();
        let first = queue.ring.next();
        let unsignaled_run = queue.unsignaled_run;
        let mut refusal = None;
        for op in ops {
            match self.prepare_send(queue, op, segments) {
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
        let mut work: Chunk<SendWork<'_>> = Chunk::new();
        let mut rest = segments.as_slice();
        for (i, one) in checked.iter().enumerate() {
            let (own, others) = rest.split_at(one.segments);
            rest = others;
            let token = queue.token.with_sequence(first.wrapping_add(i as u32));
            work.push(SendWork::new(token, one.op, own, one.flags));
        }
        // SAFETY: as in `post_one`, of each.
        let posted = unsafe { self.inner.ops.post_send(&work) };
        // A provider accepts no more than it was given.
        let accepted = posted.accepted.min(work.len());
        if accepted < work.len() {
            refusal = Some(self.unpush_refused(queue, &work, posted, unsignaled_run));
        }
        self.count(accepted, checked[..accepted].iter().map(|one| one.len).sum());
        Posted { accepted, refusal }
    }

    /// Takes back what the provider refused, and says why it did; `unsignaled_run` is as it was before the work.
    #[cold]
    fn unpush_refused(
        &self,
        queue: &mut PostQueue,
        work: &[SendWork<'_>],
        posted: Posted,
        mut unsignaled_run: u32,
    ) -> Error {
        let (taken, refused) = work.split_at(posted.accepted);
        // SAFETY: the provider never completes what it refused.
        unsafe { queue.ring.unpush(refused.len() as u32) };
        for one in taken {
            unsignaled_run =
                if one.flags.contains(SendFlags::SIGNALED) { 0 } else { unsignaled_run + 1 };
        }
        queue.unsignaled_run = unsignaled_run;
        let refusal = posted.refusal.unwrap_or(Error::NotConnected);
        self.inner.shared.note_refusal(&refusal);
        refusal
    }

    #[inline]
    fn count(&self, operations: usize, bytes: usize) {
        let counters = &self.inner.shared.counters.send.posts;
        counters.bytes.add(bytes as u64);
        counters.operations.add(operations as u64);
    }

    /// Checks an operation, appends its segments and puts it in the ring. The segments of one that is refused stay
    /// behind the others, unused.
    #[inline]
    fn prepare_send(
        &self,
        queue: &mut PostQueue,
        op: &Op<'_>,
        segments: &mut Vec<Segment>,
    ) -> Result<CheckedOp> {
        let spec = op.code.spec();
        let before = segments.len();
        let mut flags = op.flags;
        let mut regions = RegionRefs::default();
        let len = match &op.local {
            Local::Slices(slices) => {
                let max = self.inner.attr.send_segments;
                let domain = &self.inner.domain;
                domain.add_slices(spec.name, slices, spec.local, max, segments, &mut regions)
            }
            Local::Inject(bytes) => {
                flags.insert(SendFlags::INJECT);
                add_inject(self.inner.attr.inject, spec.name, bytes, segments)
            }
        }?;
        let code = self.inner.domain.check_send(op, spec, len)?;
        let signaled = flags.contains(SendFlags::SIGNALED);
        let report = if signaled { ReportMode::Always } else { ReportMode::OnError };
        let needed = &self.inner.domain.reclaim.needed;
        if unlikely(!signaled && !needed.load(Ordering::Relaxed)) {
            needed.store(true, Ordering::Relaxed);
        }
        if unlikely(!signaled && queue.unsignaled_run + 1 >= self.inner.max_unsignaled_run) {
            flags.insert(SendFlags::SIGNALED);
        }
        let Some(vacancy) = reserve(&mut queue.ring, &self.inner.send_cq) else {
            cold_path();
            return Err(Error::Again);
        };
        vacancy.insert(InFlightOp { context: op.context, len, kind: spec.kind, report, regions });
        queue.unsignaled_run =
            if flags.contains(SendFlags::SIGNALED) { 0 } else { queue.unsignaled_run + 1 };
        Ok(CheckedOp { op: code, flags, segments: segments.len() - before, len })
    }
}

/// Room for the next operation; if there is none, after taking what may have ended.
#[inline]
pub(crate) fn reserve<'a>(
    ring: &'a mut Producer<InFlightOp>,
    cq: &CqInner,
) -> Option<Vacancy<'a, InFlightOp>> {
    if !ring.has_room() {
        cq.try_reap();
    }
    ring.reserve()
}
