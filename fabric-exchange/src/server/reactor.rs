//! The server's thread: which connections are ready, which have to go, and whose turn it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fabric_util::fair_table::FairTable;
use fabric_util::log_limiter::{PeerEvent, PeerLog};
use fabric_util::log_line;
use fabric_util::proof::{HandshakeKeys, SEAL};
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token, Waker};

use super::connection::Connection;
use super::options::ServerOptions;
use super::service::{Reply, Service};
use crate::channel;
use crate::error::{ExchangeError, Result};
use crate::keepalive;
use crate::limits::Deadline;
use crate::wire::{self, Ask, MAX_WAITS, Request, Say};

const WAKER: Token = Token(0);
const LISTENER: Token = Token(1);
/// Connections have the numbers from here.
const FIRST: u64 = 2;
/// Requests of one connection in a row, before others have their turn.
const TURN: usize = 32;
/// Connections in a row, likewise.
const ACCEPTS: usize = 64;
/// Jobs are looked at so often, to be forgotten; and a listener that had no descriptor tries again.
const LOOK: Duration = Duration::from_secs(5);
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

pub(super) struct Reactor {
    poll: Poll,
    listener: TcpListener,
    is_over: Arc<AtomicBool>,
    options: ServerOptions,
    keys: Option<HandshakeKeys>,
    service: Service,
    numbered: u64,
    connections: HashMap<u64, Connection>,
    /// Those that have not joined, and until when they may.
    strangers: FairTable<u64>,
    join_until: BTreeMap<u64, Instant>,
    members: usize,
    /// Members that may not know so, by the token with which they joined, and the attempt by which they did.
    unaware: HashMap<[u8; SEAL], (u64, u32)>,
    /// Those that may have something to do.
    ready: BTreeSet<u64>,
    accept_at: Option<Instant>,
    /// When jobs are looked at next.
    look_at: Instant,
    log: PeerLog,
}

impl Reactor {
    pub(super) fn new(
        listener: std::net::TcpListener,
        options: ServerOptions,
        is_over: Arc<AtomicBool>,
    ) -> io::Result<(Self, Waker)> {
        let mut listener = TcpListener::from_std(listener);
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        let keys = channel::keys(options.secret.as_ref());
        let service = Service::new(&options);
        let (connections, strangers, join_until, unaware) = Default::default();
        let (numbered, members, ready) = (FIRST, 0, BTreeSet::new());
        let reactor = Reactor {
            poll,
            listener,
            is_over,
            options,
            keys,
            service,
            numbered,
            connections,
            strangers,
            join_until,
            members,
            unaware,
            ready,
            accept_at: None,
            look_at: Instant::now() + LOOK,
            log: PeerLog::default(),
        };
        Ok((reactor, waker))
    }

