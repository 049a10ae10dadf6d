//! One client's connection to the server: its bytes in both directions, and the handshake.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};

use fabric_util::proof::{HandshakeKeys, Prover, SEAL};
use mio::net::TcpStream;

use crate::channel::{
    self, Frames, HELLO, Handshake, HelloBytes, Incoming, LENGTH, NO_PROOF, Outgoing, PROOF,
};
use crate::error::{ExchangeError, Result};
use crate::jobs::JobNumber;
use crate::wire::{self, Answer, Request, Say};

/// While a client has not read so much, no more requests of it are read.
const MAX_UNREAD: usize = 64 << 10;
/// An empty buffer keeps the memory of so many bytes.
const KEPT: usize = 4 << 10;
/// Bytes of one read.
const CHUNK: usize = 16 << 10;

/// A member: which job, and which rank in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) job: JobNumber,
    pub(super) rank: u32,
}

/// How far a client has come.
enum Phase {
    /// Its first words are awaited.
    Hello,
    /// Its proof is.
    Proof(Box<Handshake>),
    /// It is one of ours; before it has joined it has no place.
    Requests(Box<Incoming>, Box<Outgoing>),
}

/// A connection, without knowledge of jobs.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    /// Where it has joined.
    pub(super) place: Option<Place>,
    /// By which it has joined, until it was heard of again: it may not know so.
    pub(super) token: Option<[u8; SEAL]>,
    /// It ends once its output is written.
    pub(super) is_leaving: bool,
    phase: Phase,
    input: Vec<u8>,
    output: Vec<u8>,
    /// As many bytes as one request may have.
    max_request: usize,
    /// The socket may have more bytes than were read.
    has_more: bool,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, peer: SocketAddr, max_request: usize) -> Self {
        let (place, token, is_leaving, phase) = (None, None, false, Phase::Hello);
        let (input, output) = Default::default();
        Connection {
            stream,
            peer,
            place,
            token,
            is_leaving,
            phase,
            input,
            output,
            max_request,
            has_more: true,
        }
    }

    /// Where it comes from.
    pub(super) fn from(&self) -> IpAddr {
        self.peer.ip()
    }

    /// The socket said that it has bytes.
    pub(super) fn is_readable(&mut self) {
        self.has_more = true;
    }

    /// The client does not read: nothing is done for it until it does.
    pub(super) fn is_clogged(&self) -> bool {
        self.output.len() > MAX_UNREAD
    }

    /// The next request; `None` if there is none yet. Does what is needed of the handshake.
    ///
    /// # Errors
    /// Why the connection ends.
    pub(super) fn next_request(&mut self, keys: Option<&HandshakeKeys>) -> Result<Option<Request>> {
        loop {
            if self.is_clogged() || self.is_leaving {
                return Ok(None);
            }
            if let Some(request) = self.parse(keys)? {
                return Ok(Some(request));
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    /// Reads once; false if the socket has nothing.
    fn read(&mut self) -> Result<bool> {
        if !self.has_more {
            return Ok(false);
        }
        let ended = |why: &str| Err(ExchangeError::Disconnected(why.to_owned()));
        let mut chunk = [0; CHUNK];
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return ended("the client closed it"),
                Ok(len) => {
                    self.input.extend_from_slice(&chunk[..len]);
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.has_more = false;
                    return Ok(false);
                }
                Err(error) => return ended(&error.to_string()),
            }
        }
    }

    /// Takes what is complete of the input, up to a request.
    fn parse(&mut self, keys: Option<&HandshakeKeys>) -> Result<Option<Request>> {
        loop {
            match &mut self.phase {
                Phase::Hello => {
                    let Some(theirs) = take::<HELLO>(&mut self.input) else { return Ok(None) };
                    self.on_hello(&theirs, keys)?;
                }
                Phase::Proof(handshake) => {
                    let Some(proof) = take::<PROOF>(&mut self.input) else { return Ok(None) };
                    if !handshake.is_proven(&proof) {
                        // By that the client knows that it was not closed for want of room.
                        self.output.extend_from_slice(&NO_PROOF);
                        let _ = self.flush();
                        let text = "the client has another secret, or something between changed what was said";
                        return Err(ExchangeError::Unauthenticated(text.to_owned()));
                    }
                    let own = handshake.prove();
                    self.output.extend_from_slice(&own);
                    let Phase::Proof(handshake) = std::mem::replace(&mut self.phase, Phase::Hello)
                    else {
                        return Ok(None); // it is that phase
                    };
                    self.phase = requests(handshake.frames());
                }
                Phase::Requests(incoming, _) => {
                    return next_message(&mut self.input, incoming, self.max_request);
                }
            }
        }
    }

    fn on_hello(&mut self, theirs: &HelloBytes, keys: Option<&HandshakeKeys>) -> Result<()> {
        let own = channel::hello(keys.is_some())?;
        // Said first: by that the client finds what is wrong at its side.
        self.output.extend_from_slice(&own);
        if let Err(error) = channel::check_hello(theirs, keys.is_some(), "the client") {
            let _ = self.flush();
            return Err(error);
        }
        self.phase = match keys {
            None => requests(Frames::open()),
            Some(keys) => {
                Phase::Proof(Box::new(Handshake::new(keys, Prover::Acceptor, theirs, &own)))
            }
        };
        Ok(())
    }

    /// Answers a request; written by [`flush`](Connection::flush).
    pub(super) fn answer(&mut self, number: u32, say: Say) -> Result<()> {
        let message = wire::encode(&Answer { number, say })?;
        if let Phase::Requests(_, outgoing) = &mut self.phase {
            self.output.extend_from_slice(&outgoing.wrap(&message));
        }
        Ok(())
    }

    /// Writes what the socket takes; true if all is written.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn flush(&mut self) -> Result<bool> {
        let mut written = 0;
        let outcome = loop {
            if written == self.output.len() {
                break Ok(true);
            }
            match self.stream.write(&self.output[written..]) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(len) => written += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break Ok(false),
                Err(error) => break Err(error),
            }
        };
        consume(&mut self.output, written);
        outcome.map_err(|error: io::Error| ExchangeError::Disconnected(error.to_string()))
    }
}

