//! How a connection is made over a stream: the initiator's hello, and the acceptor's answer; between them, where both have a
//! secret, challenge and proof. The rest of the handshake is frames: with the first of the initiator's the acceptor knows that
//! its answer got there.

use std::io::ErrorKind;
use std::sync::Arc;

use fabric_core::Result;

use super::link::Link;
use super::requests::READS;
use super::transport::Transport;
use super::wire::handshake::{self, Decoded, Handshake, HandshakeKind};
use crate::proof::{self, HandshakeKeys, Prover, SEAL, Transcript};
use crate::refusal::{CHANGED, Declined, NOT_PROVEN, RefuseReason, Unwelcome, check_secrets};

/// The initiator's part: what came of the answer so far.
#[derive(Default)]
pub struct Initiator {
    bytes: Vec<u8>,
    /// What was said, where there is a secret.
    transcript: Option<Transcript>,
    /// The acceptor's challenge was answered.
    proved: bool,
}

impl Initiator {
    /// Puts the hello in front of everything that the link transmits.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub fn begin(link: &mut Link, data: &[u8], keys: Option<&HandshakeKeys>) -> Result<Self> {
        let mut transcript = keys.map(HandshakeKeys::transcript);
        let mut hello = opening(link, HandshakeKind::Hello, data, transcript.is_some());
        if let Some(transcript) = &mut transcript {
            hello.extend(proof::random()?);
            transcript.add(&hello);
        }
        link.say(&hello);
        Ok(Initiator { bytes: Vec::new(), transcript, proved: false })
    }

    /// Takes bytes that came, and says what is to be said to them. With the last of a good answer the link opens, and true is
    /// returned.
    ///
    /// # Errors
    /// The answer is whole, and not a good one.
    pub fn receive(
        &mut self,
        link: &mut Link,
        bytes: &[u8],
    ) -> std::result::Result<bool, Declined> {
        self.bytes.extend_from_slice(bytes);
        loop {
            let decoded = Handshake::decode(&self.bytes).map_err(|malformed| {
                Declined::Malformed(format!("the peer is no fabric listener: {malformed}"))
            })?;
            let Some(answer) = decoded else { return Ok(false) };
            if answer.frame.kind != HandshakeKind::Challenge {
                self.check(&answer)?;
                link.open(answer.frame.reads, answer.frame.credit);
                // By this the acceptor knows that its answer got here.
                link.push_ack();
                link.announce(answer.data);
                link.consume(0, &self.bytes[answer.len..]);
                return Ok(true);
            }
            let len = answer.len;
            let Some(transcript) = self.transcript.as_mut().filter(|_| !self.proved) else {
                return Err(Declined::Malformed(
                    "the peer challenges who has no secret, or has proved it".to_owned(),
                ));
            };
            transcript.add(&self.bytes[..len]);
            link.say(&prove(transcript));
            self.bytes.drain(..len);
            self.proved = true;
        }
    }

    /// Whether the answer is an accept of who has the secret, if this side has one.
    fn check(&self, answer: &Decoded<'_>) -> std::result::Result<(), Declined> {
        let malformed = |text: &str| Err(Declined::Malformed(text.to_owned()));
        let is_proven = match (&self.transcript, answer.seal) {
            (None, None) => true,
            (None, Some(_)) => {
                return malformed("the peer proves a secret that it was not asked for");
            }
            (Some(_), None) => false,
            (Some(transcript), Some(seal)) => {
                let frame = &self.bytes[..answer.unsealed()];
                self.proved && transcript.is_sealed(Prover::Acceptor, frame, seal)
            }
        };
        match answer.frame.kind {
            HandshakeKind::Refuse => Err(Declined::because(answer.frame.reason)),
            HandshakeKind::Accept | HandshakeKind::Reject if !is_proven => {
                Err(Declined::unauthenticated(NOT_PROVEN))
            }
            HandshakeKind::Accept => Ok(()),
            HandshakeKind::Reject => Err(Declined::Rejected(answer.data.into())),
            HandshakeKind::Hello
            | HandshakeKind::Challenge
            | HandshakeKind::Proof
            | HandshakeKind::Encrypt
            | HandshakeKind::Identify => malformed("the peer answered a hello with a hello"),
        }
    }
}

