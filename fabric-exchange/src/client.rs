//! The client of the TCP server: one connection for each rank, and a thread that reads it.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fabric_core::Secret;
use fabric_util::introductions::ReadUntil;
use fabric_util::proof::{HandshakeKeys, Prover};
use serde_bytes::ByteBuf;

use crate::channel::{self, Frames, HELLO, Handshake, Incoming, LENGTH, Outgoing, PROOF};
use crate::error::{ExchangeError, MissingRanks, Result};
use crate::exchange::{Backend, Exchange};
use crate::job::Membership;
use crate::keepalive;
use crate::limits::{Backoff, Deadline};
use crate::random::random;
use crate::wire::{self, Answer, Ask, MAX_ANSWER, MAX_WAITS, Request, Say};

/// One attempt to connect, or to shake hands, takes no longer.
const ATTEMPT: Duration = Duration::from_secs(10);
/// The server answers a wait when its time is over; so long after that it is given up.
const GRACE: Duration = Duration::from_secs(10);
/// What came while this process was stopped is read in less.
const MOMENT: Duration = Duration::from_secs(1);
/// Attempts to connect are so far apart.
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// Joins a job at a server, `HOST:PORT`, which may come later: within `timeout`.
pub(crate) fn join(
    server: &str,
    membership: &Membership,
    secret: Option<&Secret>,
    timeout: Duration,
) -> Result<Exchange> {
    let (deadline, keys) = (Deadline::after(timeout), channel::keys(secret));
    let token = random()?; // of all attempts
    let mut backoff = Backoff::up_to(MAX_PAUSE);
    let mut number = 0;
    loop {
        let ask = Ask::Join { membership: membership.clone(), token, attempt: number };
        match attempt(server, (membership, ask), keys.as_ref(), &deadline) {
            Ok(exchange) => return Ok(exchange),
            Err(Attempt::Final(error)) => return Err(error),
            Err(Attempt::Later(why)) if deadline.is_over() => {
                return Err(ExchangeError::Unreachable(format!(
                    "no rendezvous at tcp://{server} within {timeout:?}: {why}; is `fabric rendezvous` running there?"
                )));
            }
            Err(Attempt::Later(_)) => thread::sleep(backoff.next(&deadline)),
        }
        number += 1;
    }
}

fn attempt(
    server: &str,
    (membership, ask): (&Membership, Ask),
    keys: Option<&HandshakeKeys>,
    deadline: &Deadline,
) -> Result<Exchange, Attempt> {
    let (stream, frames) = connect(server, keys, deadline)?;
    let client = Client::start(stream, frames)?;
    let here = || client.send(&Request { number: 0, ask: Ask::Here });
    let said = client.ask(ask);
    let limits = match said.and_then(|said| here().map(|()| said)) {
        Ok(Say::Joined(limits)) => limits,
        Ok(other) => return Err(odd(&other).into()),
        // Until it has joined a server ends a connection for another, if there are many.
        Err(ExchangeError::Disconnected(why)) => {
            return Err(Attempt::Later(format!("the connection ended before the answer: {why}")));
        }
        Err(error) => return Err(error.into()),
    };
    limits.check()?;
    Ok(Exchange::new(membership.clone(), limits, Box::new(client)))
}

/// Why an attempt made no connection.
enum Attempt {
    /// Another one fails as well.
    Final(ExchangeError),
    /// The server may not be there yet.
    Later(String),
}

impl From<ExchangeError> for Attempt {
    fn from(error: ExchangeError) -> Self {
        Attempt::Final(error)
    }
}

fn connect(
    server: &str,
    keys: Option<&HandshakeKeys>,
    deadline: &Deadline,
) -> Result<(TcpStream, Frames), Attempt> {
    // At least so long that an attempt without time is one.
    let time = || deadline.left().clamp(Duration::from_millis(10), ATTEMPT);
    let later = |error: std::io::Error| Attempt::Later(error.to_string());
    let addresses = server.to_socket_addrs().map_err(later)?;
    let mut last = format!("{server} has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, time()) {
            Ok(stream) => {
                keepalive::set(&stream).map_err(later)?;
                stream.set_write_timeout(Some(ATTEMPT)).map_err(later)?;
                let frames = shake_hands(&stream, server, keys, time())?;
                stream.set_read_timeout(None).map_err(later)?;
                return Ok((stream, frames));
            }
            Err(error) => last = format!("{address}: {error}"),
        }
    }
    Err(Attempt::Later(last))
}

