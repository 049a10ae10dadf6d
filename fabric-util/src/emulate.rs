//! Atomics that a device lacks, as loops of the 64-bit compare-and-swap that it has; and fences.
//!
//! [`CasLoop`] is the arithmetic of one operation: it says which compare-and-swap to send, and from the word that
//! comes back whether that was it. Every request is a compare-and-swap, the first included, so that only the right to
//! atomics is needed; neighbouring bytes of the word never change. [`SoftSendQueue`] keeps the order of a send queue:
//! what is posted behind a loop waits here until the loop is done, then goes to the device. So the device's
//! completions, a loop's last request for its operation, come in posting order without any sorting. In the
//! same way an operation waits here that is fenced, where the device cannot be trusted with fences, or that the device would
//! get wrong beside those before it, until a request without effect says that everything before it has ended.

use std::collections::VecDeque;

use fabric_core::atomic::AtomicCall;
use fabric_core::completion::{RawCompletion, Status};
use fabric_core::error::{Error, Result};
use fabric_core::memory;
use fabric_core::token::Token;
use fabric_core::work::{RemoteAddr, Segment, SendFlags, SendOp, SendWork};

/// One compare-and-swap on an aligned 64-bit word; values in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CasRequest {
    /// The word; its address is a multiple of 8.
    pub at: RemoteAddr,
    /// What it is compared with.
    pub compare: u64,
    /// What replaces it if they are equal.
    pub swap: u64,
}

/// What follows from the word that a request found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CasOutcome {
    /// The word was not as guessed: send this.
    Retry(CasRequest),
    /// The operation is done; this is the element's old value.
    Done(u64),
}

/// An atomic operation in progress.
#[derive(Clone, Copy, Debug)]
pub struct CasLoop {
    call: AtomicCall,
    word: RemoteAddr,
    shift: u32,
    /// The word that the request on its way assumes.
    guess: u64,
}

impl CasLoop {
    /// An operation on the element at `at`, which is aligned to its size, and the first request: it guesses that the
    /// word is zero, and costs nothing if it is.
    pub fn new(at: RemoteAddr, call: AtomicCall) -> (Self, CasRequest) {
        let offset = (at.addr % 8) as u32;
        let below = if cfg!(target_endian = "little") {
            offset
        } else {
            8 - offset - call.ty.size() as u32
        };
        let word = RemoteAddr { addr: at.addr - u64::from(offset), ..at };
        let this = CasLoop { call, word, shift: 8 * below, guess: 0 };
        let request = this.request();
        (this, request)
    }

    /// Takes the word that a request found, which says whether it took effect.
    pub fn on_result(&mut self, found: u64) -> CasOutcome {
        let took_effect = found == self.guess;
        self.guess = found;
        let request = self.request();
        // What would change nothing is done once the word has been seen.
        if took_effect || request.swap == found {
            return CasOutcome::Done(found >> self.shift & self.call.ty.mask());
        }
        CasOutcome::Retry(request)
    }

    fn request(&self) -> CasRequest {
        let mask = self.call.ty.mask() << self.shift;
        let new = self.call.apply(self.guess >> self.shift & self.call.ty.mask()) << self.shift;
        CasRequest { at: self.word, compare: self.guess, swap: self.guess & !mask | new & mask }
    }
}

/// What a [`SoftSendQueue`] needs of the device's send queue.
pub trait CasDevice {
    /// Whether the device lacks this operation.
    fn must_emulate(&self, op: &SendOp) -> bool;

