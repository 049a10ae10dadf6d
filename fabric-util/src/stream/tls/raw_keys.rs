//! Ends that have a secret and no certificates prove themselves by raw public keys (RFC 7250), which the secret determines.
//!
//! Each end has an Ed25519 key of its own, so that none can be sent back. An end with the secret knows the other's key, and
//! takes no other.

use std::sync::Arc;

use fabric_core::Secret;
use hkdf::Hkdf;
use rustls::client::AlwaysResolvesClientRawPublicKeys;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use sha2::Sha256;
use zeroize::Zeroizing;

use super::credentials::{Credentials, NO_TLS12};

/// Before the 32 bytes of an Ed25519 private key in PKCS #8 (RFC 8410).
const PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// What both ends with the secret prove themselves by, and take.
pub(super) fn credentials(
    secret: &Secret,
    provider: &CryptoProvider,
) -> Result<Credentials, Error> {
    let keys = Hkdf::<Sha256>::new(Some(b"anyfabric"), secret.bytes());
    let of_initiator = certified(&keys, b"encryption 1, initiator")?;
    let of_acceptor = certified(&keys, b"encryption 1, acceptor")?;
    let takes = |key: &CertifiedKey| {
        let algorithms = provider.signature_verification_algorithms;
        Arc::new(OneKey { key: key.cert[0].clone(), algorithms })
    };
    Ok(Credentials {
        initiator_takes: takes(&of_acceptor),
        acceptor_takes: takes(&of_initiator),
        initiator: Arc::new(AlwaysResolvesClientRawPublicKeys::new(of_initiator)),
        acceptor: Arc::new(AlwaysResolvesServerRawPublicKeys::new(of_acceptor)),
    })
}

fn certified(keys: &Hkdf<Sha256>, of: &[u8]) -> Result<Arc<CertifiedKey>, Error> {
    let mut pkcs8 = Zeroizing::new([0; PKCS8.len() + 32]);
    pkcs8[..PKCS8.len()].copy_from_slice(&PKCS8);
    // It fails for keys of more than 255 hashes only.
    let _ = keys.expand(of, &mut pkcs8[PKCS8.len()..]);
    let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(&pkcs8[..]))?;
    let public = key.public_key().ok_or_else(|| Error::General("no public key".into()))?;
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], key)))
}

/// Takes one key, and no other.
#[derive(Debug)]
struct OneKey {
    key: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl OneKey {
    fn check(&self, key: &CertificateDer<'_>) -> Result<(), Error> {
        if *key == self.key {
            return Ok(());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }
}

/// What verifiers of both ends have in common: TLS 1.3, and raw public keys of one kind.
macro_rules! of_raw_keys {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _key: &CertificateDer<'_>,
            _signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Err(NO_TLS12)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            key: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let key = SubjectPublicKeyInfoDer::from(key.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for OneKey {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(key).map(|()| ServerCertVerified::assertion())
    }

    of_raw_keys!();
}

impl ClientCertVerifier for OneKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(key).map(|()| ClientCertVerified::assertion())
    }

    of_raw_keys!();
}
