//! `scripts/fuzz 60 handshake`: a stranger makes no connection of an end that has a secret or an identity, and nothing panics.
#![no_main]

use std::sync::LazyLock;

use fabric_core::Identity;
use fabric_util::fuzzing::{self, handshake_seeds};

/// Of an authority that is its only member.
static IDENTITY: LazyLock<Identity> = LazyLock::new(|| {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let made = rcgen::KeyPair::generate().and_then(|key| {
        let certificate = params.self_signed(&key)?.pem();
        Ok((key.serialize_pem() + &certificate, certificate))
    });
    let (identity, trusted) = made.expect("a certificate");
    Identity::from_pem(identity.as_bytes(), trusted.as_bytes()).expect("an identity")
});

fn handshake(bytes: &[u8]) {
    fuzzing::handshake(bytes, &IDENTITY);
}

fuzz::target!(
    handshake,
    handshake_seeds,
    [
        "fabric-util/src/stream/greeting.rs",
        "fabric-util/src/stream/wire/handshake.rs",
        "fabric-util/src/stream/tls",
    ]
);
