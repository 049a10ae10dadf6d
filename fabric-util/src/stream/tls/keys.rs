//! What the ends of a connection prove themselves with: raw public keys (RFC 7250), which the secret determines.
//!
//! Each end has an Ed25519 key of its own, so that none can be sent back. An end with the secret knows the other's key, and
//! takes no other.

use std::sync::Arc;

use fabric_core::{Error, Failure, Result, Secret};
use hkdf::Hkdf;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, ring, verify_tls13_signature_with_raw_key,
};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig,
    SignatureScheme,
};
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::proof::HandshakeKeys;

/// The protocol within TLS (ALPN, RFC 7301).
const PROTOCOL: &[u8] = b"fabric/1";
/// Before the 32 bytes of an Ed25519 private key in PKCS #8 (RFC 8410).
const PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The keys of a secret for connections that are encrypted: made once, for all connections of a domain.
#[derive(Clone)]
pub struct TlsKeys {
    pub(super) first: Arc<HandshakeKeys>,
    pub(super) initiator: Arc<ClientConfig>,
    pub(super) acceptor: Arc<ServerConfig>,
}

impl TlsKeys {
    /// Those of this secret.
    ///
    /// # Errors
    /// `Internal` if the library that encrypts takes none of them.
    pub fn new(secret: &Secret) -> Result<Self> {
        Self::with(secret, provider()).map_err(|error| internal("make keys", error))
    }

    /// What an initiator says first, which can be copied.
    #[cfg(fuzzing)]
    pub(crate) fn first_frame(&self) -> Result<Vec<u8>> {
        super::first::first(&self.first)
    }

    /// As `new`, with these algorithms.
    pub(super) fn with(
        secret: &Secret,
        provider: CryptoProvider,
    ) -> std::result::Result<Self, rustls::Error> {
        let provider = Arc::new(provider);
        let keys = Hkdf::<Sha256>::new(Some(b"anyfabric"), secret.bytes());
        let of_initiator = certified(&keys, b"encryption 1, initiator")?;
        let of_acceptor = certified(&keys, b"encryption 1, acceptor")?;
        let of_peer = |key: &CertifiedKey| {
            let algorithms = provider.signature_verification_algorithms;
            Arc::new(OneKey { key: key.cert[0].clone(), algorithms })
        };
        let mut initiator = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(of_peer(&of_acceptor))
            .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(
                of_initiator.clone(),
            )));
        initiator.alpn_protocols = vec![PROTOCOL.to_vec()];
        initiator.resumption = Resumption::disabled();
        initiator.enable_sni = false;
        let mut acceptor = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(of_peer(&of_initiator))
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(of_acceptor)));
        acceptor.alpn_protocols = vec![PROTOCOL.to_vec()];
        acceptor.session_storage = Arc::new(NoServerSessionStorage {});
        acceptor.send_tls13_tickets = 0;
        Ok(TlsKeys {
            first: Arc::new(HandshakeKeys::new(secret)),
            initiator: Arc::new(initiator),
            acceptor: Arc::new(acceptor),
        })
    }
}

pub(super) fn internal(op: &'static str, error: rustls::Error) -> Error {
    Error::Internal(Failure::new(op, "TLS failed").because(std::io::Error::other(error)))
}

/// The algorithms, the fastest first where processors have instructions for it.
pub(super) fn provider() -> CryptoProvider {
    use ring::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    CryptoProvider {
        cipher_suites: vec![
            TLS13_AES_128_GCM_SHA256,
            TLS13_AES_256_GCM_SHA384,
            TLS13_CHACHA20_POLY1305_SHA256,
        ],
        kx_groups: vec![ring::kx_group::X25519],
        ..ring::default_provider()
    }
}

fn certified(
    keys: &Hkdf<Sha256>,
    of: &[u8],
) -> std::result::Result<Arc<CertifiedKey>, rustls::Error> {
    let mut pkcs8 = Zeroizing::new([0; PKCS8.len() + 32]);
    pkcs8[..PKCS8.len()].copy_from_slice(&PKCS8);
    // It fails for keys of more than 255 hashes only.
    let _ = keys.expand(of, &mut pkcs8[PKCS8.len()..]);
    let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(&pkcs8[..]))?;
    let public = key.public_key().ok_or_else(|| rustls::Error::General("no public key".into()))?;
    Ok(Arc::new(CertifiedKey::new(vec![CertificateDer::from(public.to_vec())], key)))
}

/// Takes one key, and no other.
#[derive(Debug)]
struct OneKey {
    key: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl OneKey {
    fn check(&self, key: &CertificateDer<'_>) -> std::result::Result<(), rustls::Error> {
        if *key == self.key {
            return Ok(());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }
}

const NO_TLS12: rustls::Error =
    rustls::Error::PeerIncompatible(rustls::PeerIncompatible::ServerDoesNotSupportTls12Or13);

/// What verifiers of both ends have in common: TLS 1.3, and raw public keys of one kind.
macro_rules! of_raw_keys {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _key: &CertificateDer<'_>,
            _signed: &DigitallySignedStruct,
        ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
            Err(NO_TLS12)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            key: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
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
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
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
    ) -> std::result::Result<ClientCertVerified, rustls::Error> {
        self.check(key).map(|()| ClientCertVerified::assertion())
    }

    of_raw_keys!();
}
