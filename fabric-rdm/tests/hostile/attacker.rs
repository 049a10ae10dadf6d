//! A peer that says whatever a test likes, by a plain connected endpoint of `fabric`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fabric::{
    Access, Completion, CompletionQueue, Domain, Endpoint, Hints, Listener, Op, OpKind, Region,
    RemoteSlice,
};
use fabric_core::{Error, RemoteRegion};
use fabric_rdm::{Address, EndpointIdentity, HostIdentity};

/// How long anything may take that has to come.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Of the protocol.
pub(crate) const VERSION: u8 = 2;

pub(crate) const CONFIRM: u8 = 1;
pub(crate) const MESSAGE: u8 = 2;
pub(crate) const DATA: u8 = 3;
pub(crate) const FETCH: u8 = 4;
pub(crate) const OFFER: u8 = 5;
pub(crate) const DONE: u8 = 6;
pub(crate) const MATCHED: u8 = 7;
pub(crate) const GRANT: u8 = 8;
pub(crate) const NOTICE: u8 = 9;
pub(crate) const PARK: u8 = 10;

pub(crate) const TAGGED: u8 = 1;
pub(crate) const IMMEDIATE: u8 = 1 << 1;
pub(crate) const WANTS_MATCHED: u8 = 1 << 2;
pub(crate) const PIECES: u8 = 1 << 3;
pub(crate) const FETCHED: u8 = 1 << 4;
pub(crate) const OFFERED: u8 = 1 << 5;

const SLOT: usize = 8192;

/// A tagged message's head: all of its frame but the payload.
pub(crate) fn message(flags: u8, number: u64, tag: u64, len: u64) -> Vec<u8> {
    let mut frame = vec![MESSAGE, flags | TAGGED, 0, 0, 0, 0, 0, 0];
    for part in [number, tag, len] {
        frame.extend(part.to_le_bytes());
    }
    frame
}

/// A message that goes whole.
pub(crate) fn whole(number: u64, tag: u64, payload: &[u8]) -> Vec<u8> {
    [&message(0, number, tag, payload.len() as u64)[..], payload].concat()
}

/// A frame that is its kind and a number.
pub(crate) fn word(kind: u8, number: u64) -> Vec<u8> {
    [&[kind, 0, 0, 0, 0, 0, 0, 0], &number.to_le_bytes()[..]].concat()
}

pub(crate) fn data(number: u64, payload: &[u8]) -> Vec<u8> {
    [&word(DATA, number)[..], payload].concat()
}

pub(crate) fn offer(number: u64, remote: RemoteRegion) -> Vec<u8> {
    [&word(OFFER, number)[..], &remote.to_bytes()].concat()
}

/// A grant or a notice.
pub(crate) fn flow(kind: u8, flags: u8, numbers: [u64; 4]) -> Vec<u8> {
    let mut frame = vec![kind, flags, 0, 0, 0, 0, 0, 0];
    numbers.iter().for_each(|number| frame.extend(number.to_le_bytes()));
    frame
}

