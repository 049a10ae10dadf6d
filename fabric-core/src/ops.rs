//! The data path of the provider contract: one endpoint, one completion queue.

use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::completion::RawCompletion;
use crate::error::{Error, Result};
use crate::event::RequestId;
use crate::path::Path;
use crate::work::{Posted, RecvWork, SendWork};

/// What `arm` found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Armed {
    /// Completions wait: poll instead of sleeping.
    Ready,
    /// The descriptor becomes readable no later than the next completion.
    Waiting,
}

/// A connected endpoint: two queues and a connection.
///
/// The caller serializes the posts of each queue, never exceeds the depths, and has checked every
/// argument that can be checked locally; a provider counts nothing and checks nothing twice.
///
/// # Safety
/// An implementation must, for each operation it accepted, deliver exactly one completion if the
/// operation is signaled or failed, and none otherwise, but for the end of a connection (below); deliver
/// none for what it refused; touch an operation's segments only until that completion (for an
/// unsignaled one: until a later one of the same queue) is polled or
/// [`quiesce`](EndpointOps::quiesce) returns `Ok`; and write only to the segments of receives, reads and
/// fetching atomics. Dropping it without a `quiesce` that returned `Ok` is no such end.
///
/// Posts and `quiesce` are called under locks of the caller, so they call no user code: events go
/// through `fabric_util::reports`, log lines through `fabric_util::log_line!`.
///
/// # The end of a connection
/// Once a connection has ended, every accepted operation is accounted for, in bounded time: the last
/// operation of each queue gets a completion, also an unsignaled one that succeeded (status `Ok`), so
/// that whatever was posted before it is known to have ended. Where a provider cannot know whether that
/// operation had its completion, it sets [`flushes_earlier`](crate::RawCompletion::flushes_earlier), and
/// the completion is ignored if it had.
pub unsafe trait EndpointOps: Any + Send + Sync + 'static {
    /// Posts operations to the send queue.
    ///
    /// - Takes the longest prefix it can and says why the rest was refused.
    /// - The batch goes out together.
    /// - Completions of this queue come in posting order; an unsignaled operation that succeeds
    ///   has none.
    /// - On a dead endpoint: refuses with `NotConnected`, or takes the work and cancels it.
    /// - Never blocks.
    ///
    /// # Safety
    /// The segments' memory must stay valid as described at the trait; with `INJECT`, until the
    /// call returns. Tokens in flight must differ. It is not called beside or after
    /// [`quiesce`](EndpointOps::quiesce).
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted;

    /// Posts receives.
    ///
    /// - Allowed from the making of the endpoint on; they are matched in posting order.
    /// - Otherwise as [`post_send`](EndpointOps::post_send).
    ///
    /// # Safety
    /// As [`post_send`](EndpointOps::post_send).
    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted;

    /// Starts to connect.
    ///
    /// - Returns at once. Exactly one of `Connected` and `ConnectFailed` follows, within the
    ///   attribute's time-out, unless `quiesce` comes first. No receive ends well before it.
    /// - An address that leads to no peer of this device is `Unreachable` at once, where that is known; the attribute's source
    ///   port `AddrInUse`, if a listener has it. A call that fails can be repeated.
    /// - No call that succeeds is followed by another, or by `accept`.
    fn connect(&self, to: SocketAddr, data: &[u8]) -> Result<()>;

    /// Answers a listener's request with this endpoint.
    ///
    /// - `Connected` follows, or one `Disconnected` if the peer is gone or too slow. A receive that
    ///   ends well says as much as `Connected`, and sends are taken from then on.
    /// - It never fails for the peer's reasons.
    fn accept(&self, request: RequestId, data: &[u8]) -> Result<()>;

    /// Ends the connection without waiting for anything.
    ///
    /// - What has not completed is canceled, in order; one `Disconnected(Local)` comes.
    /// - What had completed `Ok` at this side, the peer has.
    /// - Harmless when repeated, or before a connection is established.
    fn disconnect(&self);

    /// Stops everything, because the application lets the endpoint go: as `disconnect`, and
    /// afterwards no segment is touched and nothing new reaches the completion queue.
    ///
    /// - No event is reported: the application has let the endpoint go.
    /// - Bounded in time; it does not wait for the peer.
    /// - What was in flight and has no completion yet gets none: the caller cancels it. What has
    ///   one is found by a later poll.
    /// - An error: a device may still touch segments. The caller then leaks their memory, and completes nothing more.
    /// - Repeating it is harmless.
    fn quiesce(&self) -> Result<()>;

    /// The address of this end.
    ///
    /// - `None` until `connect` or `accept`; constant from `Connected` on.
    fn local_addr(&self) -> Option<SocketAddr>;

    /// The address of the other end.
    ///
    /// - `None` until `connect` or `accept`; constant from then on, after the end too.
    fn peer_addr(&self) -> Option<SocketAddr>;

    /// The name that the other end has proved by a certificate of a trusted authority.
    ///
    /// - `None` where it has proved none, until `accept` or `Connected`; constant from then on, after the end too.
    fn peer_identity(&self) -> Option<Arc<str>> {
        None
    }

    /// Which way the connection goes; `None`: as every connection of the domain, or nothing has been chosen yet.
    ///
    /// - Constant from `connect` or `accept` on, after the end too.
    fn path(&self) -> Option<Path> {
        None
    }

    /// The state of the endpoint, in a few lines for a bug report.
    ///
    /// - Never waits for a lock that a step of progress may hold for long; shows no keys.
    fn dump(&self) -> String;
}