/// The acceptor's part: what came of a hello so far. Connections from strangers are to be bounded in number, and in time
/// until the hello is whole.
#[derive(Default)]
pub struct Greeting {
    /// The hello.
    bytes: Vec<u8>,
    hello: Option<Handshake>,
    /// What was said, where there is a secret.
    transcript: Option<Transcript>,
    /// What came of the proof.
    proof: Vec<u8>,
    is_proven: bool,
    /// The name that the peer has proved.
    identity: Option<Arc<str>>,
}

impl Greeting {
    /// Of a hello to an end with the secret of these keys, or with none.
    pub fn new(keys: Option<&HandshakeKeys>) -> Self {
        Greeting { transcript: keys.map(HandshakeKeys::transcript), ..Greeting::default() }
    }

    /// Reads what there is of the hello, and has the peer prove the secret; true: it is whole.
    ///
    /// # Errors
    /// Why there will be none.
    pub fn read(&mut self, transport: &mut impl Transport) -> std::result::Result<bool, Unwelcome> {
        let mut buffer = [0; handshake::MAX];
        while !self.is_whole() {
            // SAFETY: the buffer is ours.
            match unsafe { transport.recv(&[(buffer.as_mut_ptr(), buffer.len())]) } {
                Ok(0) => return Err(Unwelcome::because("closed before its hello was whole")),
                Ok(got) => self.receive(&buffer[..got], transport)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !transport.arm() {
                        return Ok(false);
                    }
                }
                Err(error) => {
                    let why = error.downcast::<Unwelcome>();
                    return Err(why.unwrap_or_else(|e| Unwelcome::because(format!("is lost: {e}"))));
                }
            }
        }
        self.identity = transport.peer_identity();
        Ok(true)
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        transport: &mut impl Transport,
    ) -> std::result::Result<(), Unwelcome> {
        if self.hello.is_some() {
            self.proof.extend_from_slice(bytes);
            return self.check_proof(transport);
        }
        self.bytes.extend_from_slice(bytes);
        self.check_level(transport)?;
        let Some(hello) = alone(&self.bytes, HandshakeKind::Hello, "first")? else { return Ok(()) };
        self.hello = Some(hello.frame);
        check_secrets(self.transcript.is_some(), hello.seal.is_some()).map_err(
            |(reason, unwelcome)| {
                refuse(transport, reason);
                unwelcome
            },
        )?;
        match &mut self.transcript {
            Some(transcript) => {
                transcript.add(&self.bytes);
                let mut challenge = frame(HandshakeKind::Challenge, true).encode(&[]);
                challenge.extend(proof::random().map_err(|e| Unwelcome::because(e.to_string()))?);
                transcript.add(&challenge);
                say(transport, &challenge);
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Refuses one that encrypts, which this side does not.
    fn check_level(&self, transport: &mut impl Transport) -> std::result::Result<(), Unwelcome> {
        let Ok(Some(first)) = Handshake::decode(&self.bytes) else { return Ok(()) };
        let reason = match first.frame.kind {
            HandshakeKind::Identify => RefuseReason::NoIdentity,
            HandshakeKind::Encrypt if self.transcript.is_some() => RefuseReason::NoEncryption,
            HandshakeKind::Encrypt => RefuseReason::NoSecret,
            _ => return Ok(()),
        };
        refuse(transport, reason);
        Err(Unwelcome::unauthenticated("encrypts, and this side does not"))
    }

    fn check_proof(
        &mut self,
        transport: &mut impl Transport,
    ) -> std::result::Result<(), Unwelcome> {
        let Some(proof) = alone(&self.proof, HandshakeKind::Proof, "second")? else {
            return Ok(());
        };
        let (Some(transcript), Some(seal)) = (&mut self.transcript, proof.seal) else {
            return Err(Unwelcome::because("proves what it was not asked for"));
        };
        if !transcript.is_sealed(Prover::Initiator, &self.proof[..proof.unsealed()], seal) {
            refuse(transport, RefuseReason::OtherSecret);
            return Err(Unwelcome::unauthenticated(CHANGED));
        }
        transcript.add(&self.proof);
        self.is_proven = true;
        Ok(())
    }

    /// Whether the hello is whole, and the secret is proven where there is one.
    pub fn is_whole(&self) -> bool {
        self.hello.is_some() && (self.transcript.is_none() || self.is_proven)
    }

    /// The initiator's private data.
    pub fn data(&self) -> &[u8] {
        let sealed = self.hello.is_some_and(|hello| hello.is_sealed);
        let end = self.bytes.len().saturating_sub(if sealed { SEAL } else { 0 });
        self.bytes.get(handshake::LEN..end).unwrap_or_default()
    }

    /// The name that the peer has proved, where the transport finds that out.
    pub fn identity(&self) -> Option<Arc<str>> {
        self.identity.clone()
    }

    /// Opens a link for it, whose transmissions begin with the answer. False: the hello is not whole.
    pub fn accept(&self, link: &mut Link, data: &[u8]) -> bool {
        let Some(hello) = self.hello.filter(|_| self.is_whole()) else { return false };
        let answer = opening(link, HandshakeKind::Accept, data, self.transcript.is_some());
        link.say(&self.seal(answer));
        link.open(hello.reads, hello.credit);
        true
    }

    /// Answers a hello that is whole with the application's no. The transport is to be closed then.
    pub fn reject(&self, transport: &mut impl Transport, data: &[u8]) {
        let frame = frame(HandshakeKind::Reject, self.transcript.is_some());
        say(transport, &self.seal(frame.encode(data)));
    }

    /// A frame with the proof that it takes.
    fn seal(&self, mut frame: Vec<u8>) -> Vec<u8> {
        if let Some(transcript) = &self.transcript {
            let seal = transcript.seal(Prover::Acceptor, &frame);
            frame.extend(seal);
        }
        frame
    }
}

/// The one frame that came, once it is whole.
fn alone<'a>(
    bytes: &'a [u8],
    kind: HandshakeKind,
    which: &str,
) -> std::result::Result<Option<Decoded<'a>>, Unwelcome> {
    match Handshake::decode(bytes) {
        Ok(None) => Ok(None),
        Ok(Some(decoded)) if decoded.frame.kind == kind && decoded.len == bytes.len() => {
            Ok(Some(decoded))
        }
        Ok(Some(_)) => {
            let kind = format!("{kind:?}").to_lowercase();
            Err(Unwelcome::because(format!("sent a {which} frame that is no {kind}, or not alone")))
        }
        Err(malformed) => Err(Unwelcome::because(format!("sent no valid handshake: {malformed}"))),
    }
}

