//! What an initiator that encrypts says first: that it has the secret. It keeps those without from making an acceptor compute
//! with curves; TLS behind it proves that it is no copy.

use fabric_core::Result;

use crate::proof::{self, HandshakeKeys, Prover};
use crate::stream::wire::handshake::{Decoded, Handshake, HandshakeKind};

/// The frame.
///
/// # Errors
/// `Internal`: there are no random numbers.
pub(super) fn first(keys: &HandshakeKeys) -> Result<Vec<u8>> {
    let frame = Handshake { is_sealed: true, ..Handshake::new(HandshakeKind::Encrypt, 0, 0) };
    let mut bytes = frame.encode(&proof::random()?);
    let seal = keys.transcript().seal(Prover::Initiator, &bytes);
    bytes.extend(seal);
    Ok(bytes)
}

/// Whether that is the frame of an initiator with the secret.
pub(super) fn is_first(keys: &HandshakeKeys, bytes: &[u8], frame: &Decoded<'_>) -> bool {
    let (said, seal) = (keys.transcript(), frame.seal);
    let seal = seal.filter(|_| frame.frame.kind == HandshakeKind::Encrypt);
    seal.is_some_and(|seal| said.is_sealed(Prover::Initiator, &bytes[..frame.unsealed()], seal))
}
