//! The handshake of a client and the server, and the frames that follow it, each with the proof that its sender has the
//! secret and that it comes in this order in this connection.
//!
//! | from | bytes |
//! |---|---|
//! | client | `FBRX`, version, 1 if it has a secret else 0, a random number |
//! | server | the same |
//! | client | its proof, of both; only if they have a secret |
//! | server | its proof, of all that, or zeros if the client's is none; only if they have a secret |
//! | either | frames: a length (32 bits, little-endian), a message, and with a secret a code over the transcript so far, the frame's number, the length and the message |
//!
//! A code is made with the key of the end that sends, and covers both random numbers: a frame fits no other connection, no other
//! place in this one, and not the other direction.

use fabric_core::Secret;
use fabric_util::proof::{HandshakeKeys, Prover, SEAL, Transcript};

use crate::error::{ExchangeError, Result};
use crate::random::random;

const MAGIC: [u8; 4] = *b"FBRX";
const VERSION: u8 = 3;

/// The bytes that each end says first.
pub(crate) const HELLO: usize = 6 + SEAL;
/// The bytes of a proof.
pub(crate) const PROOF: usize = SEAL;
/// What a server answers to a proof by another secret: it proves nothing.
pub(crate) const NO_PROOF: [u8; PROOF] = [0; PROOF];
/// The bytes of a frame's length.
pub(crate) const LENGTH: usize = 4;

/// What an end says first.
pub(crate) type HelloBytes = [u8; HELLO];

/// The first words of this end.
///
/// # Errors
/// `Storage`: the system gives no random numbers.
pub(crate) fn hello(has_secret: bool) -> Result<HelloBytes> {
    let number = random()?;
    let mut hello = [0; HELLO];
    hello[..4].copy_from_slice(&MAGIC);
    hello[4] = VERSION;
    hello[5] = has_secret.into();
    hello[6..].copy_from_slice(&number);
    Ok(hello)
}

/// Whether the other end speaks this protocol, and has a secret if and only if this one has.
///
/// # Errors
/// `Malformed`, `Unauthenticated`: `other` is what the other end is called.
pub(crate) fn check_hello(theirs: &HelloBytes, has_secret: bool, other: &str) -> Result<()> {
    if theirs[..4] != MAGIC {
        return Err(ExchangeError::Malformed(format!("{other} is no rendezvous of fabric")));
    }
    if theirs[4] != VERSION {
        let version = theirs[4];
        return Err(ExchangeError::Malformed(format!(
            "{other} speaks version {version} of the protocol, and this process version {VERSION}"
        )));
    }
    let text = match (theirs[5], has_secret) {
        (0, false) | (1, true) => return Ok(()),
        (0, true) => format!("{other} has no secret, and this process joins none without"),
        (1, false) => {
            format!(
                "{other} wants the proof of its secret, and this process has none: name its file by FABRIC_SECRET_FILE"
            )
        }
        (level, _) => return Err(ExchangeError::Malformed(format!("{other} says level {level}"))),
    };
    Err(ExchangeError::Unauthenticated(text))
}

/// A handshake of ends with a secret, once both hellos are said.
pub(crate) struct Handshake {
    transcript: Transcript,
    own: Prover,
}

impl Handshake {
    pub(crate) fn new(
        keys: &HandshakeKeys,
        own: Prover,
        client: &HelloBytes,
        server: &HelloBytes,
    ) -> Self {
        let mut transcript = keys.transcript();
        transcript.add(client);
        transcript.add(server);
        Handshake { transcript, own }
    }

    /// This end's proof. The client's is first.
    pub(crate) fn prove(&mut self) -> [u8; PROOF] {
        let proof = self.transcript.seal(self.own, &[]);
        self.transcript.add(&proof);
        proof
    }

    /// Whether the other end has proved the secret.
    pub(crate) fn is_proven(&mut self, proof: &[u8; PROOF]) -> bool {
        let is_proven = self.transcript.is_sealed(other(self.own), &[], proof);
        self.transcript.add(proof);
        is_proven
    }

    /// The frames that follow.
    pub(crate) fn frames(self) -> Frames {
        let seals = |by| Some(Seals { transcript: self.transcript.clone(), by });
        Frames {
            outgoing: Outgoing { seals: seals(self.own), sent: 0 },
            incoming: Incoming { seals: seals(other(self.own)), received: 0 },
        }
    }
}

fn other(own: Prover) -> Prover {
    match own {
        Prover::Initiator => Prover::Acceptor,
        Prover::Acceptor => Prover::Initiator,
    }
}

/// The keys of a secret, if there is one.
pub(crate) fn keys(secret: Option<&Secret>) -> Option<HandshakeKeys> {
    secret.map(HandshakeKeys::new)
}

/// What proves the frames of one end.
struct Seals {
    transcript: Transcript,
    by: Prover,
}

/// The frames of one connection, by direction.
pub(crate) struct Frames {
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
}

impl Frames {
    /// Those of ends without a secret.
    pub(crate) fn open() -> Self {
        Frames {
            outgoing: Outgoing { seals: None, sent: 0 },
            incoming: Incoming { seals: None, received: 0 },
        }
    }
}

/// The frames of this end.
pub(crate) struct Outgoing {
    seals: Option<Seals>,
    sent: u64,
}

impl Outgoing {
    /// The next frame.
    pub(crate) fn wrap(&mut self, message: &[u8]) -> Vec<u8> {
        let code_len = if self.seals.is_some() { SEAL } else { 0 };
        let length = (message.len() + code_len) as u32; // a message is far shorter than that
        let mut frame = [&length.to_le_bytes(), message].concat();
        if let Some(Seals { transcript, by }) = &self.seals {
            let code = transcript.seal(*by, &numbered(self.sent, &frame));
            frame.extend_from_slice(&code);
        }
        self.sent += 1;
        frame
    }
}