fn frame(kind: HandshakeKind, is_sealed: bool) -> Handshake {
    Handshake { is_sealed, ..Handshake::new(kind, 0, 0) }
}

/// A frame that opens a link; its seal is to follow.
fn opening(link: &mut Link, kind: HandshakeKind, data: &[u8], is_sealed: bool) -> Vec<u8> {
    Handshake { is_sealed, ..Handshake::new(kind, READS, link.credit()) }.encode(data)
}

/// The initiator's proof, which becomes part of what was said.
fn prove(transcript: &mut Transcript) -> Vec<u8> {
    let mut bytes = frame(HandshakeKind::Proof, true).encode(&[]);
    let seal = transcript.seal(Prover::Initiator, &bytes);
    bytes.extend(seal);
    transcript.add(&bytes);
    bytes
}

/// Answers a hello with [`HandshakeKind::Refuse`]. The transport is to be closed then.
pub fn refuse(transport: &mut impl Transport, reason: RefuseReason) {
    let refusal = Handshake { reason, ..Handshake::new(HandshakeKind::Refuse, 0, 0) };
    say(transport, &refusal.encode(&[]));
    read_rest(transport);
}

/// Reads what a peer that is sent away has said: a kernel forgets what it has sent when a socket is closed before all that came
/// was read.
pub(super) fn read_rest(transport: &mut impl Transport) {
    let mut rest = [0; 1024];
    for _ in 0..MAX_UNREAD / rest.len() {
        // SAFETY: the buffer is ours.
        if !matches!(unsafe { transport.recv(&[(rest.as_mut_ptr(), rest.len())]) }, Ok(1..)) {
            break;
        }
    }
}

/// What a peer that is refused may have said by then: a hello, or the beginning of TLS.
const MAX_UNREAD: usize = 4096;

fn say(transport: &mut impl Transport, frame: &[u8]) {
    // An empty stream takes so few bytes at once; and if the peer is gone there is none to read them.
    // SAFETY: the frame is ours.
    let _ = unsafe { transport.send(&[(frame.as_ptr().cast_mut(), frame.len())]) };
}

// Links have registrations, which probe by madvise(2).
#[cfg(not(miri))]
#[cfg(test)]
mod tests;