    /// Serves until it is over.
    pub(super) fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(256);
        while !self.is_over.load(Ordering::Acquire) {
            match self.poll.poll(&mut events, Some(self.patience(Instant::now()))) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                polled => polled?,
            }
            for event in &events {
                match event.token() {
                    WAKER => {}
                    LISTENER => self.accept_at = Some(Instant::now()),
                    Token(number) => {
                        let number = number as u64;
                        if let Some(connection) = self.connections.get_mut(&number) {
                            connection.is_readable();
                            self.ready.insert(number);
                        }
                    }
                }
            }
            let now = Instant::now();
            self.on_time(now);
            for number in std::mem::take(&mut self.ready) {
                self.turn(number, now);
            }
        }
        Ok(())
    }

    /// How long there is nothing to do, unless sockets say so.
    fn patience(&self, now: Instant) -> Duration {
        if !self.ready.is_empty() {
            return Duration::ZERO;
        }
        // Connections are numbered in the order in which their times end.
        let join = self.join_until.values().next().copied();
        let times = [self.service.next_time(), join, self.accept_at];
        let next = times.into_iter().flatten().min();
        next.map_or(LOOK, |next| next.saturating_duration_since(now).min(LOOK))
    }

    fn on_time(&mut self, now: Instant) {
        let replies = self.service.take_late(now);
        self.send(replies, now);
        if self.look_at <= now {
            self.service.forget_idle(now);
            self.look_at = now + LOOK;
        }
        let late = self.join_until.iter().take_while(|(_, until)| **until <= now);
        for number in late.map(|(number, _)| *number).collect::<Vec<_>>() {
            let why = format!("it did not join within {:?}", self.options.join_time);
            self.close(number, &ExchangeError::Disconnected(why), now);
        }
        if self.accept_at.is_some_and(|at| at <= now) {
            self.accept(now);
        }
    }

    fn accept(&mut self, now: Instant) {
        self.accept_at = None;
        for _ in 0..ACCEPTS {
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    let max_request = wire::max_request(&self.options.limits);
                    let connection = Connection::new(stream, peer, max_request);
                    if let Err(error) = self.begin(connection, now) {
                        log_line!(Debug, "rendezvous: the connection from {peer} ends: {error}");
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Of a client that has gone again already.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    if let Some(more) = self.log.check(PeerEvent::Resources, None) {
                        log_line!(Warn, "rendezvous: cannot accept: {error}{more}");
                    }
                    self.accept_at = Some(now + ACCEPT_AGAIN);
                    return;
                }
            }
        }
        self.accept_at = Some(now);
    }

    fn begin(&mut self, mut connection: Connection, now: Instant) -> io::Result<()> {
        keepalive::set(&connection.stream)?;
        let number = self.numbered;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Token(number as usize); // as many as a process can count
        self.poll.registry().register(&mut connection.stream, token, interest)?;
        self.numbered += 1;
        if self.strangers.len() >= self.options.max_strangers
            && let Some((network, oldest)) = self.strangers.displace()
        {
            let why = format!("there are too many that have not joined, most from {network}");
            self.close(oldest, &ExchangeError::Disconnected(why), now);
        }
        self.strangers.insert(number, connection.from(), number);
        self.join_until.insert(number, Deadline::after(self.options.join_time).end());
        self.connections.insert(number, connection);
        self.ready.insert(number);
        Ok(())
    }

    /// Does some of what a connection asks.
    fn turn(&mut self, number: u64, now: Instant) {
        for _ in 0..TURN {
            let waiting = self.service.waiting(number);
            let Some(connection) = self.connections.get_mut(&number) else { return };
            let next = match connection.flush() {
                Err(error) => Err(error),
                Ok(true) if connection.is_leaving => {
                    Err(ExchangeError::Disconnected("it is over".to_owned()))
                }
                Ok(false) if connection.is_leaving => {
                    Err(ExchangeError::Disconnected("it does not read".to_owned()))
                }
                Ok(_) if waiting > MAX_WAITS => {
                    let text = format!("more than {MAX_WAITS} requests wait");
                    Err(ExchangeError::Malformed(text))
                }
                Ok(_) => connection.next_request(self.keys.as_ref()),
            };
            match next.and_then(|request| self.handle(number, request, now)) {
                Ok(true) => {}
                Ok(false) => return self.flush(number, now),
                Err(why) => return self.close(number, &why, now),
            }
        }
        self.ready.insert(number);
    }

    fn flush(&mut self, number: u64, now: Instant) {
        let flushed = self.connections.get_mut(&number).map(Connection::flush);
        if let Some(Err(why)) = flushed {
            self.close(number, &why, now);
        }
    }

    /// Whether there was a request.
    fn handle(&mut self, number: u64, request: Option<Request>, now: Instant) -> Result<bool> {
        let Some(request) = request else { return Ok(false) };
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(false) };
        if let Some(token) = connection.token.take() {
            self.unaware.remove(&token);
        }
        match (connection.place, &request.ask) {
            (None, _) => self.join(number, request, now)?,
            (Some(_), Ask::Here) => {}
            (Some(place), Ask::Leave { is_lost }) => {
                connection.place = None;
                connection.is_leaving = true;
                connection.answer(request.number, Say::Left)?;
                self.members -= 1;
                let replies = self.service.depart(number, place, *is_lost, now);
                self.send(replies, now);
            }
            (Some(place), _) => {
                let replies = self.service.serve((number, place), request);
                self.send(replies, now);
            }
        }
        Ok(true)
    }

    fn join(&mut self, number: u64, request: Request, now: Instant) -> Result<()> {
        let Ask::Join { membership, token, attempt } = request.ask else {
            return Err(ExchangeError::Malformed("its first request is not to join".to_owned()));
        };
        // Another attempt of the same call: a later one knows better. (That of the earlier one may come later all the same.)
        if let Some(&(earlier, _)) = self.unaware.get(&token).filter(|(_, other)| *other < attempt)
        {
            let why = "the same member connected anew: the answer to its joining was lost";
            self.close(earlier, &ExchangeError::Disconnected(why.to_owned()), now);
        }
        let max = self.options.max_members;
        let who = format!("rank {} of {}", membership.rank(), membership.job());
        let joined = if self.members < max {
            self.service.join(membership, now)
        } else {
            Err(ExchangeError::full("there are as many members already", max as u64))
        };
        self.strangers.remove(number);
        self.join_until.remove(&number);
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        match joined {
            Ok((place, say)) => {
                log_line!(Info, "rendezvous: {who} joined from {}", connection.peer);
                connection.place = Some(place);
                connection.token = Some(token);
                self.unaware.insert(token, (number, attempt));
                self.members += 1;
                connection.answer(request.number, say)
            }
            Err(error) => {
                if let Some(more) = self.log.check(PeerEvent::Admission, Some(connection.peer)) {
                    log_line!(Info, "rendezvous: {who} is refused: {error}{more}");
                }
                connection.is_leaving = true;
                connection.answer(request.number, Say::Failed(error))
            }
        }
    }

    /// Gives connections their answers.
    fn send(&mut self, replies: Vec<Reply>, now: Instant) {
        for Reply { connection: number, request, say } in replies {
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            if let Err(why) = connection.answer(request, say) {
                self.close(number, &why, now);
            } else {
                self.ready.insert(number);
            }
        }
    }

    /// Ends a connection; a member without a farewell is lost, unless it may not know that it is one.
    fn close(&mut self, number: u64, why: &ExchangeError, now: Instant) {
        let Some(mut connection) = self.connections.remove(&number) else { return };
        self.strangers.remove(number);
        self.join_until.remove(&number);
        self.ready.remove(&number);
        // Closing it does the same.
        let _ = self.poll.registry().deregister(&mut connection.stream);
        let peer = connection.peer;
        drop(connection.stream);
        let Some(place) = connection.place else {
            log_line!(Debug, "rendezvous: the connection from {peer} ends: {why}");
            return;
        };
        self.members -= 1;
        let is_lost = connection.token.is_none();
        if let Some(more) = self.log.check(PeerEvent::Liveness, Some(peer)) {
            let job = self.service.job_name(place);
            let fate = if is_lost { "is lost" } else { "may join again" };
            log_line!(
                Warn,
                "rendezvous: rank {} of {job}, at {peer}, {fate}: {why}{more}",
                place.rank
            );
        }
        if let Some(token) = connection.token {
            self.unaware.remove(&token);
            return self.service.withdraw(place, now);
        }
        let replies = self.service.depart(number, place, true, now);
        self.send(replies, now);
    }
}