/// A receive queue from which the endpoints made with it ([`DomainOps::endpoint_sharing`](crate::DomainOps::endpoint_sharing))
/// take their receives. Where [`SHARED_RECEIVES`](crate::Capabilities::SHARED_RECEIVES) is declared.
///
/// - A message takes the receive that was posted first of those that are left, when its first byte is there. Messages of
///   different endpoints end in any order; those of one end in the order of their sends.
/// - A message for which there is none waits at its sender, as where an endpoint has posted none, and holds up only what its
///   sender posted behind it. No endpoint holds a receive without a message for it.
/// - The completion goes to the completion queue given with the shared queue, and names the endpoint.
/// - A connection that ends completes the receive that a message of its has begun, `Canceled`, in [`EndpointOps::quiesce`] too.
///   The others stay for other endpoints.
///
/// # Safety
/// As at [`EndpointOps`] for receives, where [`quiesce`](SharedReceiveOps::quiesce) is meant by `quiesce`.
pub unsafe trait SharedReceiveOps: Any + Send + Sync + 'static {
    /// Posts receives.
    ///
    /// - Otherwise as [`EndpointOps::post_recv`]; also before any endpoint is made, and while none is.
    ///
    /// # Safety
    /// As [`EndpointOps::post_recv`].
    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted;

    /// Afterwards no segment of its receives is touched, and no completion of theirs comes.
    ///
    /// - It is called when every endpoint made with it has been quiesced and dropped.
    /// - What has no completion yet gets none: the caller cancels it.
    /// - An error: a device may still touch segments. The caller then leaks their memory.
    /// - Repeating it is harmless.
    fn quiesce(&self) -> Result<()>;
}

/// A completion queue.
///
/// # Safety
/// An implementation must deliver completions as [`EndpointOps`] promises, and its descriptor must
/// stay the same and open as long as the queue lives. Its methods are called under locks of the
/// caller, so they call no user code.
pub unsafe trait CqOps: Any + Send + Sync + 'static {
    /// Takes completions, at most as many as `out` holds, and drives progress.
    ///
    /// - Never blocks. The caller serializes polls.
    fn poll(&self, out: &mut [RawCompletion]) -> usize;

    /// Takes completions that are there, as `poll`, when an endpoint is let go of.
    ///
    /// - It is no sign that an application polls, and drives nothing, where either makes a difference.
    fn collect(&self, out: &mut [RawCompletion]) -> usize {
        self.poll(out)
    }

    /// Prepares to sleep on the descriptor: clears it, and says whether completions wait already.
    ///
    /// - After `Waiting` the descriptor becomes readable no later than the next completion.
    /// - Progress no longer depends on this queue being polled, from now on.
    fn arm(&self) -> Result<Armed, Error>;

    /// As `arm`, for manual progress: the caller polls as soon as the descriptor is readable.
    ///
    /// - The descriptor may become readable whenever there is something to do, so that the caller does it.
    /// - If the caller does not come, progress goes on without it, some milliseconds later.
    fn arm_manual(&self) -> Result<Armed, Error> {
        self.arm()
    }

    /// Makes the descriptor readable now.
    ///
    /// - Whether or not the queue is armed; every sleeper on it wakes.
    fn wake(&self);

    /// The descriptor that `arm` arms.
    ///
    /// - Always the same; open as long as the queue lives; only `arm` clears it.
    fn fd(&self) -> BorrowedFd<'_>;
}
