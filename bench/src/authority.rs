//! An authority, which gives its members certificates, for measurements with identities.

/// An authority.
pub(crate) struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Result<Self, rcgen::Error> {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Authority { issuer: rcgen::Issuer::new(params, key), pem })
    }

    /// Its certificate, by which its members are known (PEM).
    pub(crate) fn certificate(&self) -> &str {
        &self.pem
    }

    /// The private key of a member with its certificate (PEM).
    pub(crate) fn certify(&self, name: &str) -> Result<String, rcgen::Error> {
        let params = rcgen::CertificateParams::new(vec![name.to_owned()])?;
        let key = rcgen::KeyPair::generate()?;
        Ok(key.serialize_pem() + &params.signed_by(&key, &self.issuer)?.pem())
    }
}