/// The frames of the other end.
pub(crate) struct Incoming {
    seals: Option<Seals>,
    received: u64,
}

impl Incoming {
    /// How long the body is that follows a length.
    ///
    /// # Errors
    /// `Malformed`: it is longer than one with a message of `max` bytes, or too short for a code.
    pub(crate) fn body_len(&self, length: [u8; LENGTH], max: usize) -> Result<usize> {
        let length = u32::from_le_bytes(length) as usize;
        let code_len = if self.seals.is_some() { SEAL } else { 0 };
        if (code_len..=max + code_len).contains(&length) {
            return Ok(length);
        }
        Err(ExchangeError::Malformed(format!("a message of {length} bytes, and it may have {max}")))
    }

    /// The message in the next frame.
    ///
    /// # Errors
    /// `Unauthenticated`: it is not what the other end said next.
    pub(crate) fn unwrap<'a>(&mut self, length: [u8; LENGTH], body: &'a [u8]) -> Result<&'a [u8]> {
        let changed = || {
            let text = "a message was changed, left out or repeated on the way";
            ExchangeError::Unauthenticated(text.to_owned())
        };
        let number = self.received;
        self.received += 1;
        let Some(Seals { transcript, by }) = &self.seals else { return Ok(body) };
        let (message, code) = body.split_last_chunk::<SEAL>().ok_or_else(changed)?;
        let frame = [&length, message].concat();
        let is_sealed = transcript.is_sealed(*by, &numbered(number, &frame), code);
        if is_sealed { Ok(message) } else { Err(changed()) }
    }
}

/// What the code of a frame covers beside the transcript.
fn numbered(number: u64, frame: &[u8]) -> Vec<u8> {
    [&number.to_le_bytes(), frame].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(client: u8, server: u8) -> [Handshake; 2] {
        let hellos = [hello(true).unwrap(), hello(true).unwrap()];
        [(client, Prover::Initiator), (server, Prover::Acceptor)].map(|(secret, own)| {
            let keys = HandshakeKeys::new(&Secret::new(&[secret; 32]).unwrap());
            Handshake::new(&keys, own, &hellos[0], &hellos[1])
        })
    }

    /// The frames of both ends of a connection.
    fn connected() -> [Frames; 2] {
        let [mut client, mut server] = ends(1, 1);
        assert!(server.is_proven(&client.prove()) && client.is_proven(&server.prove()));
        [client.frames(), server.frames()]
    }

    fn receive(end: &mut Frames, frame: &[u8]) -> Result<Vec<u8>> {
        let (length, body) = frame.split_first_chunk().unwrap();
        assert_eq!(end.incoming.body_len(*length, 100), Ok(body.len()));
        end.incoming.unwrap(*length, body).map(<[u8]>::to_vec)
    }

    #[test]
    fn only_the_same_secret_is_proven() {
        let [mut client, mut server] = ends(1, 2);
        assert!(!server.is_proven(&client.prove()));
        assert!(!client.is_proven(&server.prove()));
        let [mut client, _] = ends(1, 1);
        let own = client.prove();
        assert!(!client.is_proven(&own), "a proof that is sent back is none");
    }

    #[test]
    fn frames_come_once_in_order_and_unchanged() {
        let [mut client, mut server] = connected();
        let frames = [client.outgoing.wrap(b"first"), client.outgoing.wrap(b"second")];
        assert_eq!(receive(&mut server, &frames[0]), Ok(b"first".to_vec()));
        assert!(receive(&mut server, &frames[0]).is_err(), "repeated");
        assert!(receive(&mut connected()[1], &frames[0]).is_err(), "of another connection");
        let [mut client, mut server] = connected();
        let (first, second) = (client.outgoing.wrap(b"first"), client.outgoing.wrap(b"second"));
        assert!(receive(&mut server, &second).is_err(), "left out");
        assert!(receive(&mut client, &first).is_err(), "sent back");
        for at in LENGTH..first.len() {
            let [mut client, mut server] = connected();
            let mut frame = client.outgoing.wrap(b"first");
            frame[at] ^= 1;
            assert!(receive(&mut server, &frame).is_err(), "byte {at}");
        }
    }

    #[test]
    fn lengths_are_bounded() {
        let (open, sealed) = (Frames::open(), connected());
        let is_good =
            |frames: &Frames, len: u32| frames.incoming.body_len(len.to_le_bytes(), 100).is_ok();
        assert!(is_good(&open, 0) && is_good(&open, 100) && !is_good(&open, 101));
        assert!(is_good(&sealed[0], 132) && !is_good(&sealed[0], 133) && !is_good(&sealed[0], 31));
        assert!(!is_good(&open, u32::MAX));
    }

    #[test]
    fn what_the_other_end_lacks_is_named() {
        let text =
            |theirs: HelloBytes, own| check_hello(&theirs, own, "x").unwrap_err().to_string();
        assert!(text(hello(true).unwrap(), false).contains("FABRIC_SECRET_FILE"));
        assert!(text(hello(false).unwrap(), true).contains("has no secret"));
        assert!(text([b'G'; HELLO], true).contains("no rendezvous"));
        let mut newer = hello(true).unwrap();
        newer[4] = 9;
        assert!(text(newer, true).contains("version 9"));
        let mut odd = hello(true).unwrap();
        odd[5] = 7;
        assert!(text(odd, true).contains("level 7"));
        assert_eq!(check_hello(&hello(true).unwrap(), true, "x"), Ok(()));
    }
}
