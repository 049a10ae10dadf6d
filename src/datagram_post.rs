//! Posting to a datagram endpoint, as `post.rs` and `recv.rs` do to a connected one. Every argument is checked here, the depth too.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use fabric_core::{Access, DatagramWork, Error, OpKind, Posted, Result, SendFlags};

use crate::batch::{self, BatchError, Chunk, recv_work};
use crate::check::add_inject;
use crate::datagram::{AddressHandle, DatagramEndpoint, DatagramInner, DatagramQueue, Target};
use crate::inflight::{InFlightOp, RegionRefs, ReportMode};
use crate::op::{Local, Op, OpCode, Recv, Slices};
use crate::post::reserve;

const SEND: &str = "send_to";

impl DatagramEndpoint {
    /// Sends the bytes of `from` to an address.
    ///
    /// # Errors
    /// As [`post_to`](DatagramEndpoint::post_to).
    #[inline]
    pub fn send_to<'a>(
        &self,
        to: &AddressHandle,
        from: impl Into<Slices<'a>>,
        context: u64,
    ) -> Result<()> {
        self.post_to(to, &Op::send(from).context(context))
    }

    /// Sends `bytes`, which may be reused as soon as the call returns: at most [`DatagramAttr::inject`](crate::DatagramAttr).
    ///
    /// # Errors
    /// As [`post_to`](DatagramEndpoint::post_to).
    #[inline]
    pub fn inject_to(&self, to: &AddressHandle, bytes: &[u8], context: u64) -> Result<()> {
        self.post_to(to, &Op::inject(bytes).context(context))
    }

    /// Posts one datagram, with all that a send can have: several slices, immediate data, no completion if it succeeds.
    ///
    /// Returns once it is accepted for sending. The regions stay registered until its completion is taken.
    ///
    /// # Errors
    /// `Again` at the depth (take completions); `InvalidArgument` for more bytes than a datagram has (both numbers are named), for
    /// what is no send, for another endpoint's handle, and as [`Endpoint::post`](crate::Endpoint::post); `DeviceLost`;
    /// `InvalidState` for a closed region or in a forked child. Nothing of it happens later.
    pub fn post_to(&self, to: &AddressHandle, op: &Op<'_>) -> Result<()> {
        let inner = &*self.inner;
        inner.ops.check("post")?;
        let mut queue = inner.send.lock();
        let (result, before) = inner.post_one(&mut queue, to, op);
        if matches!(result, Err(Error::Again)) {
            inner.shared.counters.send.posts.again.add(1);
        }
        drop(queue);
        // Which may be the last holder of a handle, and then gives back what the device has of it.
        drop(before);
        result
    }

    /// Posts one receive into `into`, for one datagram. It need not be as long as the longest: a datagram that does not fit
    /// ends it [`TooLong`](crate::Status::TooLong).
    ///
    /// # Errors
    /// As [`Endpoint::recv`](crate::Endpoint::recv); a receive has at most four segments.
    #[inline]
    pub fn recv<'a>(&self, into: impl Into<Slices<'a>>, context: u64) -> Result<()> {
        self.post_recvs(&[Recv::new(into, context)]).map_err(|stopped| stopped.error)
    }

    /// Posts receives, taken in this order.
    ///
    /// # Errors
    /// As [`recv`](DatagramEndpoint::recv), with the number that was posted before the first that could not be.
    pub fn post_recvs(&self, recvs: &[Recv<'_>]) -> Result<(), BatchError> {
        let inner = &*self.inner;
        inner.ops.check("post").map_err(|error| BatchError { posted: 0, error })?;
        let mut queue = inner.recv.lock();
        let posts = &inner.shared.counters.recv.posts;
        batch::post_recvs(recvs, posts, |chunk| inner.post_receives(&mut queue, chunk))
    }
}

/// What an earlier datagram under the same number went to.
type Before = Option<Arc<Target>>;

impl DatagramInner {
    fn post_one(
        &self,
        queue: &mut DatagramQueue,
        to: &AddressHandle,
        op: &Op<'_>,
    ) -> (Result<()>, Before) {
        queue.segments.clear();
        let (len, flags, op) = match self.prepare_send(queue, to, op) {
            Ok(prepared) => prepared,
            Err(error) => return (Err(error), None),
        };
        let sequence = queue.ring.next();
        let Some(vacancy) = reserve(&mut queue.ring, &self.send_cq) else {
            return (Err(Error::Again), None);
        };
        vacancy.insert(op.in_flight);
        let place = sequence as usize & (queue.targets.len() - 1);
        let before = queue.targets[place].replace(to.target.clone());
        let token = queue.token.with_sequence(sequence);
        let work =
            [DatagramWork::new(token, &**to.target.ops, op.immediate, &queue.segments, flags)];
        // SAFETY: the slot just pushed keeps the regions registered and their memory allocated until the completion is taken, or
        // `quiesce` has returned `Ok`, and `targets` the handle; injected bytes are borrowed for this call.
        let posted = unsafe { self.ops.post_send(&work) };
        if posted.accepted == 0 {
            // SAFETY: the provider never completes what it refused.
            unsafe { queue.ring.unpush(1) };
            return (Err(posted.refusal.unwrap_or(Error::DeviceLost)), before);
        }
        let posts = &self.shared.counters.send.posts;
        posts.operations.add(1);
        posts.bytes.add(len as u64);
        (Ok(()), before)
    }

