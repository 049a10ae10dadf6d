//! What a provider gives its progress engine: steps of its connections, and events.

use std::sync::Arc;

use super::ready_list::Source;
use crate::completion_ring::Outbox;
use crate::stream::Deferral;

/// The thread that serves a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// An application that polls. What is due may wait for its next poll, because the application may be about to send
    /// something that can carry it.
    Polled,
    /// The progress thread, for posts that have been held for long, while an application polls: what that has locked is left
    /// to it.
    Beside,
    /// The progress thread: everything that is due goes out.
    Unattended,
}

/// What a step of a connection found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Another thread has it locked, and [`Mode::Beside`] waits for none.
    Locked,
    /// Nothing to read, nothing written.
    Idle,
    /// Something moved, and then there was nothing more to read.
    Drained,
    /// There may be more to read.
    More,
    /// The connection is closed.
    Closed,
}

/// The connections of a domain and their events, as an engine needs them.
pub trait EventLoop {
    /// Where so few connections are ready that a poller looks at each again and again: how many, and how often in a row it
    /// finds nothing before it leaves one to the selector. What fits depends on what a look costs; this, on a system call.
    const FEW: usize = 4;
    /// See [`FEW`](EventLoop::FEW).
    const PATIENCE: u32 = 512;
    /// A poller takes events from the selector, by a system call, behind so many turns of connections.
    const EVENTS_EVERY: u64 = 32;
    /// Turns that a poller has of a connection before it [disarms](EventLoop::disarm) it, where few are ready.
    const DISARMED_AFTER: u32 = 1024;
    /// Posts behind others that the peer is busy with wait for more posts while no more bytes than this wait: much where
    /// transmitting is a system call, little where the peer could have them at once.
    const MAX_DEFERRED: usize = 64 << 10;

    /// A connection.
    type Source: Source;
    /// What reports which connections have events, edge-triggered.
    type Selector;
    /// What ends a sleep in the selector, the present one or the next.
    type Waker;

    /// A step of one connection, with a buffer for its use: reads, executes, and writes what is due but for what is put off.
    /// `outbox`: where completions go if this is a step of a poll.
    fn progress(
        &self,
        source: &Arc<Self::Source>,
        scratch: &mut [u8],
        mode: Mode,
        outbox: &mut Outbox<'_>,
    ) -> Progress;

    /// What the next steps of a connection put off, as a [`Schedule`](super::Schedule) says; nothing without one.
    fn defer(&self, source: &Arc<Self::Source>, what: Deferral);

    /// A connection gets no step from now on until an event says that there is something to read. True: there is already,
    /// so that no event follows.
    fn arm(&self, source: &Arc<Self::Source>) -> bool {
        let _ = source;
        false
    }

    /// A poller looks at a connection again and again: it needs no event of it, until it is armed. What events it has then is of
    /// no consequence, so that an engine for which they cost something can do without.
    fn disarm(&self, source: &Arc<Self::Source>) {
        let _ = source;
    }

    /// Takes events from the selector, and marks their connections ready with
    /// [`mark_ready_in_poll`](super::ProgressEngine::mark_ready_in_poll). `block`: sleeps until there is one. Returns
    /// whether there was any.
    fn poll_events(&self, selector: &mut Self::Selector, block: bool) -> bool;

    /// Whether something waits for the thread alone; [`interrupt`](super::ProgressEngine::interrupt) follows what makes it so.
    fn is_due(&self) -> bool;

    /// Ends a sleep in the selector.
    fn wake(waker: &Self::Waker);
}
