//! Operations as values: what to post, before it is posted.

use fabric_core::{
    Access, AtomicCall, AtomicOp, AtomicScalar, Capabilities, OpKind, RemoteSlice, SendFlags,
};

use crate::slice::Slice;

/// The local side of an operation: nothing, one slice, or several in a row.
///
/// Empty slices are allowed and ignored.
#[derive(Clone, Copy, Debug)]
pub struct Slices<'a>(pub(crate) List<'a>);

#[derive(Clone, Copy, Debug)]
pub(crate) enum List<'a> {
    None,
    One(Slice<'a>),
    Many(&'a [Slice<'a>]),
}

impl<'a> Slices<'a> {
    /// No memory at all: a message of zero bytes, or a receive for one.
    #[inline]
    pub fn none() -> Self {
        Slices(List::None)
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[Slice<'a>] {
        match &self.0 {
            List::None => &[],
            List::One(one) => std::slice::from_ref(one),
            List::Many(many) => many,
        }
    }
}

impl<'a> From<Slice<'a>> for Slices<'a> {
    #[inline]
    fn from(slice: Slice<'a>) -> Self {
        Slices(List::One(slice))
    }
}

impl<'a> From<&'a crate::Region> for Slices<'a> {
    #[inline]
    fn from(region: &'a crate::Region) -> Self {
        Slices(List::One(region.into()))
    }
}

impl<'a> From<&'a [Slice<'a>]> for Slices<'a> {
    #[inline]
    fn from(slices: &'a [Slice<'a>]) -> Self {
        Slices(List::Many(slices))
    }
}

impl<'a, const N: usize> From<&'a [Slice<'a>; N]> for Slices<'a> {
    #[inline]
    fn from(slices: &'a [Slice<'a>; N]) -> Self {
        Slices(List::Many(slices))
    }
}

/// Where the bytes of an operation come from or go to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Local<'a> {
    Slices(Slices<'a>),
    Inject(&'a [u8]),
}

/// An operation for a send queue. Made by one of the constructors, refined by the methods, posted by
/// [`Endpoint::post`](crate::Endpoint::post) or in a batch.
///
/// ```no_run
/// # use fabric::{Endpoint, Op, Region, RemoteRegion};
/// # fn f(ep: &Endpoint, region: &Region, peer: &RemoteRegion) -> fabric::Result<()> {
/// ep.post(&Op::write(region.slice(0..64), peer.at(128)).immediate(7).context(1))?;
/// ep.post(&Op::send(region.slice(..8)).unsignaled())?;
/// # Ok(()) }
/// ```
///
/// It borrows its regions, or the bytes to inject, until it is posted:
///
/// ```compile_fail,E0506
/// # use fabric::{Endpoint, Op};
/// # fn f(ep: &Endpoint) -> fabric::Result<()> {
/// let mut bytes = [1, 2, 3];
/// let op = Op::inject(&bytes);
/// bytes[0] = 4;
/// ep.post(&op)
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use = "an operation does nothing until it is posted"]
pub struct Op<'a> {
    pub(crate) code: OpCode,
    pub(crate) local: Local<'a>,
    pub(crate) immediate: Option<u32>,
    pub(crate) context: u64,
    pub(crate) flags: SendFlags,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum OpCode {
    Send,
    Write(RemoteSlice),
    Read(RemoteSlice),
    Atomic { at: RemoteSlice, call: AtomicCall, fetch: bool, compares: bool },
}

/// What holds for all operations of a kind.
pub(crate) struct OpSpec {
    pub(crate) name: &'static str,
    pub(crate) kind: OpKind,
    /// What the device must offer. Its atomics are looked up one by one.
    pub(crate) required_caps: Capabilities,
    /// The right that the local memory must have.
    pub(crate) local: Access,
    /// What it does not take.
    pub(crate) forbidden_flags: SendFlags,
    /// Whether it may carry immediate data.
    pub(crate) allows_immediate: bool,
}

