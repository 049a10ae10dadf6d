//! How an initiator's connection is made: the kernel connects, the hello goes out, the listener answers.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;

use fabric_core::{Error, Failure};
use fabric_util::log_line;
use fabric_util::progress::Progress;
use socket2::SockRef;

use crate::conn::{Conn, ConnState, State};
use crate::engine::Engine;
use crate::name::NAME;
use crate::socket;
use fabric_util::stream::wire::handshake::{Handshake, HandshakeKind};
use fabric_util::stream::{AckPolicy, End, Transport};

impl Conn {
    /// The kernel has connected, or not.
    pub(crate) fn greet(&self, engine: &Engine, state: &mut State) -> Progress {
        let Some(fd) = state.stream.as_ref().map(AsFd::as_fd) else { return Progress::Closed };
        if let Err(cause) = socket::take_error(fd) {
            return self.fail_connect(engine, state, refusal(cause));
        }
        let socket = SockRef::from(&fd);
        let peer = match socket.peer_addr() {
            Ok(peer) => peer,
            Err(error) if error.kind() == ErrorKind::NotConnected => return Progress::Idle,
            Err(cause) => return self.fail_connect(engine, state, refusal(cause)),
        };
        let local = socket.local_addr().ok().and_then(|addr| addr.as_socket());
        if local == peer.as_socket() {
            // The kernel chose the very port as ours and connected us to ourselves: there is no listener.
            return self.fail_connect(engine, state, Error::Refused(None));
        }
        state.local = local;
        if let Some(interval) = self.attr.liveness {
            socket::ask_often(fd, interval);
        }
        if let ConnState::Connecting(hello) =
            std::mem::replace(&mut state.stage, ConnState::AwaitingReply(Vec::new()))
        {
            state.link.say(&hello);
        }
        state.flush(engine, AckPolicy::Piggyback);
        Progress::More
    }

    /// Reads the listener's answer.
    pub(crate) fn hear_answer(
        &self,
        engine: &Engine,
        state: &mut State,
        scratch: &mut [u8],
    ) -> Progress {
        state.flush(engine, AckPolicy::Piggyback);
        let Some(stream) = &mut state.stream else { return Progress::Closed };
        // SAFETY: the scratch buffer is ours.
        let got = match unsafe { stream.recv(&[(scratch.as_mut_ptr(), scratch.len())]) } {
            Ok(0) => return self.fail_connect(engine, state, Error::Refused(None)),
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // A hello that the transport did not take, though it is not full.
                return if state.wants_turn() { Progress::More } else { Progress::Idle };
            }
            Err(error) => return self.fail_connect(engine, state, refusal(error)),
        };
        let ConnState::AwaitingReply(bytes) = &mut state.stage else { return Progress::Idle };
        bytes.extend_from_slice(&scratch[..got]);
        let (answer, data, len) = match Handshake::decode(bytes) {
            Ok(Some((answer, data, len))) => (answer, data.to_vec(), len),
            Ok(None) => return Progress::More,
            Err(malformed) => {
                if let Some(suppressed) = engine.stats().peer_log.check() {
                    let (id, peer) = (state.link.id(), state.peer);
                    log_line!(
                        Warn,
                        "{id}: {peer:?} is no fabric listener: {malformed}{suppressed}"
                    );
                }
                let text = format!("the peer is no fabric listener: {malformed}");
                let error = Error::Unreachable(Failure::new("connect", text).of(NAME));
                return self.fail_connect(engine, state, error);
            }
        };
        let rest = bytes.split_off(len);
        match answer.kind {
            HandshakeKind::Accept => {}
            HandshakeKind::Reject => {
                return self.fail_connect(engine, state, Error::Rejected(Box::new(data.into())));
            }
            HandshakeKind::Refuse => return self.fail_connect(engine, state, Error::Refused(None)),
            HandshakeKind::Hello => {
                let text = "the peer answered a hello with a hello";
                let error = Error::Unreachable(Failure::new("connect", text).of(NAME));
                return self.fail_connect(engine, state, error);
            }
        }
        state.stage = ConnState::Established;
        state.link.open(answer.reads, answer.credit);
        // By this the acceptor knows that its answer got here.
        state.link.push_ack();
        state.flush(engine, AckPolicy::Piggyback);
        state.link.announce(&data);
        state.link.consume(&rest);
        self.settle(engine, state);
        Progress::More
    }

    pub(crate) fn fail_connect(
        &self,
        engine: &Engine,
        state: &mut State,
        error: Error,
    ) -> Progress {
        state.link.end(End::Failed(error));
        self.settle(engine, state);
        Progress::Closed
    }
}

/// Why the kernel did not connect.
fn refusal(cause: io::Error) -> Error {
    match cause.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            Error::Refused(None)
        }
        ErrorKind::TimedOut => Error::TimedOut(None),
        _ => Error::Unreachable(
            Failure::new("connect", "no way to the address").of(NAME).because(cause),
        ),
    }
}
