//! What goes back to the near end: answers, and what happens by itself.

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric::{CompletionQueue, EndpointId, Event, EventQueue, ListenerId, Result};
use fabric_util::wakeup::Wakeup;
use rustix::event::{PollFd, PollFlags, poll};
use serde_bytes::ByteBuf;

use super::frame;
use super::protocol::Message;

/// Written to by the thread that executes the calls, and by one that waits for events and armed queues.
///
/// What has happened when a call is answered is sent before the answer: the near end sees things in the order in
/// which a program at this end would.
pub(super) struct Outbox {
    outgoing: Mutex<Outgoing>,
    watched: Mutex<Watched>,
    /// Wakes the waiting thread: there is something else to wait for.
    changed: Wakeup,
}

struct Outgoing {
    stream: TcpStream,
    events: Option<EventQueue>,
    endpoints: HashMap<EndpointId, u64>,
    listeners: HashMap<ListenerId, u64>,
}

#[derive(Default)]
struct Watched {
    over: bool,
    events: Option<EventQueue>,
    armed: HashMap<u64, CompletionQueue>,
}

impl Outbox {
    pub(super) fn new(stream: TcpStream) -> io::Result<Arc<Self>> {
        let (endpoints, listeners) = (HashMap::new(), HashMap::new());
        let outgoing = Outgoing { stream, events: None, endpoints, listeners };
        let (outgoing, watched) = (Mutex::new(outgoing), Mutex::default());
        Ok(Arc::new(Outbox { outgoing, watched, changed: Wakeup::new()? }))
    }

    // Both are whole between statements.
    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a call.
    pub(super) fn answer(&self, number: u64, answer: Result<ByteBuf>) -> io::Result<()> {
        let mut outgoing = self.outgoing();
        outgoing.send_events()?;
        outgoing.send(&Message::Answer(number, answer))
    }

    /// Sends these events to the near end from now on.
    pub(super) fn watch(&self, events: EventQueue) {
        self.outgoing().events = Some(events.clone());
        self.watched().events = Some(events);
        self.changed.set();
    }

    /// Sends one `Readable` when this queue, which is armed, has something.
    pub(super) fn armed(&self, name: u64, queue: &CompletionQueue) {
        self.watched().armed.insert(name, queue.clone());
        self.changed.set();
    }

    pub(super) fn disarm(&self, name: u64) {
        // In two steps: the last handle of a queue does not go under the lock.
        let queue = self.watched().armed.remove(&name);
        drop(queue);
    }

    /// Makes a listener and gives it its name, before any event of it is sent.
    pub(super) fn name_listener(
        &self,
        name: u64,
        listen: impl FnOnce() -> Result<fabric::Listener>,
    ) -> Result<fabric::Listener> {
        let mut outgoing = self.outgoing();
        let listener = listen()?;
        outgoing.listeners.insert(listener.id(), name);
        Ok(listener)
    }

    pub(super) fn forget_listener(&self, name: u64) {
        self.outgoing().listeners.retain(|_, known| *known != name);
    }

    pub(super) fn name_endpoint(&self, name: u64, id: EndpointId) {
        self.outgoing().endpoints.insert(id, name);
    }

    pub(super) fn forget_endpoint(&self, id: EndpointId) {
        self.outgoing().endpoints.remove(&id);
    }

    /// Lets everything go that is waited for, and ends [`send_all`](Outbox::send_all).
    pub(super) fn close(&self) {
        let watched =
            std::mem::replace(&mut *self.watched(), Watched { over: true, ..Watched::default() });
        drop(watched);
        self.outgoing().events = None;
        self.changed.set();
    }

    /// Sends what happens, until it is closed or the near end cannot be reached any more.
    pub(super) fn send_all(&self) -> io::Result<()> {
        loop {
            let (events, armed): (_, Vec<_>) = {
                let watched = self.watched();
                if watched.over {
                    return Ok(());
                }
                let armed = watched.armed.iter().map(|(name, queue)| (*name, queue.clone()));
                (watched.events.clone(), armed.collect())
            };
            let queues = armed.iter().map(|(_, queue)| queue.as_fd());
            let fds = [self.changed.as_fd()].into_iter().chain(queues);
            let fds = fds.chain(events.as_ref().map(|events| events.as_fd()));
            let mut fds: Vec<_> =
                fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let readable: Vec<_> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if readable[0] {
                self.changed.clear();
            }
            let mut outgoing = self.outgoing();
            outgoing.send_events()?;
            for ((name, _), _) in armed.iter().zip(&readable[1..]).filter(|(_, ready)| **ready) {
                // Once, and not of one that was dropped meanwhile.
                if self.watched().armed.remove(name).is_some() {
                    outgoing.send(&Message::Readable(*name))?;
                }
            }
        }
    }
}

impl Outgoing {
    fn send(&self, message: &Message) -> io::Result<()> {
        frame::write(&self.stream, message)
    }

    fn send_events(&mut self) -> io::Result<()> {
        while let Some(event) = self.events.as_ref().and_then(EventQueue::poll) {
            if let Some(event) = self.renamed(event) {
                self.send(&Message::Event(event))?;
            }
        }
        Ok(())
    }

    /// With the near end's name; `None` if that end has dropped what it is of.
    fn renamed(&self, mut event: Event) -> Option<Event> {
        match &mut event {
            Event::Connected { endpoint, .. }
            | Event::ConnectFailed { endpoint, .. }
            | Event::Disconnected { endpoint, .. } => {
                *endpoint = EndpointId(*self.endpoints.get(endpoint)?);
            }
            Event::ConnectRequest { listener } => {
                *listener = ListenerId(*self.listeners.get(listener)?);
            }
            _ => {}
        }
        Some(event)
    }
}
