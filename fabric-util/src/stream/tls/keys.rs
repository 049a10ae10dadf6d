//! What the ends of a connection prove themselves with, and what they take: made once, for all connections of a domain.

use std::sync::Arc;

use fabric_core::{Error, Failure, Identity, Result, Secret};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};

use super::credentials::Credentials;
use super::first::First;
use super::{certificates, raw_keys};

/// The protocol within TLS (ALPN, RFC 7301).
const PROTOCOL: &[u8] = b"fabric/1";

/// The keys of a domain whose connections are encrypted.
#[derive(Clone)]
pub struct TlsKeys {
    pub(super) first: First,
    pub(super) initiator: Arc<ClientConfig>,
    pub(super) acceptor: Arc<ServerConfig>,
}

impl TlsKeys {
    /// Those of this secret, and of this identity; there has to be one of them. With an identity TLS proves that, and the first
    /// frame the secret.
    ///
    /// # Errors
    /// `InvalidArgument` that says what is wrong with the identity, or that there is nothing to prove; `Internal` if the library
    /// that encrypts takes no keys of the secret.
    pub fn new(secret: Option<&Secret>, identity: Option<&Identity>) -> Result<Self> {
        Self::with(secret, identity, provider())
    }

    /// What an initiator says first, which can be copied.
    #[cfg(fuzzing)]
    pub(crate) fn first_frame(&self) -> Result<Vec<u8>> {
        self.first.frame()
    }

    /// As `new`, with these algorithms.
    pub(super) fn with(
        secret: Option<&Secret>,
        identity: Option<&Identity>,
        provider: CryptoProvider,
    ) -> Result<Self> {
        let failed = |error| internal("make keys", error);
        let provider = Arc::new(provider);
        let credentials = match (identity, secret) {
            (Some(identity), _) => certificates::credentials(identity, &provider)?,
            (None, Some(secret)) => raw_keys::credentials(secret, &provider).map_err(failed)?,
            (None, None) => {
                let text = "encryption takes a secret or an identity, and there is neither";
                return Err(Error::invalid("open domain", text));
            }
        };
        let first = First::new(secret, identity.is_some());
        let (initiator, acceptor) = configs(credentials, &provider).map_err(failed)?;
        Ok(TlsKeys { first, initiator: Arc::new(initiator), acceptor: Arc::new(acceptor) })
    }
}

fn configs(
    credentials: Credentials,
    provider: &Arc<CryptoProvider>,
) -> std::result::Result<(ClientConfig, ServerConfig), rustls::Error> {
    let mut initiator = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(credentials.initiator_takes)
        .with_client_cert_resolver(credentials.initiator);
    initiator.alpn_protocols = vec![PROTOCOL.to_vec()];
    initiator.resumption = Resumption::disabled();
    initiator.enable_sni = false;
    let mut acceptor = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(credentials.acceptor_takes)
        .with_cert_resolver(credentials.acceptor);
    acceptor.alpn_protocols = vec![PROTOCOL.to_vec()];
    acceptor.session_storage = Arc::new(NoServerSessionStorage {});
    acceptor.send_tls13_tickets = 0;
    Ok((initiator, acceptor))
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