    /// Checks a datagram and appends its segments.
    fn prepare_send(
        &self,
        queue: &mut DatagramQueue,
        to: &AddressHandle,
        op: &Op<'_>,
    ) -> Result<(usize, SendFlags, Prepared)> {
        if !to.is_of(self) {
            return Err(Error::invalid(SEND, "the address was resolved by another endpoint"));
        }
        if !matches!(op.code, OpCode::Send) {
            return Err(Error::invalid(SEND, "a datagram is a send: Op::send, or Op::inject"));
        }
        if op.flags.contains(SendFlags::DELIVERY_COMPLETE) {
            let text = "delivery-complete is for writes only";
            return Err(Error::unsupported(SEND, self.domain.info.provider, text));
        }
        let (mut regions, mut flags) = (RegionRefs::default(), SendFlags::empty());
        let segments = &mut queue.segments;
        let len = match &op.local {
            Local::Slices(slices) => {
                let (need, most) = (Access::empty(), fabric_core::datagram::MAX_DATAGRAM_SEGMENTS);
                self.domain.add_slices(SEND, slices, need, most, segments, &mut regions)
            }
            Local::Inject(bytes) => {
                flags = SendFlags::INJECT;
                add_inject(self.attr.inject, SEND, bytes, segments)
            }
        }?;
        let max = self.domain.info.limits.datagram;
        if len > max {
            return Err(Error::invalid(SEND, format!("{len} bytes; a datagram has at most {max}")));
        }
        let signaled = op.flags.contains(SendFlags::SIGNALED);
        let needed = &self.domain.reclaim.needed;
        if !signaled && !needed.load(Ordering::Relaxed) {
            needed.store(true, Ordering::Relaxed);
        }
        let report = if signaled { ReportMode::Always } else { ReportMode::OnError };
        let (context, kind) = (op.context, OpKind::Send);
        let in_flight = InFlightOp { context, len, kind, report, regions };
        Ok((len, flags, Prepared { in_flight, immediate: op.immediate }))
    }

    fn post_receives(&self, queue: &mut DatagramQueue, recvs: &[Recv<'_>]) -> Posted {
        queue.segments.clear();
        let first = queue.ring.next();
        let mut counts: Chunk<usize> = Chunk::new();
        let mut refusal = None;
        for recv in recvs {
            match self.prepare_recv(queue, recv) {
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
        let work = recv_work(&queue.segments, counts.iter().copied().zip(tokens));
        // SAFETY: the slots just pushed keep the regions registered and their memory allocated until the completions are
        // taken, or `quiesce` has returned `Ok`.
        let posted = unsafe { self.ops.post_recv(&work) };
        let accepted = posted.accepted.min(work.len());
        if accepted == work.len() {
            return Posted { accepted, refusal };
        }
        // SAFETY: the provider never completes what it refused.
        unsafe { queue.ring.unpush((work.len() - accepted) as u32) };
        Posted::until(accepted, posted.refusal.unwrap_or(Error::DeviceLost))
    }

    /// Checks a receive, and puts it in the ring; says how many segments it has.
    fn prepare_recv(&self, queue: &mut DatagramQueue, recv: &Recv<'_>) -> Result<usize> {
        let segments = &mut queue.segments;
        let (before, mut regions) = (segments.len(), RegionRefs::default());
        let (need, most) = (Access::LOCAL_WRITE, fabric_core::datagram::MAX_DATAGRAM_SEGMENTS);
        let len = self.domain.add_slices("recv", &recv.into, need, most, segments, &mut regions);
        let len = len.inspect_err(|_| segments.truncate(before))?;
        let Some(vacancy) = reserve(&mut queue.ring, &self.recv_cq) else {
            segments.truncate(before);
            return Err(Error::Again);
        };
        let (context, kind, report) = (recv.context, OpKind::Recv, ReportMode::Always);
        vacancy.insert(InFlightOp { context, len, kind, report, regions });
        Ok(segments.len() - before)
    }
}

/// A checked datagram, less its segments.
struct Prepared {
    in_flight: InFlightOp,
    immediate: Option<u32>,
}