/// Places, bytes and bytes of a slot.
pub(crate) fn windows(numbers: [u64; 3]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

pub(crate) const FAIR: [u64; 3] = [64, 1 << 20, 8192];

/// What a request says, but for the identities.
#[derive(Clone, Copy, Default)]
pub(crate) struct Numbers {
    pub(crate) flags: u8,
    pub(crate) life: u32,
    pub(crate) session: u64,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// The private data of a request, or how that of an acceptance begins.
pub(crate) fn hello(from: EndpointIdentity, to: EndpointIdentity, numbers: Numbers) -> Vec<u8> {
    let Numbers { flags, life, session, sent, received } = numbers;
    let mut hello = vec![VERSION, flags];
    hello.extend(from.to_bytes());
    hello.extend(&to.to_bytes()[..8]);
    hello.extend(life.to_be_bytes());
    for number in [session, sent, received] {
        hello.extend(&number.to_be_bytes()[2..]);
    }
    hello
}

fn session_of(data: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes[2..].copy_from_slice(&data[30..36]);
    u64::from_be_bytes(bytes)
}

pub(crate) fn domain() -> Domain {
    Domain::open(&Hints { provider: Some("tcp".into()), ..Hints::default() }).unwrap()
}

pub(crate) fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

pub(crate) struct Attacker {
    pub(crate) domain: Domain,
    pub(crate) identity: EndpointIdentity,
    listener: Listener,
    queue: CompletionQueue,
    pub(crate) endpoint: Endpoint,
    slots: Region,
    frames: VecDeque<Vec<u8>>,
    pub(crate) numbers: Numbers,
    /// Windows that it says it has.
    pub(crate) windows: [u64; 3],
    /// Receives that it posts to a connection; each is posted again when it `reads`.
    pub(crate) receives: usize,
    pub(crate) reads: bool,
}

impl Attacker {
    pub(crate) fn new(domain: &Domain) -> Self {
        let queue = domain.completion_queue(1024).unwrap();
        let endpoint = domain.endpoint().build(&queue).unwrap();
        Attacker {
            identity: EndpointIdentity::random().unwrap(),
            listener: domain.listen(loopback()).unwrap(),
            queue,
            endpoint,
            slots: domain.alloc(64 * SLOT, Access::LOCAL_WRITE).unwrap(),
            frames: VecDeque::new(),
            numbers: Numbers { session: 1, ..Numbers::default() },
            windows: FAIR,
            receives: 64,
            reads: true,
            domain: domain.clone(),
        }
    }

    pub(crate) fn address(&self) -> Address {
        let host = HostIdentity::from_bytes([0; 16]);
        Address::new(self.identity, host, &[self.listener.local_addr()]).unwrap()
    }

    /// A new endpoint for the next connection.
    fn renew(&mut self) {
        self.frames.clear();
        let inject = self.domain.info().limits.inject.min(256);
        let until = Instant::now() + LONG;
        // The last one keeps its room in the queue until its completions were taken.
        self.endpoint.disconnect();
        self.endpoint = loop {
            let builder = self.domain.endpoint().send_depth(64).recv_depth(64).inject(inject);
            match builder.connect_timeout(LONG).build(&self.queue) {
                Ok(endpoint) => break endpoint,
                Err(error) => assert!(Instant::now() < until, "{error}"),
            }
            self.poll();
        };
        self.frames.clear();
        for slot in 0..self.receives {
            self.repost(slot);
        }
    }

    pub(crate) fn repost(&self, slot: usize) {
        // Where it fails, the connection is over.
        let _ = self.endpoint.recv(self.slots.slice(slot * SLOT..(slot + 1) * SLOT), slot as u64);
    }

    /// Connects with this request.
    pub(crate) fn dial_with(&mut self, to: &Address, request: &[u8]) -> Result<Box<[u8]>, Error> {
        self.renew();
        self.endpoint.connect(to.rails().next().unwrap(), request)?;
        self.endpoint.wait_connected(Some(LONG))
    }

    /// Connects, without a confirmation.
    pub(crate) fn dial(&mut self, to: &Address) -> Result<(), Error> {
        let request = hello(self.identity, to.identity(), self.numbers);
        let data = self.dial_with(to, &request)?;
        self.numbers.session = session_of(&data);
        Ok(())
    }

    /// Connects, and confirms.
    pub(crate) fn connect(&mut self, to: &Address) {
        self.dial(to).unwrap();
        let frame = self.confirmation();
        assert!(self.send(&frame));
    }

    pub(crate) fn confirmation(&self) -> Vec<u8> {
        let address = self.address().to_bytes();
        [&word(CONFIRM, 0)[..], &windows(self.windows), &address].concat()
    }

    /// Refuses the next request, with this data.
    pub(crate) fn refuse(&self, data: &[u8], timeout: Duration) -> bool {
        self.listener.accept(Some(timeout)).is_ok_and(|mut request| request.reject(data).is_ok())
    }

    /// Accepts the next request.
    pub(crate) fn accept(&mut self, from: &Address) {
        self.renew();
        let mut request = self.listener.accept(Some(LONG)).unwrap();
        self.numbers.session = session_of(request.private_data());
        let hello = hello(self.identity, from.identity(), self.numbers);
        let data = [&hello[..], &windows(self.windows)].concat();
        request.accept(&self.endpoint, &data).unwrap();
        self.endpoint.wait_connected(Some(LONG)).unwrap();
    }

    /// Accepts the next request and waits for its confirmation: what an acceptor says before may come before the other side knows
    /// of the acceptance, and is dropped.
    pub(crate) fn accept_confirmed(&mut self, from: &Address) {
        self.accept(from);
        self.next(CONFIRM);
    }

    /// Sends a frame. False: the connection is over.
    pub(crate) fn send(&mut self, frame: &[u8]) -> bool {
        let until = Instant::now() + LONG;
        while Instant::now() < until {
            let sent = if frame.len() <= self.endpoint.attr().inject {
                self.endpoint.post(&Op::inject(frame))
            } else {
                let region = self.domain.alloc(frame.len(), Access::empty()).unwrap();
                region.write_at(0, frame).unwrap();
                self.endpoint.post(&Op::send(&region))
            };
            match sent {
                Ok(()) => return true,
                Err(Error::Again) => self.poll(),
                Err(_) => return false,
            }
        }
        panic!("the connection takes nothing");
    }

    /// Writes these bytes, with immediate data.
    pub(crate) fn write(&mut self, bytes: &[u8], to: RemoteSlice, immediate: u32) {
        let op = Op::inject_write(bytes, to).immediate(immediate);
        while let Err(Error::Again) = self.endpoint.post(&op) {
            self.poll();
        }
    }

    pub(crate) fn poll(&mut self) {
        let mut out = [Completion::default(); 64];
        let taken = self.queue.poll(&mut out).unwrap();
        for done in &out[..taken] {
            if done.kind == OpKind::Recv && done.is_ok() && done.endpoint == self.endpoint.id() {
                let slot = done.context as usize;
                self.frames
                    .push_back(self.slots.to_vec(slot * SLOT..slot * SLOT + done.len).unwrap());
                if self.reads {
                    self.repost(slot);
                }
            }
        }
    }

    /// The next frame of this kind; those before it are dropped.
    pub(crate) fn next(&mut self, kind: u8) -> Vec<u8> {
        self.next_of(&[kind])
    }

    pub(crate) fn next_of(&mut self, kinds: &[u8]) -> Vec<u8> {
        let until = Instant::now() + LONG;
        while Instant::now() < until {
            while let Some(frame) = self.frames.pop_front() {
                if kinds.contains(&frame[0]) {
                    return frame;
                }
            }
            self.poll();
            std::thread::sleep(Duration::from_micros(100));
        }
        panic!("no frame of the kinds {kinds:?} came");
    }

    /// Waits until the connection has ended.
    pub(crate) fn ended(&mut self) {
        self.endpoint.wait_disconnected(Some(LONG)).unwrap();
        self.poll();
    }
}
