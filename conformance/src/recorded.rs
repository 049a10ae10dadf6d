//! Queues as cases see them: what is taken goes into the transcript.

use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use fabric::{Completion, CompletionQueue, EndpointId, Error, Event, EventQueue, Result};

use crate::recorder::{DomainName, Recorder};

/// An end's completion queue. It dereferences to the [`CompletionQueue`]; what takes completions records them.
#[derive(Clone, Debug)]
pub struct RecordedQueue {
    queue: CompletionQueue,
    domain: DomainName,
    recorder: Arc<Recorder>,
}

impl RecordedQueue {
    pub(crate) fn new(
        queue: &CompletionQueue,
        domain: DomainName,
        recorder: &Arc<Recorder>,
    ) -> Self {
        RecordedQueue { queue: queue.clone(), domain, recorder: recorder.clone() }
    }

    /// As [`CompletionQueue::poll`].
    ///
    /// # Errors
    /// As there.
    pub fn poll(&self, out: &mut [Completion]) -> Result<usize> {
        self.queue.poll(out).inspect(|&count| self.note(&out[..count]))
    }

    /// As [`CompletionQueue::poll_one`].
    ///
    /// # Errors
    /// As there.
    pub fn poll_one(&self) -> Result<Option<Completion>> {
        self.queue.poll_one().inspect(|done| self.note(done.as_slice()))
    }

    /// As [`CompletionQueue::wait`].
    ///
    /// # Errors
    /// As there.
    pub fn wait(&self, out: &mut [Completion], timeout: Option<Duration>) -> Result<usize> {
        self.queue.wait(out, timeout).inspect(|&count| self.note(&out[..count]))
    }

    /// As [`CompletionQueue::wait_one`].
    ///
    /// # Errors
    /// As there.
    pub fn wait_one(&self, timeout: Option<Duration>) -> Result<Completion> {
        self.queue.wait_one(timeout).inspect(|done| self.note(std::slice::from_ref(done)))
    }

    fn note(&self, completions: &[Completion]) {
        // Most polls find nothing, and need no lock.
        if !completions.is_empty() {
            self.recorder.completions(self.domain, completions);
        }
    }
}

impl Deref for RecordedQueue {
    type Target = CompletionQueue;

    fn deref(&self) -> &CompletionQueue {
        &self.queue
    }
}

/// A domain's event queue; what takes events records them.
#[derive(Clone, Debug)]
pub struct RecordedEvents {
    queue: EventQueue,
    domain: DomainName,
    recorder: Arc<Recorder>,
}

impl RecordedEvents {
    pub(crate) fn new(queue: EventQueue, domain: DomainName, recorder: &Arc<Recorder>) -> Self {
        RecordedEvents { queue, domain, recorder: recorder.clone() }
    }

    /// As [`EventQueue::poll`].
    pub fn poll(&self) -> Option<Event> {
        self.queue.poll().inspect(|event| self.note(event))
    }

    /// As [`EventQueue::wait`].
    ///
    /// # Errors
    /// As there.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Event> {
        self.queue.wait(timeout).inspect(|event| self.note(event))
    }

    /// An event that was taken by other means.
    pub(crate) fn note(&self, event: &Event) {
        self.recorder.event(self.domain, event);
    }

    /// As [`note`](RecordedEvents::note), of a connection that was not established.
    pub(crate) fn note_failed(&self, endpoint: EndpointId, error: &Error) {
        self.recorder.connect_failed(self.domain, endpoint, error);
    }
}

impl AsFd for RecordedEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}