fn shake_hands(
    stream: &TcpStream,
    server: &str,
    keys: Option<&HandshakeKeys>,
    time: Duration,
) -> Result<Frames, Attempt> {
    let name = format!("the server at {server}");
    // A server that is full, or that is just ending, closes.
    let gone = |error: std::io::Error| match error.kind() {
        ErrorKind::TimedOut => Attempt::Later(format!("{name} says nothing")),
        _ => Attempt::Later(format!("{name} has no room, or is ending: {}", in_words(&error))),
    };
    let mut reader = ReadUntil::new(stream, time);
    let own = channel::hello(keys.is_some())?;
    (&*stream).write_all(&own).map_err(gone)?;
    let mut theirs = [0; HELLO];
    reader.read_exact(&mut theirs).map_err(gone)?;
    channel::check_hello(&theirs, keys.is_some(), &name)?;
    let Some(keys) = keys else { return Ok(Frames::open()) };
    let mut handshake = Handshake::new(keys, Prover::Initiator, &own, &theirs);
    (&*stream).write_all(&handshake.prove()).map_err(gone)?;
    let mut proof = [0; PROOF];
    reader.read_exact(&mut proof).map_err(gone)?;
    if handshake.is_proven(&proof) {
        return Ok(handshake.frames());
    }
    let text = format!("{name} has another secret, or something between changed what was said");
    Err(Attempt::Final(ExchangeError::Unauthenticated(text)))
}

/// Why a connection ended, where the system's words say it of a call.
fn in_words(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof => "the server closed it".to_owned(),
        ErrorKind::WouldBlock => format!("the server took nothing for {ATTEMPT:?}"),
        ErrorKind::TimedOut => "the server's host does not answer".to_owned(),
        _ => error.to_string(),
    }
}

fn odd(say: &Say) -> ExchangeError {
    match say {
        Say::Failed(error) => error.clone(),
        _ => ExchangeError::Malformed("the server answered something else".to_owned()),
    }
}

/// What the threads of this process and the one that reads share.
struct Line {
    stream: TcpStream,
    outgoing: Mutex<Outgoing>,
    calls: Mutex<Calls>,
    answered: Condvar,
}

#[derive(Default)]
struct Calls {
    number: u32,
    /// How many threads wait for something, with the server's help.
    waits: usize,
    waiting: HashMap<u32, SyncSender<Say>>,
    /// Why there are no more answers.
    ended: Option<ExchangeError>,
}

impl Line {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing more is said or heard. The first reason counts.
    fn end(&self, why: ExchangeError) {
        let _ = self.stream.shutdown(Shutdown::Both);
        let mut calls = self.calls();
        calls.ended.get_or_insert(why);
        calls.waiting.clear();
        self.answered.notify_all();
    }

    /// Reads answers until the connection ends.
    fn read(&self, mut incoming: Incoming) -> Result<()> {
        loop {
            let mut length = [0; LENGTH];
            let ended = |error: std::io::Error| ExchangeError::Disconnected(in_words(&error));
            (&self.stream).read_exact(&mut length).map_err(ended)?;
            let mut body = vec![0; incoming.body_len(length, MAX_ANSWER)?];
            (&self.stream).read_exact(&mut body).map_err(ended)?;
            let answer: Answer = wire::decode(incoming.unwrap(length, &body)?)?;
            let call = self.calls().waiting.remove(&answer.number);
            // A call that was given up has no receiver any more.
            if let Some(call) = call {
                let _ = call.try_send(answer.say);
            }
        }
    }
}

/// What comes within a time. A process that was stopped may find the time over and the answer there, not read yet.
fn receive(answer: &Receiver<Say>, time: Duration) -> Result<Say, RecvTimeoutError> {
    match answer.recv_timeout(time) {
        Err(RecvTimeoutError::Timeout) => answer.recv_timeout(MOMENT),
        received => received,
    }
}

/// A rank's connection.
struct Client {
    line: Arc<Line>,
    reader: Option<JoinHandle<()>>,
}

impl Client {
    fn start(stream: TcpStream, frames: Frames) -> Result<Self> {
        let Frames { outgoing, incoming } = frames;
        let (outgoing, calls) = (Mutex::new(outgoing), Mutex::default());
        let line = Arc::new(Line { stream, outgoing, calls, answered: Condvar::new() });
        let own = Arc::clone(&line);
        let reader = thread::Builder::new().name("fabric-exchange".into()).spawn(move || {
            if let Err(why) = own.read(incoming) {
                own.end(why);
            }
        });
        let reader = reader.map_err(|error| {
            ExchangeError::Storage(format!("cannot start the thread that reads: {error}"))
        })?;
        Ok(Client { line, reader: Some(reader) })
    }

    /// Asks the server for what it does at once.
    fn ask(&self, ask: Ask) -> Result<Say> {
        self.ask_within(ask, Duration::ZERO)
    }