    /// Whether an operation has to wait here until all before it has ended: a fence that the device does not keep, or
    /// what the device would get wrong. Behind a barrier or a request that has ended only a fence may have to wait.
    fn must_wait(&self, work: &SendWork<'_>) -> bool;

    /// Posts it; the word found goes to [`SoftSendQueue::on_result`].
    fn compare_and_swap(&mut self, request: &CasRequest, flags: SendFlags) -> Result<()>;

    /// Posts a request without effect that ends when all before it has ended; its result is any number.
    fn barrier(&mut self) -> Result<()>;

    /// Posts an operation that the device has.
    ///
    /// # Safety
    /// As [`EndpointOps::post_send`](fabric_core::EndpointOps::post_send).
    unsafe fn post(&mut self, work: &SendWork<'_>) -> Result<()>;
}

/// A send queue's loop or fence in progress, and what waits behind it. Idle most of the time.
#[derive(Debug, Default)]
pub struct SoftSendQueue {
    running: Option<Running>,
    waiting: VecDeque<Waiting>,
    last_unsignaled: Option<Token>,
}

#[derive(Debug)]
enum Running {
    Loop {
        token: Token,
        signaled: bool,
        old: Option<Segment>,
        cas: CasLoop,
    },
    /// The operation that is fenced.
    Fence(Waiting),
    /// Something of the device's own, which has to begin when all before it has ended.
    Pause,
}

impl Running {
    /// Of the operation that it is, if it is one.
    fn token(&self) -> Option<Token> {
        match self {
            Running::Loop { token, .. } => Some(*token),
            Running::Fence(fenced) => Some(fenced.token),
            Running::Pause => None,
        }
    }
}

/// An operation, copied out of its post.
#[derive(Debug)]
struct Waiting {
    token: Token,
    op: SendOp,
    flags: SendFlags,
    segments: Box<[Segment]>,
    /// What the segments of an inject point to.
    _bytes: Vec<u8>,
}

impl SoftSendQueue {
    /// Whether nothing runs and nothing waits: posts may go to the device directly.
    pub fn is_idle(&self) -> bool {
        self.running.is_none() && self.waiting.is_empty()
    }

    /// The last loop that ended well without a completion, since it was unsignaled.
    pub fn last_unsignaled(&self) -> Option<Token> {
        self.last_unsignaled
    }

    /// Whether an operation has to come here: while the queue is idle, all others may go to the device directly.
    #[inline]
    pub fn must_take(work: &SendWork<'_>, device: &impl CasDevice) -> bool {
        device.must_wait(work) || device.must_emulate(&work.op)
    }

    /// Posts an operation, behind what is here.
    ///
    /// # Safety
    /// As [`EndpointOps::post_send`](fabric_core::EndpointOps::post_send).
    pub unsafe fn post(&mut self, work: &SendWork<'_>, device: &mut impl CasDevice) -> Result<()> {
        if self.is_idle() {
            // SAFETY: the caller's promise is passed on.
            return unsafe { self.start(work, device) };
        }
        self.waiting.push_back(Waiting::copy(work));
        Ok(())
    }

    /// Has what is posted from now on wait until all before it has ended: behind the result to that, and before
    /// [`on_result`](SoftSendQueue::on_result) takes it, the device does something of its own. Only of an idle queue.
    pub fn pause(&mut self, device: &mut impl CasDevice) -> Result<()> {
        device.barrier()?;
        self.running = Some(Running::Pause);
        Ok(())
    }

    /// Whether the next result is that to a [`pause`](SoftSendQueue::pause).
    pub fn is_paused(&self) -> bool {
        matches!(self.running, Some(Running::Pause))
    }

    /// Takes the word that the request found, or how it failed. Completions go to `deliver`, in posting order, and
    /// what waited goes to the device, up to the next loop.
    ///
    /// # Safety
    /// The request was posted by this queue, and the segments of its operation are as
    /// [`EndpointOps::post_send`](fabric_core::EndpointOps::post_send) wants them.
    pub unsafe fn on_result(
        &mut self,
        found: std::result::Result<u64, RawCompletion>,
        device: &mut impl CasDevice,
        mut deliver: impl FnMut(RawCompletion),
    ) {
        let Some(running) = self.running.take() else { return };
        let word = match found {
            Ok(word) => word,
            Err(mut failed) => {
                let Some(token) = running.token() else { return self.cancel(deliver) };
                failed.token = token;
                return self.fail(failed, deliver);
            }
        };
        match running {
            Running::Pause => {}
            Running::Fence(mut fenced) => {
                fenced.flags.remove(SendFlags::FENCE);
                self.waiting.push_front(fenced);
            }
            Running::Loop { token, signaled, old, mut cas } => match cas.on_result(word) {
                CasOutcome::Retry(request) => {
                    if device.compare_and_swap(&request, SendFlags::empty()).is_err() {
                        return self.fail(RawCompletion::new(token, Status::Canceled), deliver);
                    }
                    self.running = Some(Running::Loop { token, signaled, old, cas });
                }
                CasOutcome::Done(value) => {
                    if let Some(segment) = old {
                        // SAFETY: the caller's promise: it is the operation's, writable and big enough.
                        unsafe { store_old(&segment, value) };
                    }
                    if signaled {
                        deliver(RawCompletion::new(token, Status::Ok));
                    } else {
                        self.last_unsignaled = Some(token);
                    }
                }
            },
        }
        while self.running.is_none() {
            let Some(next) = self.waiting.pop_front() else { return };
            // SAFETY: the promise given when it was posted holds until its completion.
            if unsafe { self.start(&next.work(), device) }.is_err() {
                return self.fail(RawCompletion::new(next.token, Status::Canceled), deliver);
            }
        }
    }

    /// An operation failed, and with it all that is behind it.
    fn fail(&mut self, ended: RawCompletion, mut deliver: impl FnMut(RawCompletion)) {
        deliver(ended);
        self.cancel(deliver);
    }

    /// Ends everything that is here: the queue is dead.
    pub fn cancel(&mut self, mut deliver: impl FnMut(RawCompletion)) {
        if let Some(token) = self.running.take().and_then(|running| running.token()) {
            deliver(RawCompletion::new(token, Status::Canceled));
        }
        for waiting in self.waiting.drain(..) {
            deliver(RawCompletion::new(waiting.token, Status::Canceled));
        }
    }

    /// # Safety
    /// As [`post`](SoftSendQueue::post).
    unsafe fn start(&mut self, work: &SendWork<'_>, device: &mut impl CasDevice) -> Result<()> {
        if device.must_wait(work) {
            device.barrier()?;
            self.running = Some(Running::Fence(Waiting::copy(work)));
            return Ok(());
        }
        if !device.must_emulate(&work.op) {
            // SAFETY: the caller's promise is passed on.
            return unsafe { device.post(work) };
        }
        let SendOp::Atomic { at, call, fetch } = work.op else {
            return Err(Error::unsupported("post", "fabric", "only atomics can be emulated"));
        };
        let (cas, request) = CasLoop::new(at, call);
        device.compare_and_swap(&request, work.flags)?;
        let old = work.segments.first().copied().filter(|_| fetch);
        let signaled = work.flags.contains(SendFlags::SIGNALED);
        self.running = Some(Running::Loop { token: work.token, signaled, old, cas });
        Ok(())
    }
}

impl Waiting {
    fn copy(work: &SendWork<'_>) -> Self {
        let mut segments: Box<[Segment]> = work.segments.into();
        let mut bytes = Vec::new();
        if work.flags.contains(SendFlags::INJECT) {
            bytes.resize(fabric_core::work::total_len(work.segments), 0);
            // A vector, and one pointer into it: moving a box would make pointers into it invalid.
            let base: *mut u8 = bytes.as_mut_ptr();
            let mut at = 0;
            for segment in &mut segments {
                let part = base.wrapping_add(at);
                // SAFETY: the bytes of an inject are readable until the post returns (`EndpointOps::post_send`), and
                // the vector has room for all of them.
                unsafe { memory::copy(part, segment.addr, segment.len) };
                (segment.addr, at) = (part, at + segment.len);
            }
        }
        let SendWork { token, op, flags, .. } = *work;
        Waiting { token, op, flags, segments, _bytes: bytes }
    }

    fn work(&self) -> SendWork<'_> {
        let Waiting { token, op, flags, ref segments, .. } = *self;
        SendWork::new(token, op, segments, flags)
    }
}

/// Puts an element's old value where the initiator wants it, in host order.
///
/// # Safety
/// The segment is writable.
unsafe fn store_old(segment: &Segment, old: u64) {
    let bytes = old.to_ne_bytes();
    let len = segment.len.min(8);
    let part = if cfg!(target_endian = "little") { &bytes[..len] } else { &bytes[8 - len..] };
    // SAFETY: the caller's promise.
    unsafe { memory::store(segment.addr, part) };
}

#[cfg(test)]
mod tests;
