//! The loop, and what is done on events and completions.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use fabric::{
    Armed, Capabilities, Completion, CompletionQueue, ConnectRequest, Domain, EndpointId, Error,
    ErrorClass, Event, EventQueue, Hints, Listener,
};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::common::{Outcome, PATIENCE, Place, send_away};
use crate::peer::Peer;

/// Connections at a time; each reserves room for a send and a receive in the completion queue.
const MAX_CONNECTIONS: usize = 4096;
/// Pause between attempts to connect.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) struct Node {
    domain: Domain,
    events: EventQueue,
    queue: CompletionQueue,
    poll: Poll,
    peers: HashMap<EndpointId, Peer>,
    /// Of a server: where clients come in.
    listener: Option<Listener>,
    /// Of a client: where to, how many connections are to be begun, when, and how long to try.
    address: SocketAddr,
    to_dial: usize,
    next_dial: Instant,
    give_up: Instant,
    messages: Option<u64>,
    /// Connections that have ended, and how many of these end the program.
    ended: usize,
    enough: Option<usize>,
}

impl Node {
    /// A server, or with `messages` to send a client. It ends after so many `connections`, or never.
    pub(crate) fn new(
        place: Place,
        connections: Option<usize>,
        messages: Option<u64>,
    ) -> Outcome<Self> {
        let domain = Domain::open(&Hints { capabilities: Capabilities::SEND, ..Hints::default() })?;
        let queue = domain.completion_queue(MAX_CONNECTIONS * 2)?;
        let events = domain.events();
        // Before clients come: their connections may take all descriptors that there are.
        let poll = Poll::new()?;
        for (fd, token) in [(events.as_fd(), Token(0)), (queue.as_fd(), Token(1))] {
            poll.registry().register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)?;
        }
        let address = place.on(&domain)?;
        let (mut listener, mut to_dial) = (None, 0);
        if messages.is_some() {
            to_dial = connections.unwrap_or(1);
        } else {
            let listens = listener.insert(domain.listen(address)?);
            println!("{} listens on {}", domain.provider(), listens.local_addr());
        }
        Ok(Node {
            domain,
            events,
            queue,
            poll,
            peers: HashMap::new(),
            listener,
            address,
            to_dial,
            next_dial: Instant::now(),
            give_up: Instant::now() + PATIENCE,
            messages,
            ended: 0,
            enough: connections,
        })
    }

    /// Runs until enough connections have come and gone.
    pub(crate) fn run(&mut self) -> Outcome {
        let mut ready = Events::with_capacity(16);
        let mut completions = [Completion::default(); 64];
        loop {
            // mio reports that a descriptor becomes readable, not that it is: take all there is before sleeping.
            while let Some(event) = self.events.poll() {
                self.event(event)?;
            }
            let taken = self.queue.poll(&mut completions)?;
            for completion in &completions[..taken] {
                self.completed(completion)?;
            }
            if self.enough.is_some_and(|enough| self.ended >= enough) {
                return Ok(());
            }
            let timer = self.dial()?;
            // Armed, the queue's descriptor becomes readable with the next completion; or one is there already.
            if taken == 0
                && self.queue.arm()? == Armed::Waiting
                && let Err(error) = self.poll.poll(&mut ready, timer)
                && error.kind() != ErrorKind::Interrupted
            {
                return Err(error.into());
            }
        }
    }

    /// Begins the connections that are due; returns when to look again.
    fn dial(&mut self) -> Outcome<Option<Duration>> {
        if self.to_dial == 0 {
            return Ok(None);
        }
        let wait = self.next_dial.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            return Ok(Some(wait));
        }
        for _ in 0..std::mem::take(&mut self.to_dial) {
            let peer = Peer::new(&self.domain, &self.queue, self.messages)?;
            peer.endpoint.connect(self.address, &[])?;
            self.peers.insert(peer.endpoint.id(), peer);
        }
        Ok(None)
    }

    fn welcome(&self, request: &mut ConnectRequest) -> fabric::Result<Peer> {
        let mut peer = Peer::new(&self.domain, &self.queue, self.messages)?;
        peer.listen()?;
        request.accept(&peer.endpoint, &[])?;
        Ok(peer)
    }

    fn event(&mut self, event: Event) -> Outcome {
        match event {
            Event::ConnectRequest { .. } => {
                while let Some(mut request) = self.listener.as_ref().and_then(Listener::poll) {
                    match self.welcome(&mut request) {
                        Ok(peer) => _ = self.peers.insert(peer.endpoint.id(), peer),
                        // One client, or one too many: the others are served on.
                        Err(error) => send_away(request, &error),
                    }
                }
            }
            Event::Connected { endpoint, .. } => {
                // The client begins; the server has its receive posted.
                if let Some(peer) =
                    self.peers.get_mut(&endpoint).filter(|_| self.listener.is_none())
                {
                    peer.step()?;
                }
            }
            Event::ConnectFailed { endpoint, error } => {
                self.peers.remove(&endpoint);
                // A client that gave up while it was accepted: the others are served on.
                if self.listener.is_some() {
                    return Ok(());
                }
                if error.class() != ErrorClass::Transient || Instant::now() > self.give_up {
                    return Err(format!("cannot connect to {}: {error}", self.address).into());
                }
                self.to_dial += 1;
                self.next_dial = Instant::now() + PAUSE;
            }
            Event::Disconnected { endpoint, reason } => {
                if self.peers.remove(&endpoint).is_some_and(|peer| !peer.may_leave()) {
                    return Err(format!("the server has left: {reason}").into());
                }
                self.ended += 1;
            }
            Event::DeviceLost => return Err(Error::DeviceLost.into()),
            _ => {}
        }
        Ok(())
    }

    fn completed(&mut self, completion: &Completion) -> Outcome {
        // What fails ends its connection, and an event reports that.
        let Some(peer) = self.peers.get_mut(&completion.endpoint).filter(|_| completion.is_ok())
        else {
            return Ok(());
        };
        match peer.advance() {
            Ok(false) => {}
            Ok(true) if Some(peer.number()? / 2) == self.messages => peer.endpoint.disconnect(),
            Ok(true) => return Err(format!("the number came to {}", peer.number()?).into()),
            Err(Error::NotConnected) => {} // the other end has just left; the event follows
            Err(error) if self.listener.is_some() => {
                eprintln!("{}: {error}", completion.endpoint);
                peer.endpoint.disconnect();
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}