    /// Asks the server for what may have to be waited for. Without time it only looks.
    fn wait(&self, deadline: &Deadline, ask: impl FnOnce(u64) -> Ask) -> Result<Say> {
        if !self.begin_wait(deadline) {
            return self.ask(ask(0));
        }
        let left = deadline.left();
        let answer = self.ask_within(ask(wire::to_ms(left)), left);
        self.line.calls().waits -= 1;
        self.line.answered.notify_one();
        answer
    }

    /// Waits while there are too many waits; false if there are until the time is over.
    fn begin_wait(&self, deadline: &Deadline) -> bool {
        let mut calls = self.line.calls();
        while calls.waits >= MAX_WAITS && calls.ended.is_none() {
            let left = deadline.left();
            if left.is_zero() {
                return false;
            }
            let waited = self.line.answered.wait_timeout(calls, left);
            calls = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        calls.waits += 1;
        true
    }

    fn ask_within(&self, ask: Ask, time: Duration) -> Result<Say> {
        let deadline = Deadline::after(time.saturating_add(GRACE));
        let (number, answer) = self.begin()?;
        self.send(&Request { number, ask })?;
        match receive(&answer, deadline.left()) {
            Ok(Say::Failed(error)) => Err(error),
            Ok(say) => Ok(say),
            Err(RecvTimeoutError::Disconnected) => Err(self.why_ended()),
            Err(RecvTimeoutError::Timeout) => {
                let why = ExchangeError::Disconnected("the server does not answer".to_owned());
                self.line.end(why.clone());
                Err(why)
            }
        }
    }

    /// A number for a request, and where its answer comes.
    fn begin(&self) -> Result<(u32, Receiver<Say>)> {
        let mut calls = self.line.calls();
        if let Some(why) = &calls.ended {
            return Err(why.clone());
        }
        let (sender, receiver) = sync_channel(1);
        calls.number = calls.number.wrapping_add(1);
        let number = calls.number;
        calls.waiting.insert(number, sender);
        Ok((number, receiver))
    }

    fn send(&self, request: &Request) -> Result<()> {
        let message = wire::encode(request)?;
        let mut outgoing = self.line.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: frames leave in the order of their numbers.
        let sent = (&self.line.stream).write_all(&outgoing.wrap(&message));
        drop(outgoing);
        sent.map_err(|error| {
            self.line.end(ExchangeError::Disconnected(in_words(&error)));
            self.why_ended()
        })
    }

    fn why_ended(&self) -> ExchangeError {
        let ended = self.line.calls().ended.clone();
        ended.unwrap_or_else(|| ExchangeError::Disconnected("it is over".to_owned()))
    }
}

impl Backend for Client {
    fn put(&self, key: &str, blob: &[u8]) -> Result<bool> {
        let ask = Ask::Put { key: key.to_owned(), blob: ByteBuf::from(blob) };
        match self.ask(ask)? {
            Say::Kept(is_kept) => Ok(is_kept),
            other => Err(odd(&other)),
        }
    }

    fn get(&self, key: &str, deadline: &Deadline) -> Result<Option<Vec<u8>>> {
        let key = key.to_owned();
        match self.wait(deadline, |wait_ms| Ask::Get { key, wait_ms })? {
            Say::Blob(blob) => Ok(Some(blob.into_vec())),
            Say::Late => Ok(None),
            other => Err(odd(&other)),
        }
    }

    fn gather(&self, round: u32, first: u32, deadline: &Deadline) -> Result<Vec<Vec<u8>>> {
        match self.wait(deadline, |wait_ms| Ask::Gather { round, first, wait_ms })? {
            Say::Blobs(blobs) => Ok(blobs.into_iter().map(ByteBuf::into_vec).collect()),
            Say::Late => Ok(Vec::new()),
            other => Err(odd(&other)),
        }
    }

    fn barrier(&self, name: &str, round: u32, deadline: &Deadline) -> Result<MissingRanks> {
        let name = name.to_owned();
        match self.wait(deadline, |wait_ms| Ask::Barrier { name, round, wait_ms })? {
            Say::Missing(missing) => Ok(missing),
            other => Err(odd(&other)),
        }
    }

    fn forget(&self, round: u32) -> Result<()> {
        match self.ask(Ask::Forget { round })? {
            Say::Forgotten => Ok(()),
            other => Err(odd(&other)),
        }
    }

    fn leave(&self, is_lost: bool) -> Result<()> {
        match self.ask(Ask::Leave { is_lost })? {
            Say::Left => Ok(()),
            other => Err(odd(&other)),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.line.end(ExchangeError::Disconnected("this process left".to_owned()));
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

#[cfg(test)]
mod tests;
