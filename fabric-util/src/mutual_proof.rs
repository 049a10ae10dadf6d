//! By what both ends of a tool's TCP connection prove that they have the same secret, before either says anything else. What
//! follows is neither encrypted nor authenticated.
//!
//! | from | bytes |
//! |---|---|
//! | initiator | `FBRT`, a random number, a line end |
//! | acceptor | the same |
//! | initiator | its proof, of both |
//! | acceptor | its proof, of all that |

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use fabric_core::{Error, Result, SECRET_FILE, Secret};

use crate::introductions::ReadUntil;
use crate::proof::{self, HandshakeKeys, Prover, SEAL, Transcript};
use crate::refusal::{CHANGED, Declined, RefuseReason};

/// What an end with a secret says first begins with this.
pub const MAGIC: &str = "FBRT";

/// The keys of the secret that this process's environment names; `None` if it names none.
///
/// # Errors
/// As [`Secret::from_file`], with the variable's name.
pub fn keys_from_env() -> Result<Option<HandshakeKeys>> {
    let Some(path) = std::env::var_os(SECRET_FILE) else { return Ok(None) };
    let secret = Secret::from_file(path).map_err(|error| match error {
        Error::NoMemory(_) => error,
        error => Error::invalid("read secret", format!("{SECRET_FILE}: {error}")),
    })?;
    Ok(Some(HandshakeKeys::new(&secret)))
}

/// Proves the secret to the other end, and has it prove it; within this time. The stream's time-outs are others afterwards.
///
/// # Errors
/// Why there is no proof, in words: of the listener if this end is the initiator, else to be said of the peer.
pub fn prove(
    stream: &TcpStream,
    keys: &HandshakeKeys,
    end: Prover,
    time: Duration,
) -> std::result::Result<(), String> {
    let lost = |error: io::Error| match error.kind() {
        ErrorKind::TimedOut => format!("it did not prove the secret within {time:?}"),
        _ => format!("it is gone, or has another secret: {error}"),
    };
    stream.set_write_timeout(Some(time)).map_err(lost)?;
    let reader = ReadUntil::new(stream, time);
    let mut exchange = Exchange { stream, reader, transcript: keys.transcript() };
    let is_first = end == Prover::Initiator;
    if is_first {
        exchange.say_number().map_err(lost)?;
    }
    if !exchange.hear_number().map_err(lost)? {
        return Err(no_secret(end));
    }
    if !is_first {
        exchange.say_number().map_err(lost)?;
    }
    for by in [Prover::Initiator, Prover::Acceptor] {
        if by == end {
            exchange.say_proof(by).map_err(lost)?;
        } else if !exchange.hear_proof(by).map_err(lost)? {
            return Err(no_proof(end));
        }
    }
    Ok(())
}

fn no_secret(of: Prover) -> String {
    match of {
        Prover::Initiator => Declined::because(RefuseReason::NoSecret).to_string(),
        Prover::Acceptor => Declined::because(RefuseReason::SecretWanted).to_string(),
    }
}

fn no_proof(of: Prover) -> String {
    match of {
        Prover::Initiator => Declined::because(RefuseReason::OtherSecret).to_string(),
        Prover::Acceptor => format!("the other end {CHANGED}"),
    }
}

/// One end, and what was said.
struct Exchange<'a> {
    stream: &'a TcpStream,
    reader: ReadUntil<'a>,
    transcript: Transcript,
}

impl Exchange<'_> {
    fn say_number(&mut self) -> io::Result<()> {
        let number = proof::random()?;
        let said = [MAGIC.as_bytes(), &number, b"\n"].concat();
        self.transcript.add(&said);
        self.stream.write_all(&said)
    }

    /// False: it says something else.
    fn hear_number(&mut self) -> io::Result<bool> {
        let mut said = [0; MAGIC.len() + SEAL + 1];
        let (magic, rest) = said.split_at_mut(MAGIC.len());
        self.reader.read_exact(magic)?;
        if magic != MAGIC.as_bytes() {
            return Ok(false);
        }
        self.reader.read_exact(rest)?;
        self.transcript.add(&said);
        Ok(true)
    }

    fn say_proof(&mut self, by: Prover) -> io::Result<()> {
        let seal = self.transcript.seal(by, &[]);
        self.transcript.add(&seal);
        self.stream.write_all(&seal)
    }

    fn hear_proof(&mut self, by: Prover) -> io::Result<bool> {
        let mut seal = [0; SEAL];
        self.reader.read_exact(&mut seal)?;
        let is_good = self.transcript.is_sealed(by, &[], &seal);
        self.transcript.add(&seal);
        Ok(is_good)
    }
}

#[cfg(all(test, not(loom), not(miri)))] // Miri has no sockets
#[allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    fn keys(of: u8) -> HandshakeKeys {
        HandshakeKeys::new(&Secret::new(&[of; 32]).unwrap())
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    /// What each end makes of the other.
    fn meet(initiator: u8, acceptor: u8) -> [std::result::Result<(), String>; 2] {
        let (near, far) = pair();
        let other = thread::spawn(move || prove(&far, &keys(acceptor), Prover::Acceptor, SOON));
        let first = prove(&near, &keys(initiator), Prover::Initiator, SOON);
        [first, other.join().unwrap()]
    }

    #[test]
    fn only_ends_with_the_same_secret_prove_it() {
        assert_eq!(meet(1, 1), [Ok(()), Ok(())]);
        let [first, second] = meet(1, 2).map(Result::unwrap_err);
        assert!(first.contains("another secret") && second.contains("another secret"), "{first}");
    }

    #[test]
    fn an_end_without_a_secret_is_named_and_one_that_says_nothing_is_not_waited_for() {
        for (by, text) in
            [(Prover::Initiator, "no secret"), (Prover::Acceptor, "FABRIC_SECRET_FILE")]
        {
            let (near, mut far) = pair();
            far.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            let error = prove(&near, &keys(1), by, SOON).unwrap_err();
            assert!(error.contains(text), "{error}");
            let (near, _far) = pair();
            let error = prove(&near, &keys(1), by, Duration::from_millis(20)).unwrap_err();
            assert!(error.contains("within 20ms"), "{error}");
            let (near, far) = pair();
            drop(far);
            assert!(prove(&near, &keys(1), by, SOON).unwrap_err().contains("another secret"));
        }
    }

    /// An acceptor without the secret cannot answer by what it heard.
    #[test]
    fn a_proof_that_is_sent_back_is_none() {
        let (near, mut far) = pair();
        let echo = thread::spawn(move || {
            let mut said = [0; MAGIC.len() + SEAL + 1];
            far.read_exact(&mut said).unwrap();
            far.write_all(&said).unwrap();
            let mut seal = [0; SEAL];
            far.read_exact(&mut seal).unwrap();
            far.write_all(&seal).unwrap();
        });
        let error = prove(&near, &keys(1), Prover::Initiator, SOON).unwrap_err();
        assert!(error.contains("another secret"), "{error}");
        echo.join().unwrap();
    }
}
