//! Ends that have an identity prove themselves by X.509 certificates (RFC 5280), whose chain has to lead to an authority that
//! is trusted, now and for this use. Which names are in them is for the application to judge.

use std::fmt::Display;
use std::sync::Arc;

use fabric_core::{Error, Identity, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    AlertDescription, CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use webpki::EndEntityCert;

use super::credentials::{Credentials, NO_TLS12};

/// What both ends with this identity prove themselves by, and take.
///
/// # Errors
/// `InvalidArgument` that says what is wrong with the identity.
pub(super) fn credentials(
    identity: &Identity,
    provider: &Arc<CryptoProvider>,
) -> Result<Credentials> {
    let [origin, trusted_origin] = identity.origins();
    let invalid =
        |origin: &str, why: &dyn Display| Error::invalid("open domain", format!("{origin}: {why}"));
    let own = certified(identity, provider).map_err(|why| invalid(origin, &why))?;
    let roots = Arc::new(roots(identity).map_err(|why| invalid(trusted_origin, &why))?);
    // An initiator has one certificate: it need not hear whom the acceptor trusts.
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
        .clear_root_hint_subjects();
    let acceptor_takes = verifier.build().map_err(|error| invalid(trusted_origin, &error))?;
    let algorithms = provider.signature_verification_algorithms;
    let own = Arc::new(SingleCertAndKey::from(own));
    Ok(Credentials {
        initiator: own.clone(),
        initiator_takes: Arc::new(Authorities { roots, algorithms }),
        acceptor: own,
        acceptor_takes,
    })
}

fn certified(
    identity: &Identity,
    provider: &CryptoProvider,
) -> std::result::Result<CertifiedKey, String> {
    let key = PrivateKeyDer::try_from(identity.key()).map_err(|_| NO_KEY)?;
    let chain = identity.chain().map(|der| CertificateDer::from(der.to_vec())).collect();
    CertifiedKey::from_der(chain, key.clone_key(), provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => NO_PAIR.to_owned(),
        rustls::Error::InvalidCertificate(why) => {
            format!("the first certificate is none of X.509, version 3: {why}")
        }
        _ => NO_KEY.to_owned(),
    })
}

const NO_KEY: &str = "the private key is none of those that are known: RSA of 2048 to 4096 bits, ECDSA with P-256 or P-384, Ed25519";
const NO_PAIR: &str = "the private key is not that of the first certificate; those that lead from it to an authority follow it";

fn roots(identity: &Identity) -> std::result::Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for (number, der) in identity.trusted().enumerate() {
        roots.add(CertificateDer::from(der)).map_err(|error| {
            format!("certificate {} is not one of an authority: {error}", number + 1)
        })?;
    }
    Ok(roots)
}

/// What is wrong with the other end, to be said behind its name.
pub(super) fn flaw(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(why) => {
            format!("has a certificate that this side does not take: {}", fault(why))
        }
        rustls::Error::NoCertificatesPresented => "shows no certificate".to_owned(),
        rustls::Error::AlertReceived(alert) => {
            format!("does not take this side's certificate: {}", verdict(*alert))
        }
        other => format!("did not prove who it is, or somebody changed what was said: {other}"),
    }
}

fn fault(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => {
            "it leads to no authority that is trusted here".to_owned()
        }
        CertificateError::BadSignature => {
            "its signature does not fit: no authority that is trusted here has made it, or the \
                                           peer does not have its key"
                .to_owned()
        }
        CertificateError::InvalidPurposeContext { required, .. } => {
            format!("its extended key usage is not {required}")
        }
        other => other.to_string(),
    }
}

/// What an end makes of a certificate, by the one word that it says of it (RFC 8446, 6.2).
fn verdict(alert: AlertDescription) -> String {
    let text = match alert {
        AlertDescription::UnknownCA => "it leads to no authority that is trusted there",
        AlertDescription::DecryptError => {
            "its signature does not fit: no authority that is trusted there has made it, or its key is another"
        }
        AlertDescription::CertificateExpired => "it has expired, or is not valid yet",
        AlertDescription::UnsupportedCertificate => "its extended key usage is another",
        AlertDescription::CertificateRequired => "there is none",
        other => return format!("{other:?}"),
    };
    text.to_owned()
}

/// The name in a certificate: its first URI, or else its first DNS name.
pub(super) fn name(certificate: &CertificateDer<'_>) -> Option<Arc<str>> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    // Anything could be in it that the authority has signed: what would mislead in a log is no name.
    let is_uri = |uri: &&str| !uri.is_empty() && uri.bytes().all(|byte| byte.is_ascii_graphic());
    let uri = certificate.valid_uri_names().find(is_uri);
    uri.or_else(|| certificate.valid_dns_names().next()).map(Arc::from)
}

/// Takes every acceptor whose certificate leads to one of these, whatever its name is.
#[derive(Debug)]
struct Authorities {
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Authorities {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(certificate)?;
        let (roots, algorithms) = (&self.roots, self.algorithms.all);
        verify_server_cert_signed_by_trust_anchor(&certificate, roots, others, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(NO_TLS12)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
