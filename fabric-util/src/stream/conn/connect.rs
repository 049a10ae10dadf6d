//! How a connection begins: the transport connects, the hello goes out, the acceptor answers.

use std::io::{self, ErrorKind};
use std::time::Duration;

use fabric_core::{Error, Failure};

use super::{Host, Locked, Stage, Timer};
use crate::log_limiter::PeerEvent;
use crate::log_line;
use crate::progress::Progress;
use crate::proof::HandshakeKeys;
use crate::refusal::Declined;
use crate::stream::greeting::{Greeting, Initiator};
use crate::stream::phase::{End, Phase};
use crate::stream::transmit::AckPolicy;
use crate::stream::transport::Transport;

/// Between looks whether a transport connects, where no event says so: others have the time, and the listener gets on.
const RETRY: Duration = Duration::from_millis(2);

impl<T: Transport, H: Host> Locked<'_, T, H> {
    /// Begins as the initiator, over a transport that is connected or becomes so. With keys the acceptor has to have their secret, too.
    pub fn connect(&mut self, transport: T, data: &[u8], keys: Option<&HandshakeKeys>) {
        if !self.may_begin() {
            return;
        }
        match Initiator::begin(&mut self.state.link, data, keys) {
            Ok(initiator) => {
                self.state.stage = Stage::Connecting(initiator);
                self.attach(transport);
            }
            Err(error) => {
                self.fail_connect(error);
            }
        }
    }

    /// Begins as the acceptor of a hello, over the transport that it came from. What came behind it is read by the next turn,
    /// for which no event follows.
    pub fn accept(&mut self, mut transport: T, greeting: &Greeting, data: &[u8]) {
        if self.may_begin() && greeting.accept(&mut self.state.link, data) {
            self.state.stage = Stage::Established;
            self.state.identity = greeting.identity();
            transport.open(self.state.link.id());
            self.attach(transport);
            self.flush(AckPolicy::Piggyback);
        }
    }

    /// Whether it has not ended while its transport was made: then there is nothing to begin, and the transport goes.
    fn may_begin(&mut self) -> bool {
        let may = self.state.link.phase() == Phase::Idle;
        if !may {
            self.host.closed();
        }
        may
    }

    fn attach(&mut self, transport: T) {
        self.state.transport = Some(transport);
        self.host.deadline(self.state.connect_timeout, Timer::Connect);
    }

    /// The transport has connected, or not.
    #[cold]
    pub(super) fn finish_connect(&mut self, scratch: &mut [u8]) -> Progress {
        let state = &mut *self.state;
        let Some(transport) = &mut state.transport else { return Progress::Closed };
        match transport.finish_connect() {
            Ok(true) => {}
            Ok(false) if transport.gave_up() => {
                if !std::mem::replace(&mut state.retries, true) {
                    self.host.deadline(RETRY, Timer::Retry);
                }
                return Progress::Idle;
            }
            Ok(false) => return Progress::Idle,
            Err(cause) => return self.unconnected(cause),
        }
        if let Stage::Connecting(initiator) = &mut state.stage {
            state.stage = Stage::AwaitingReply(std::mem::take(initiator));
        }
        self.receive_answer(scratch)
    }

    /// Writes what is left of the hello, and reads the acceptor's answer.
    #[cold]
    pub(super) fn receive_answer(&mut self, scratch: &mut [u8]) -> Progress {
        self.flush(AckPolicy::Piggyback);
        let state = &mut *self.state;
        let Some(transport) = &mut state.transport else { return Progress::Closed };
        // SAFETY: the scratch buffer is ours.
        let got = match unsafe { transport.recv(&[(scratch.as_mut_ptr(), scratch.len())]) } {
            Ok(0) => return self.fail_connect(Error::Refused(None)),
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // A hello that the transport did not take, though it is not full.
                return if state.wants_turn() { Progress::More } else { Progress::Idle };
            }
            Err(cause) => return self.unconnected(cause),
        };
        let Stage::AwaitingReply(initiator) = &mut state.stage else { return Progress::Idle };
        match initiator.receive(&mut state.link, &scratch[..got]) {
            Ok(false) => {}
            Ok(true) => {
                state.stage = Stage::Established;
                state.identity = transport.peer_identity();
                transport.open(state.link.id());
                self.flush(AckPolicy::Piggyback);
                self.settle();
            }
            Err(declined) => return self.declined(declined),
        }
        Progress::More
    }

    /// The transport did not connect, or is lost before there is an answer.
    fn unconnected(&mut self, cause: io::Error) -> Progress {
        match cause.downcast() {
            Ok(declined) => self.declined(declined),
            Err(cause) => {
                let error = self.refusal(cause);
                self.fail_connect(error)
            }
        }
    }

    fn declined(&mut self, declined: Declined) -> Progress {
        if let Declined::Malformed(text) = &declined {
            let (log, peer) = (&self.state.link.stats().peer_log, self.state.peer);
            if let Some(suppressed) = log.check(PeerEvent::Protocol, peer) {
                let id = self.state.link.id();
                log_line!(Warn, "{id}: {peer:?}: {text}{suppressed}");
            }
        }
        let error = declined.into_error(self.state.provider);
        self.fail_connect(error)
    }

    pub(super) fn fail_connect(&mut self, error: Error) -> Progress {
        self.state.link.end(End::Failed(error));
        self.settle();
        Progress::Closed
    }

    /// Why the transport did not connect.
    fn refusal(&self, cause: io::Error) -> Error {
        match cause.kind() {
            ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof => Error::Refused(None),
            ErrorKind::TimedOut => Error::TimedOut(None),
            _ => {
                let failure = Failure::new("connect", "no way to the address");
                Error::Unreachable(failure.of(self.state.provider).because(cause))
            }
        }
    }
}