fn requests(frames: Frames) -> Phase {
    Phase::Requests(Box::new(frames.incoming), Box::new(frames.outgoing))
}

/// Takes the first bytes. What had many has no memory once it is empty: there are many connections, and most are quiet.
fn consume(buffer: &mut Vec<u8>, len: usize) {
    buffer.drain(..len);
    if buffer.is_empty() && buffer.capacity() > KEPT {
        *buffer = Vec::new();
    }
}

/// The first bytes of the input, if there are so many.
fn take<const N: usize>(input: &mut Vec<u8>) -> Option<[u8; N]> {
    let bytes = *input.first_chunk()?;
    consume(input, N);
    Some(bytes)
}

fn next_message(
    input: &mut Vec<u8>,
    incoming: &mut Incoming,
    max: usize,
) -> Result<Option<Request>> {
    let Some((length, rest)) = input.split_first_chunk::<LENGTH>() else { return Ok(None) };
    let (length, body_len) = (*length, incoming.body_len(*length, max)?);
    let Some(body) = rest.get(..body_len) else { return Ok(None) };
    let request = wire::decode(incoming.unwrap(length, body)?)?;
    consume(input, LENGTH + body_len);
    Ok(Some(request))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_that_had_much_keeps_nothing() {
        let mut buffer = vec![1; 1 << 20];
        consume(&mut buffer, 1 << 19);
        assert_eq!(buffer.len(), 1 << 19);
        consume(&mut buffer, 1 << 19);
        assert_eq!(buffer.capacity(), 0);
    }
}
