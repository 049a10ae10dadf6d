//! What the thread of the [service](super::service) is asked for, and how it is woken for that.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use fabric_util::wakeup::Wakeup;

use super::lock::lock;

/// What the thread is asked for.
pub(super) enum Call {
    /// To look at an endpoint: something has changed that it may be waiting for.
    Look(u64),
    /// To look at all of them: what they share has become short.
    LookAtAll,
    /// To let go of one, and to say so.
    Remove(u64, SyncSender<()>),
    Stop,
}

/// The calls that the thread has not seen.
pub(super) struct Calls {
    inbox: Mutex<Inbox>,
    wakeup: Wakeup,
}

#[derive(Default)]
struct Inbox {
    calls: Vec<Call>,
    thread: Option<ThreadId>,
    /// The thread is no more.
    is_over: bool,
}

impl Calls {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Calls { inbox: Mutex::default(), wakeup: Wakeup::new()? })
    }

    /// Asks for something. Whether it is another thread than this one, and hears it.
    pub(super) fn call(&self, call: Call) -> bool {
        let mut inbox = lock(&self.inbox);
        if inbox.is_over {
            return false;
        }
        inbox.calls.push(call);
        if inbox.calls.len() == 1 {
            self.wakeup.set();
        }
        inbox.thread != Some(std::thread::current().id())
    }

    /// This thread hears them from now on.
    pub(super) fn begin(&self) {
        lock(&self.inbox).thread = Some(std::thread::current().id());
    }

    /// Takes all, into an empty list, whose memory is for the next ones.
    pub(super) fn take(&self, calls: &mut Vec<Call>) {
        self.wakeup.clear();
        std::mem::swap(calls, &mut lock(&self.inbox).calls);
    }

    /// Nothing hears them any more, and those who wait for an answer get none.
    pub(super) fn end(&self) {
        let mut inbox = lock(&self.inbox);
        inbox.is_over = true;
        inbox.calls.clear();
    }
}

impl AsFd for Calls {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wakeup.as_fd()
    }
}

/// How an endpoint has the thread look at it.
pub(super) struct Caller {
    calls: Arc<Calls>,
    id: u64,
}

impl Caller {
    pub(super) fn new(calls: &Arc<Calls>, id: u64) -> Self {
        Caller { calls: calls.clone(), id }
    }

    pub(super) fn look(&self) {
        self.calls.call(Call::Look(self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_were_heard_leave_their_memory_to_others() {
        let calls = Calls::new().unwrap();
        let mut heard = Vec::new();
        let mut round = || {
            assert!(calls.call(Call::LookAtAll) && calls.call(Call::Stop));
            calls.take(&mut heard);
            assert!(matches!(heard[..], [Call::LookAtAll, Call::Stop]));
            heard.clear();
            heard.as_ptr()
        };
        let first = [round(), round()];
        assert_eq!([round(), round()], first);
    }
}
