//! What the engine does at the points where a naive one goes wrong.
//!
//! Every constant is false in the provider that users get, and the branches on it vanish. Tests make
//! engines with one of them true, to show that the conformance suite notices.

/// The ways in which an engine can be wrong.
#[doc(hidden)]
#[allow(missing_docs)]
pub trait Policy: Send + Sync + 'static {
    const NAME: &'static str = "tcp";
    /// A send or write is complete when the socket took its bytes.
    const COMPLETE_AT_WRITE: bool = false;
    /// The end of a remote range is not checked.
    const SKIP_BOUNDS: bool = false;
    /// The rights of a region are not checked.
    const SKIP_RIGHTS: bool = false;
    /// A closed region stays open to its key.
    const KEEP_CLOSED: bool = false;
    /// After a refused request the next ones are executed.
    const CARRY_ON: bool = false;
    /// A dead endpoint's receives are not canceled.
    const NO_RECV_FLUSH: bool = false;
    /// A failed unsignaled operation is not reported.
    const SILENT_ERRORS: bool = false;
    /// Nothing happens unless the application polls.
    const NO_THREAD: bool = false;
    /// A fence does not wait.
    const NO_FENCE: bool = false;
    /// A write with immediate consumes no receive.
    const FREE_IMMEDIATE: bool = false;
    /// A message that is too long is cut.
    const TRUNCATE: bool = false;
    /// Private data is padded to a fixed length.
    const PAD_DATA: bool = false;
    /// A message of zero bytes never arrives.
    const DROP_EMPTY: bool = false;
    /// A zero-length access has its key checked.
    const CHECK_EMPTY: bool = false;
    /// The memory of an inject is read later.
    const LATE_INJECT: bool = false;
}

/// The provider that users get.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faithful;

impl Policy for Faithful {}
