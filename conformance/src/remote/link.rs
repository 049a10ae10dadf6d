//! The near end of a connection to a server: calls, and what the far end sends by itself.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fabric::provider::{Event, EventSink, Failure};
use fabric::{Error, Result};
use fabric_util::mutual_proof::keys_from_env;
use fabric_util::wakeup::Wakeup;
use serde::de::DeserializeOwned;
use serde_bytes::ByteBuf;

use super::frame;
use super::protocol::{Call, Message, Request};

/// How long a connection to the server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// No call takes long at the far end, and a lost packet costs seconds. Behind this the server counts as dead. It is
/// longer than any case cuts the link, or stops the server.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// One connection to a server, which is one domain there. Any thread may call; each call waits for its answer.
pub(super) struct Link {
    stream: TcpStream,
    state: Arc<LinkState>,
    ids: AtomicU64,
    reader: Option<JoinHandle<()>>,
}

/// What the reading thread shares with the callers.
#[derive(Default)]
struct LinkState {
    sending: Mutex<()>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    over: bool,
    answers: HashMap<u64, SyncSender<Result<ByteBuf>>>,
    queues: HashMap<u64, Weak<Wakeup>>,
}

impl LinkState {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Whole between statements.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link {
    /// Connects and greets; the error is for people.
    pub(super) fn to(addr: SocketAddr, events: Arc<dyn EventSink>) -> Result<Link, String> {
        let text = |error: io::Error| error.to_string();
        let stream = TcpStream::connect_timeout(&addr, CONNECT_TIMEOUT).map_err(text)?;
        let keys = keys_from_env().map_err(|error| error.to_string())?;
        frame::greet(&stream, keys.as_ref())?;
        stream.set_write_timeout(Some(CALL_TIMEOUT)).map_err(text)?;
        let state = Arc::new(LinkState::default());
        let (theirs, reading) = (state.clone(), stream.try_clone().map_err(text)?);
        let reader = thread::Builder::new().name("remote".to_owned());
        let reader = reader.spawn(move || theirs.read(&reading, &*events)).map_err(text)?;
        Ok(Link { stream, state, ids: AtomicU64::new(1), reader: Some(reader) })
    }

    /// A name for an object at the far end, or for a call.
    pub(super) fn next_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Where this end of the connection is, and where the other.
    pub(super) fn addrs(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        Ok((self.stream.local_addr()?, self.stream.peer_addr()?))
    }

    /// Calls and waits for the answer. By the return this end has seen what the far end did before it answered, events
    /// included.
    pub(super) fn call<T: DeserializeOwned>(&self, call: Call) -> Result<T> {
        let number = self.next_id();
        let (answer, answered) = sync_channel(1);
        {
            let mut waiting = self.state.waiting();
            if waiting.over {
                return Err(Error::DeviceLost);
            }
            waiting.answers.insert(number, answer);
        }
        let sent = {
            let _turn = self.state.sending.lock().unwrap_or_else(PoisonError::into_inner);
            frame::write(&self.stream, &Request { number, call })
        };
        if let Err(error) = sent {
            if error.kind() == io::ErrorKind::Other {
                // Nothing of what is no frame has gone out.
                self.state.waiting().answers.remove(&number);
            } else {
                // The reader notices, and by the return this link is over: it drops all that waits, this one too.
                let _ = self.stream.shutdown(Shutdown::Both);
                let _ = answered.recv_timeout(CALL_TIMEOUT);
            }
            return Err(broken(error));
        }
        match answered.recv_timeout(CALL_TIMEOUT) {
            Ok(Ok(bytes)) => {
                postcard::from_bytes(&bytes).map_err(|error| broken(io::Error::other(error)))
            }
            Ok(Err(error)) => Err(error),
            Err(_) => {
                // It is gone, or as good as gone: no later call shall wait for it.
                self.state.waiting().over = true;
                let _ = self.stream.shutdown(Shutdown::Both);
                Err(Error::DeviceLost)
            }
        }
    }

    /// Whether no call is answered any more.
    pub(super) fn is_over(&self) -> bool {
        self.state.waiting().over
    }

    /// Makes `wakeup` readable whenever the far end says that this queue has something.
    pub(super) fn watch(&self, queue: u64, wakeup: &Arc<Wakeup>) {
        self.state.waiting().queues.insert(queue, Arc::downgrade(wakeup));
    }

    pub(super) fn unwatch(&self, queue: u64) {
        self.state.waiting().queues.remove(&queue);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.state.waiting().over = true;
        // It ends the reader, and the far end lets go of everything.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl LinkState {
    fn read(&self, stream: &TcpStream, events: &dyn EventSink) {
        while let Ok(Some(message)) = frame::read::<Message>(stream) {
            match message {
                Message::Answer(number, result) => {
                    if let Some(answer) = self.waiting().answers.remove(&number) {
                        // A caller that has given up takes no answer.
                        let _ = answer.send(result);
                    }
                }
                Message::Event(event) => events.event(event),
                Message::Readable(queue) => {
                    if let Some(wakeup) = self.waiting().queues.get(&queue).and_then(Weak::upgrade)
                    {
                        wakeup.set();
                    }
                }
            }
        }
        let mut waiting = self.waiting();
        let closed_here = std::mem::replace(&mut waiting.over, true);
        waiting.answers.clear();
        waiting.queues.values().filter_map(Weak::upgrade).for_each(|wakeup| wakeup.set());
        drop(waiting);
        if !closed_here {
            events.event(Event::DeviceLost);
        }
    }
}

fn broken(cause: io::Error) -> Error {
    let failure = Failure::new("call", "the connection to the other host broke");
    Error::Internal(failure.of("remote").because(cause))
}
