//! What both kinds of proof have in common: raw keys and certificates.

use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::client::danger::ServerCertVerifier;
use rustls::server::ResolvesServerCert;
use rustls::server::danger::ClientCertVerifier;
use rustls::{Error, PeerIncompatible};

/// What an end proves itself by as either end of a connection, and what it takes of the other.
pub(super) struct Credentials {
    pub(super) initiator: Arc<dyn ResolvesClientCert>,
    pub(super) initiator_takes: Arc<dyn ServerCertVerifier>,
    pub(super) acceptor: Arc<dyn ResolvesServerCert>,
    pub(super) acceptor_takes: Arc<dyn ClientCertVerifier>,
}

/// No end of ours goes on with TLS 1.2.
pub(super) const NO_TLS12: Error =
    Error::PeerIncompatible(PeerIncompatible::ServerDoesNotSupportTls12Or13);
