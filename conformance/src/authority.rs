//! An authority of a case's own, and the identities of its members.

use fabric::Identity;

use crate::check::Failed;

/// An authority.
#[cfg(feature = "encryption")]
pub(crate) struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

#[cfg(feature = "encryption")]
impl Authority {
    pub(crate) fn new() -> Result<Self, Failed> {
        Self::try_new().map_err(|error| Failed::new("an authority", error.to_string()))
    }

    fn try_new() -> Result<Self, rcgen::Error> {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Authority { issuer: rcgen::Issuer::new(params, key), pem })
    }

    /// An identity with a certificate of this authority for this name (URI), which trusts all its members.
    pub(crate) fn member(&self, name: &str) -> Result<Identity, Failed> {
        self.member_that_trusts(name, &[self])
    }

    /// Likewise, but it trusts the members of these authorities.
    pub(crate) fn member_that_trusts(
        &self,
        name: &str,
        trusted: &[&Authority],
    ) -> Result<Identity, Failed> {
        let member =
            self.certify(name).map_err(|error| Failed::new("a certificate", error.to_string()))?;
        let trusted: String = trusted.iter().map(|authority| &authority.pem[..]).collect();
        Ok(Identity::from_pem(member.as_bytes(), trusted.as_bytes())?)
    }

    fn certify(&self, name: &str) -> Result<String, rcgen::Error> {
        let mut params = rcgen::CertificateParams::default();
        params.subject_alt_names = vec![rcgen::SanType::URI(name.try_into()?)];
        let key = rcgen::KeyPair::generate()?;
        Ok(key.serialize_pem() + &params.signed_by(&key, &self.issuer)?.pem())
    }
}

/// What makes certificates was left out of this build.
#[cfg(not(feature = "encryption"))]
pub(crate) enum Authority {}

#[cfg(not(feature = "encryption"))]
impl Authority {
    pub(crate) fn new() -> Result<Self, Failed> {
        Err(Failed::new("the feature `encryption` of this package", "a build without it"))
    }

    pub(crate) fn member(&self, _name: &str) -> Result<Identity, Failed> {
        match *self {}
    }

    pub(crate) fn member_that_trusts(
        &self,
        _name: &str,
        _trusted: &[&Authority],
    ) -> Result<Identity, Failed> {
        match *self {}
    }
}
