//! By what both ends of a handshake prove that they have the same secret.
//!
//! Each end chooses a random number. What an end proves with is a code (HMAC-SHA-256, RFC 2104) over every byte that either has
//! said so far, both random numbers among them, and the frame that it is in. Only an end with the secret can make one; one of
//! an earlier connection fits no other; and each end has a key of its own (HKDF, RFC 5869), so that none can be sent back.

use fabric_core::{Error, Failure, Result, Secret};
use hkdf::Hkdf;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Bytes of a random number or of a proof.
pub const SEAL: usize = 32;

/// What a frame ends with: a random number, or a proof. Where there is little room, its first bytes are one, too.
pub type Seal = [u8; SEAL];

/// The end that proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prover {
    /// The one that connects.
    Initiator,
    /// The one that listens.
    Acceptor,
}

/// What was said so far, and the keys to prove it.
#[derive(Clone)]
pub struct Transcript {
    initiator: Hmac<Sha256>,
    acceptor: Hmac<Sha256>,
}

/// The keys of a secret: made once, for all connections of a domain.
#[derive(Clone)]
pub struct HandshakeKeys(Transcript);

impl HandshakeKeys {
    /// Those of this secret.
    pub fn new(secret: &Secret) -> Self {
        let keys = Hkdf::<Sha256>::new(Some(b"anyfabric"), secret.bytes());
        HandshakeKeys(Transcript {
            initiator: keyed(&keys, b"handshake 1, initiator"),
            acceptor: keyed(&keys, b"handshake 1, acceptor"),
        })
    }

    /// That nothing was said yet.
    pub fn transcript(&self) -> Transcript {
        self.0.clone()
    }
}

impl Transcript {
    /// Either end said this.
    pub fn add(&mut self, said: &[u8]) {
        self.initiator.update(said);
        self.acceptor.update(said);
    }

    /// The proof at the end of a frame. Frames say how long they are, so no other ones have the same bytes in a row.
    pub fn seal(&self, by: Prover, frame: &[u8]) -> Seal {
        self.code(by, frame).finalize().into_bytes().into()
    }

    /// Whether that is the proof, in a time that does not depend on where it is wrong.
    pub fn is_sealed<const N: usize>(&self, by: Prover, frame: &[u8], seal: &[u8; N]) -> bool {
        // RFC 2104, 5: no fewer than half of the hash.
        const { assert!(N >= SEAL / 2) }
        self.code(by, frame).verify_truncated_left(seal).is_ok()
    }

    fn code(&self, by: Prover, frame: &[u8]) -> Hmac<Sha256> {
        let code = match by {
            Prover::Initiator => &self.initiator,
            Prover::Acceptor => &self.acceptor,
        };
        code.clone().chain_update(frame)
    }
}

fn keyed(keys: &Hkdf<Sha256>, of: &[u8]) -> Hmac<Sha256> {
    // A block of the hash, which is the longest key that is used as it is.
    let mut key = zeroize::Zeroizing::new([0; 64]);
    // It fails for keys of more than 255 hashes only.
    let _ = keys.expand(of, &mut *key);
    Hmac::new((&*key).into())
}

/// A random number that was never seen.
///
/// # Errors
/// `Internal`: the system gives none.
pub fn random() -> Result<Seal> {
    let mut bytes = [0; SEAL];
    getrandom::fill(&mut bytes).map_err(|error| {
        let failure = Failure::new("connect", "the system gives no random numbers");
        Error::Internal(failure.because(std::io::Error::other(error.to_string())))
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transcript(secret: u8, said: &[u8]) -> Transcript {
        let keys = HandshakeKeys::new(&Secret::new(&[secret; 32]).unwrap());
        let mut transcript = keys.transcript();
        transcript.add(said);
        transcript
    }

    #[test]
    #[cfg_attr(miri, ignore = "no memory is touched")]
    fn a_proof_is_of_one_end_one_secret_and_all_that_was_said() {
        let ours = transcript(1, b"hello");
        let seal = ours.seal(Prover::Initiator, b"frame");
        assert!(transcript(1, b"hello").is_sealed(Prover::Initiator, b"frame", &seal));
        for (transcript, by, frame) in [
            (transcript(1, b"hello"), Prover::Acceptor, &b"frame"[..]),
            (transcript(2, b"hello"), Prover::Initiator, b"frame"),
            (transcript(1, b"hullo"), Prover::Initiator, b"frame"),
            (transcript(1, b"hello"), Prover::Initiator, b"frams"),
        ] {
            assert!(!transcript.is_sealed(by, frame, &seal));
        }
        for bit in 0..8 * SEAL {
            let mut other = seal;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!ours.is_sealed(Prover::Initiator, b"frame", &other));
        }
    }

    /// Another program that speaks this protocol needs the very bytes.
    #[test]
    #[cfg_attr(miri, ignore = "no memory is touched")]
    fn the_codes_are_those_of_the_standards() {
        // Python: hmac.digest(hkdf_expand(hmac.digest(b"anyfabric", bytes(32), "sha256"), label, 64), b"helloframe", "sha256").
        let ours = transcript(0, b"hello");
        let hex = |seal: Seal| seal.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(ours.seal(Prover::Initiator, b"frame")), INITIATOR);
        assert_eq!(hex(ours.seal(Prover::Acceptor, b"frame")), ACCEPTOR);
    }

    const INITIATOR: &str = "ea743942dc82129b09f35fcfd408e3963f3746d421b855c60627211154a6a1f0";
    const ACCEPTOR: &str = "c3ff26363caadb828a4467bf4abc21897e2043b5f0612877ce2ac0410e67b7b3";
}
