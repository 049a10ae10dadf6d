//! Contexts that message endpoints share (`fi_endpoint(3)`, `fi_srx_context`, `fi_stx_context`).
//!
//! A shared receive queue of ours is made for a completion queue, which here is known when the first endpoint is enabled. What is
//! posted before that is held.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use fabric::{EndpointId, SharedReceiveAttr, SharedReceiveQueue};

use super::completions::Completions;
use super::devices::RegionHolder;
use super::domain::Domain;
use super::marks;
use super::region::MemoryRegion;
use super::transfer::{Buffer, Kind, Options, RECEIVE_FLAGS, Receive, Transfers, Transmit, slices};
use crate::abi::flags::{FI_CLASS_SRX_CTX, FI_CLASS_STX_CTX, FI_COMPLETION, FI_EBADFLAGS};
use crate::abi::{FidEp, FidStx};
use crate::errno::Errno;
use crate::handle::Object;
use crate::sync::lock;

/// A shared receive context.
pub(crate) struct SharedReceives {
    pub(super) domain: Arc<Domain>,
    attr: SharedReceiveAttr,
    op_flags: [AtomicU64; 2],
    state: Mutex<State>,
}

enum State {
    /// No endpoint has it.
    Held(Vec<Held>),
    Open(Arc<OpenReceives>),
}

// SAFETY: `FidEp` is repr(C) and begins with a fid; the class is of this alone.
unsafe impl Object for SharedReceives {
    type C = FidEp;
    const CLASS: usize = FI_CLASS_SRX_CTX;
}

/// A receive that waits for the queue.
struct Held {
    buffers: Vec<HeldBuffer>,
    flags: u64,
    context: u64,
}

/// A buffer of it, whose region does not close meanwhile.
struct HeldBuffer {
    address: usize,
    len: usize,
    region: Option<Arc<MemoryRegion>>,
}

impl HeldBuffer {
    fn new(&Buffer { address, len, region }: &Buffer<'_>) -> Self {
        HeldBuffer { address, len, region: region.cloned() }
    }

    fn as_buffer(&self) -> Buffer<'_> {
        Buffer { address: self.address, len: self.len, region: self.region.as_ref() }
    }
}

/// The queue, which endpoints have.
pub(super) struct OpenReceives {
    pub(super) queue: SharedReceiveQueue,
    /// Whether only receives that ask for it have a completion.
    is_selective: bool,
    /// Goes after the queue.
    part: OwnPart,
}

/// Where its completions come.
struct OwnPart {
    completions: Arc<Completions>,
    receives: EndpointId,
    /// Whether the application hears of receives that no message has taken.
    reports: AtomicBool,
}

impl Drop for OwnPart {
    fn drop(&mut self) {
        let reports = self.reports.load(Ordering::Relaxed);
        self.completions.end_shared(self.receives, reports);
    }
}

impl SharedReceives {
    pub(crate) fn new(
        domain: &Arc<Domain>,
        depth: usize,
        segments: usize,
        op_flags: u64,
    ) -> Result<Arc<Self>, Errno> {
        let mut attr = SharedReceiveAttr::new(depth);
        attr.segments = segments;
        attr.check(domain.device.domain.info())?;
        let receives = Arc::new(SharedReceives {
            domain: domain.clone(),
            attr,
            op_flags: [AtomicU64::new(0), AtomicU64::new(op_flags)],
            state: Mutex::new(State::Held(Vec::new())),
        });
        let holder: Weak<SharedReceives> = Arc::downgrade(&receives);
        domain.device.add_holder(holder);
        Ok(receives)
    }

    /// Has completions go to that queue, of this endpoint that is being enabled and of all others; what was held is posted.
    /// `FI_EINVAL` if another endpoint has another one.
    pub(super) fn open(
        &self,
        completions: &Arc<Completions>,
        is_selective: bool,
    ) -> Result<Arc<OpenReceives>, Errno> {
        let mut state = lock(&self.state);
        let held = match &*state {
            State::Held(held) => held,
            State::Open(open) => {
                let is_same = Arc::ptr_eq(&open.part.completions, completions);
                let is_alike = is_same && open.is_selective == is_selective;
                return if is_alike { Ok(open.clone()) } else { Err(Errno::INVALID) };
            }
        };
        let queue = completions.shared_part(&self.attr)?;
        let (completions, receives) = (completions.clone(), queue.id());
        let part = OwnPart { completions, receives, reports: AtomicBool::new(false) };
        let open = Arc::new(OpenReceives { queue, is_selective, part });
        for Held { buffers, flags, context } in held {
            let buffers: Vec<Buffer<'_>> = buffers.iter().map(HeldBuffer::as_buffer).collect();
            open.post(&buffers, *flags, *context)?;
        }
        *state = State::Open(open.clone());
        Ok(open)
    }
}

impl RegionHolder for SharedReceives {
    /// What no endpoint can have messages for is canceled, and its completions say so.
    fn release(&self, _region: u64) {
        let mut state = lock(&self.state);
        let State::Open(open) = &*state else { return };
        if Arc::strong_count(open) == 1 {
            open.part.reports.store(true, Ordering::Relaxed);
            let open = std::mem::replace(&mut *state, State::Held(Vec::new()));
            drop(state);
            drop(open);
        }
    }
}

impl OpenReceives {
    #[inline]
    fn post(&self, buffers: &[Buffer<'_>], flags: u64, context: u64) -> Result<(), Errno> {
        let is_silent = self.is_selective && flags & FI_COMPLETION == 0;
        let context = if is_silent { marks::silent() } else { context };
        Ok(self.queue.recv(&slices(buffers)?[..], context)?)
    }
}

impl Transfers for SharedReceives {
    fn op_flags(&self) -> &[AtomicU64; 2] {
        &self.op_flags
    }

    fn inject_size(&self) -> usize {
        0
    }

    fn transmit(&self, _: Kind, _: Transmit<'_>, _: Options) -> Result<(), Errno> {
        Err(Errno::NOT_THERE)
    }

    fn inject(&self, _: Kind, _: &[u8], _: Options) -> Result<(), Errno> {
        Err(Errno::NOT_THERE)
    }

    #[inline]
    fn receive(&self, receive: &Receive<'_>) -> Result<(), Errno> {
        let &Receive { buffers, flags, context, .. } = receive;
        if flags & !RECEIVE_FLAGS != 0 {
            return Err(Errno(FI_EBADFLAGS));
        }
        // The order of posts is that of the queue.
        let mut state = lock(&self.state);
        let held = match &mut *state {
            State::Open(open) => return open.post(buffers, flags, context),
            State::Held(held) => held,
        };
        if held.len() >= self.attr.depth {
            return Err(Errno::AGAIN);
        }
        if slices(buffers)?.len() > self.attr.segments {
            return Err(Errno::INVALID);
        }
        let buffers = buffers.iter().map(HeldBuffer::new).collect();
        held.push(Held { buffers, flags, context });
        Ok(())
    }
}

/// A shared transmit context: endpoints that have it have a send queue each all the same, which takes nothing from the others.
pub(crate) struct SharedTransmits {
    pub(super) domain: Arc<Domain>,
}

// SAFETY: `FidStx` is repr(C) and begins with a fid; the class is of this alone.
unsafe impl Object for SharedTransmits {
    type C = FidStx;
    const CLASS: usize = FI_CLASS_STX_CTX;
}

impl SharedTransmits {
    pub(crate) fn new(domain: &Arc<Domain>) -> Self {
        SharedTransmits { domain: domain.clone() }
    }
}
