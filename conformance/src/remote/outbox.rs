//! What goes back to the near end: answers, and what happens by itself.

use std::collections::HashMap;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fabric::provider::wakeup::Wakeup;
use fabric::{CompletionQueue, EndpointId, Event, EventQueue, ListenerId, Result};
use rustix::event::{PollFd, PollFlags, poll};
use serde_bytes::ByteBuf;

use super::frame;
use super::protocol::{Happening, Message};
use super::wire::{Fault, of_reason};

/// Written to by the thread that executes the calls, and by one that waits for events and armed queues.
///
/// What has happened when a call is answered is told before the answer: the near end learns things in the order in
/// which a program at this end would.
pub(super) struct Outbox {
    outgoing: Mutex<Outgoing>,
    watched: Mutex<Watched>,
    /// Tells the waiting thread that there is something else to wait for.
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
        outgoing.tell_events()?;
        outgoing.tell(&Message::Answer(number, answer.map_err(Fault::from)))
    }

    /// Tells the near end of these events from now on.
    pub(super) fn watch(&self, events: EventQueue) {
        self.outgoing().events = Some(events.clone());
        self.watched().events = Some(events);
        self.changed.set();
    }

    /// Tells the near end once when this queue, which is armed, has something.
    pub(super) fn armed(&self, name: u64, queue: &CompletionQueue) {
        self.watched().armed.insert(name, queue.clone());
        self.changed.set();
    }

    pub(super) fn disarm(&self, name: u64) {
        // In two steps: the last handle of a queue does not go under the lock.
        let queue = self.watched().armed.remove(&name);
        drop(queue);
    }

    /// Makes a listener and gives it its name, before anything is told of it.
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

    /// Lets everything go that is waited for, and ends [`tell_all`](Outbox::tell_all).
    pub(super) fn close(&self) {
        let watched =
            std::mem::replace(&mut *self.watched(), Watched { over: true, ..Watched::default() });
        drop(watched);
        self.outgoing().events = None;
        self.changed.set();
    }

    /// Tells what happens, until it is closed or the near end cannot be told any more.
    pub(super) fn tell_all(&self) -> io::Result<()> {
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
            outgoing.tell_events()?;
            for ((name, _), _) in armed.iter().zip(&readable[1..]).filter(|(_, ready)| **ready) {
                // Once; one that was dropped meanwhile is not told of.
                if self.watched().armed.remove(name).is_some() {
                    outgoing.tell(&Message::Readable(*name))?;
                }
            }
        }
    }
}

impl Outgoing {
    fn tell(&self, message: &Message) -> io::Result<()> {
        frame::write(&self.stream, message)
    }

    fn tell_events(&mut self) -> io::Result<()> {
        while let Some(event) = self.events.as_ref().and_then(EventQueue::poll) {
            if let Some(happening) = self.happening(event) {
                self.tell(&Message::Event(happening))?;
            }
        }
        Ok(())
    }

    /// `None` for what has no name here: it is gone at the near end.
    fn happening(&self, event: Event) -> Option<Happening> {
        let name = |id: &EndpointId| self.endpoints.get(id).copied();
        Some(match event {
            Event::Connected { endpoint, data } => {
                let data = ByteBuf::from(data.into_vec());
                Happening::Connected { endpoint: name(&endpoint)?, data }
            }
            Event::ConnectFailed { endpoint, error } => {
                Happening::ConnectFailed { endpoint: name(&endpoint)?, error: error.into() }
            }
            Event::Disconnected { endpoint, reason } => {
                Happening::Disconnected { endpoint: name(&endpoint)?, reason: of_reason(reason) }
            }
            Event::ConnectRequest { listener } => {
                Happening::ConnectRequest { listener: self.listeners.get(&listener).copied()? }
            }
            Event::DeviceLost => Happening::DeviceLost,
            Event::PortDown => Happening::PortDown,
            Event::PortActive => Happening::PortActive,
            _ => return None,
        })
    }
}