impl OpSpec {
    const SEND: OpSpec = OpSpec {
        name: "send",
        kind: OpKind::Send,
        required_caps: Capabilities::SEND,
        local: Access::empty(),
        forbidden_flags: SendFlags::DELIVERY_COMPLETE,
        allows_immediate: true,
    };
    const WRITE: OpSpec = OpSpec {
        name: "write",
        kind: OpKind::Write,
        required_caps: Capabilities::RMA,
        local: Access::empty(),
        forbidden_flags: SendFlags::empty(),
        allows_immediate: true,
    };
    const READ: OpSpec = OpSpec {
        name: "read",
        kind: OpKind::Read,
        required_caps: Capabilities::RMA,
        local: Access::LOCAL_WRITE,
        forbidden_flags: SendFlags::DELIVERY_COMPLETE,
        allows_immediate: false,
    };
    const ATOMIC: OpSpec = OpSpec {
        name: "atomic",
        kind: OpKind::Atomic,
        required_caps: Capabilities::empty(),
        local: Access::LOCAL_WRITE,
        forbidden_flags: SendFlags::DELIVERY_COMPLETE,
        allows_immediate: false,
    };
}

impl OpCode {
    #[inline]
    pub(crate) fn spec(&self) -> &'static OpSpec {
        match self {
            OpCode::Send => &OpSpec::SEND,
            OpCode::Write(_) => &OpSpec::WRITE,
            OpCode::Read(_) => &OpSpec::READ,
            OpCode::Atomic { .. } => &OpSpec::ATOMIC,
        }
    }
}

impl<'a> Op<'a> {
    #[inline]
    fn new(code: OpCode, local: Local<'a>) -> Self {
        Op { code, local, immediate: None, context: 0, flags: SendFlags::SIGNALED }
    }

    /// Sends the bytes of `from` to the peer's next receive.
    #[inline]
    pub fn send(from: impl Into<Slices<'a>>) -> Self {
        Self::new(OpCode::Send, Local::Slices(from.into()))
    }

    /// Sends `bytes`, which may be reused as soon as the post returns. At most
    /// [`EndpointAttr::inject`](fabric_core::EndpointAttr::inject) bytes.
    #[inline]
    pub fn inject(bytes: &'a [u8]) -> Self {
        Self::new(OpCode::Send, Local::Inject(bytes))
    }

    /// Writes the bytes of `from` to the peer's memory at `to`.
    #[inline]
    pub fn write(from: impl Into<Slices<'a>>, to: RemoteSlice) -> Self {
        Self::new(OpCode::Write(to), Local::Slices(from.into()))
    }

    /// Writes `bytes`, which may be reused as soon as the post returns, to the peer's memory at `to`.
    pub fn inject_write(bytes: &'a [u8], to: RemoteSlice) -> Self {
        Self::new(OpCode::Write(to), Local::Inject(bytes))
    }

    /// Reads the peer's memory at `from` into `into`, as many bytes as that has.
    #[inline]
    pub fn read(into: impl Into<Slices<'a>>, from: RemoteSlice) -> Self {
        Self::new(OpCode::Read(from), Local::Slices(into.into()))
    }

    /// Executes `op` on the element at `at`, without a result. Not for compare-and-swap, which
    /// the post refuses: see [`compare_swap`](Op::compare_swap).
    pub fn atomic<T: AtomicScalar>(op: AtomicOp, operand: T, at: RemoteSlice) -> Self {
        let call = AtomicCall { op, ty: T::TYPE, operand: operand.to_bits64(), compare: 0 };
        let code = OpCode::Atomic { at, call, fetch: false, compares: false };
        Self::new(code, Local::Slices(Slices::none()))
    }

    /// Executes `op` on the element at `at`; its old value goes to `old`. Not for compare-and-swap,
    /// which the post refuses: see [`fetch_compare_swap`](Op::fetch_compare_swap).
    pub fn fetch_atomic<T: AtomicScalar>(
        op: AtomicOp,
        operand: T,
        old: Slice<'a>,
        at: RemoteSlice,
    ) -> Self {
        let call = AtomicCall { op, ty: T::TYPE, operand: operand.to_bits64(), compare: 0 };
        let code = OpCode::Atomic { at, call, fetch: true, compares: false };
        Self::new(code, Local::Slices(old.into()))
    }

