//! What an initiator that encrypts says first: by what it proves itself within TLS, and that it has the secret, where there is
//! one. With a secret that keeps those without from making an acceptor compute with curves; TLS behind it proves that it is no
//! copy.

use std::sync::Arc;

use fabric_core::{Result, Secret};

use crate::proof::{self, HandshakeKeys, Prover};
use crate::refusal::{CHANGED, RefuseReason, Unwelcome, check_secrets};
use crate::stream::wire::handshake::{Decoded, Handshake, HandshakeKind};

/// What the ends of a domain's connections say first.
#[derive(Clone)]
pub(super) struct First {
    secret: Option<Arc<HandshakeKeys>>,
    /// Within TLS they prove themselves by certificates.
    pub(super) has_identity: bool,
}

impl First {
    pub(super) fn new(secret: Option<&Secret>, has_identity: bool) -> Self {
        First { secret: secret.map(|secret| Arc::new(HandshakeKeys::new(secret))), has_identity }
    }

    /// The frame.
    ///
    /// # Errors
    /// `Internal`: there are no random numbers.
    pub(super) fn frame(&self) -> Result<Vec<u8>> {
        let kind = if self.has_identity { HandshakeKind::Identify } else { HandshakeKind::Encrypt };
        let frame = Handshake { is_sealed: self.secret.is_some(), ..Handshake::new(kind, 0, 0) };
        let Some(secret) = &self.secret else { return Ok(frame.encode(&[])) };
        let mut bytes = frame.encode(&proof::random()?);
        let seal = secret.transcript().seal(Prover::Initiator, &bytes);
        bytes.extend(seal);
        Ok(bytes)
    }

    /// Checks that this is the frame of an initiator that proves itself as this end does, and has the secret if this end has
    /// one; `bytes` begin with it.
    ///
    /// # Errors
    /// What to say to it, and what to say of it.
    pub(super) fn check(
        &self,
        bytes: &[u8],
        frame: &Decoded<'_>,
    ) -> std::result::Result<(), (RefuseReason, Unwelcome)> {
        let no = |reason, why: &str| Err((reason, Unwelcome::unauthenticated(why)));
        match (frame.frame.kind, self.has_identity) {
            (HandshakeKind::Encrypt, false) | (HandshakeKind::Identify, true) => {}
            (HandshakeKind::Encrypt, true) => {
                return no(RefuseReason::IdentityWanted, "has no certificate");
            }
            (HandshakeKind::Identify, false) => {
                let why = "proves itself by a certificate, and this side has none";
                return no(RefuseReason::NoIdentity, why);
            }
            (_, true) => return no(RefuseReason::IdentityWanted, "does not encrypt"),
            (_, false) => return no(RefuseReason::EncryptionWanted, "does not encrypt"),
        }
        check_secrets(self.secret.is_some(), frame.seal.is_some())?;
        let (Some(secret), Some(seal)) = (&self.secret, frame.seal) else { return Ok(()) };
        let said = secret.transcript();
        if said.is_sealed(Prover::Initiator, &bytes[..frame.unsealed()], seal) {
            Ok(())
        } else {
            no(RefuseReason::OtherSecret, CHANGED)
        }
    }
}