    /// Puts `new` at `at` if the bits there are those of `expected`, without a result.
    pub fn compare_swap<T: AtomicScalar>(expected: T, new: T, at: RemoteSlice) -> Self {
        let call = Self::swap_call(expected, new);
        let code = OpCode::Atomic { at, call, fetch: false, compares: true };
        Self::new(code, Local::Slices(Slices::none()))
    }

    /// Puts `new` at `at` if the bits there are those of `expected`; the old value goes to `old`.
    pub fn fetch_compare_swap<T: AtomicScalar>(
        expected: T,
        new: T,
        old: Slice<'a>,
        at: RemoteSlice,
    ) -> Self {
        let call = Self::swap_call(expected, new);
        let code = OpCode::Atomic { at, call, fetch: true, compares: true };
        Self::new(code, Local::Slices(old.into()))
    }

    fn swap_call<T: AtomicScalar>(expected: T, new: T) -> AtomicCall {
        AtomicCall {
            op: AtomicOp::CompareSwap,
            ty: T::TYPE,
            operand: new.to_bits64(),
            compare: expected.to_bits64(),
        }
    }

    /// Adds 32 bits of immediate data to a send or write. A write with immediate consumes one of the
    /// peer's receives.
    #[inline]
    pub fn immediate(mut self, value: u32) -> Self {
        self.immediate = Some(value);
        self
    }

    /// The same without immediate data.
    #[inline]
    pub fn without_immediate(mut self) -> Self {
        self.immediate = None;
        self
    }

    /// The value that comes back in the completion.
    #[inline]
    pub fn context(mut self, context: u64) -> Self {
        self.context = context;
        self
    }

    /// What it is.
    pub fn kind(&self) -> OpKind {
        self.code.spec().kind
    }

    /// Bytes of its local side.
    #[allow(clippy::len_without_is_empty)] // no collection
    pub fn len(&self) -> usize {
        match &self.local {
            Local::Slices(slices) => slices.as_slice().iter().map(Slice::len).sum(),
            Local::Inject(bytes) => bytes.len(),
        }
    }

    /// The value given by [`context`](Op::context).
    pub fn get_context(&self) -> u64 {
        self.context
    }

    /// The value given by [`immediate`](Op::immediate).
    pub fn get_immediate(&self) -> Option<u32> {
        self.immediate
    }

    /// Whether it has a completion also if it succeeds.
    pub fn is_signaled(&self) -> bool {
        self.flags.contains(SendFlags::SIGNALED)
    }

    /// A completion also if it succeeds, as without [`unsignaled`](Op::unsignaled).
    pub fn signaled(mut self) -> Self {
        self.flags.insert(SendFlags::SIGNALED);
        self
    }

    /// No completion if it succeeds. It counts against the depth until the library knows that it is done.
    #[inline]
    pub fn unsignaled(mut self) -> Self {
        self.flags.remove(SendFlags::SIGNALED);
        self
    }

    /// No one waits for its completion, which may be some microseconds late then. Over TCP and shared memory a message is
    /// acknowledged by what the peer sends next, and not by a frame of its own. Others are as fast as ever.
    #[inline]
    pub fn lazy(mut self) -> Self {
        self.flags.insert(SendFlags::LAZY);
        self
    }

    /// Starts only when every earlier read and atomic of this endpoint has finished.
    pub fn fence(mut self) -> Self {
        self.flags.insert(SendFlags::FENCE);
        self
    }

    /// Completes only when the target's CPU and every other initiator can see the bytes. Writes only.
    pub fn delivery_complete(mut self) -> Self {
        self.flags.insert(SendFlags::DELIVERY_COMPLETE);
        self
    }
}

/// A receive, for [`Endpoint::post_recvs`](crate::Endpoint::post_recvs).
#[derive(Clone, Copy, Debug)]
#[must_use = "a receive does nothing until it is posted"]
pub struct Recv<'a> {
    pub(crate) into: Slices<'a>,
    pub(crate) context: u64,
}

impl<'a> Recv<'a> {
    /// Receives one message into `into`. A longer message is fatal to both endpoints (`TooLong`).
    #[inline]
    pub fn new(into: impl Into<Slices<'a>>, context: u64) -> Self {
        Recv { into: into.into(), context }
    }
}
