//! Ends that prove by certificates who they are.

use fabric_core::{Error, Identity};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
    date_time_ymd,
};

use super::*;
use crate::refusal::RefuseReason;

/// An authority, and the certificates that lead from its own certificates to a known one.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

fn of_authority(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params
}

fn named(names: Vec<SanType>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.subject_alt_names = names;
    params
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn dns(text: &str) -> SanType {
    SanType::DnsName(text.try_into().unwrap())
}

impl Authority {
    fn new(name: &str) -> Self {
        let (params, key) = (of_authority(name), KeyPair::generate().unwrap());
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// One that this vouches for.
    fn below(&self, name: &str) -> Self {
        let (params, key) = (of_authority(name), KeyPair::generate().unwrap());
        let pem = params.signed_by(&key, &self.issuer).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// A private key and its certificate.
    fn member(&self, params: &CertificateParams) -> String {
        self.member_with(params, KeyPair::generate().unwrap())
    }

    fn member_with(&self, params: &CertificateParams, key: KeyPair) -> String {
        key.serialize_pem() + &params.signed_by(&key, &self.issuer).unwrap().pem()
    }

    fn trusts(&self, member: &str) -> TlsKeys {
        trusting(member, &self.pem, None).unwrap()
    }

    fn keys(&self, name: &str) -> TlsKeys {
        self.trusts(&self.member(&named(vec![uri(name)])))
    }
}

fn trusting(member: &str, trusted: &str, secret: Option<u8>) -> fabric_core::Result<TlsKeys> {
    let identity = Identity::from_pem(member.as_bytes(), trusted.as_bytes())?;
    let secret = secret.map(|of| Secret::new(&[of; 32]).unwrap());
    TlsKeys::new(secret.as_ref(), Some(&identity))
}

/// Both ends have met: the names that they know each other by.
fn meet(keys: [&TlsKeys; 2]) -> [Option<String>; 2] {
    let mut ends = ends(keys);
    let outcome = shake_hands(&mut ends, |_, _| ());
    assert!(matches!(outcome, [Ok(true), Ok(true)]), "{outcome:?}");
    let names = [&ends[0], &ends[1]].map(|end| end.peer_identity().map(|name| name.to_string()));
    let [a, b] = &mut ends;
    send(a, b"hello").unwrap();
    move_said(a, b);
    assert_eq!(recv(b, 10).unwrap(), b"hello");
    names
}

/// They do not meet: what the initiator says of the acceptor, and that of it. The one that refuses says why, and so does the
/// other as far as it heard of it.
fn quarrel(keys: [&TlsKeys; 2]) -> [String; 2] {
    let mut ends = ends(keys);
    let mut outcome = shake_hands(&mut ends, |_, _| ());
    if matches!(outcome[0], Ok(true)) {
        // Its part is done; the answer to what it says next is that it is not wanted.
        outcome[0] = recv(&mut ends[0], 10).map(|_| true);
    }
    let Some(Declined::Unauthenticated(initiator)) = declined(&outcome[0]) else {
        panic!("{outcome:?}")
    };
    let acceptor = match unwelcome(&outcome[1]) {
        Some(unwelcome) => {
            assert!(unwelcome.is_unauthenticated, "{outcome:?}");
            unwelcome.why.clone()
        }
        None => panic!("{outcome:?}"),
    };
    [initiator.to_string(), acceptor]
}

#[test]
fn members_of_an_authority_meet_and_learn_each_others_names() {
    let authority = Authority::new("of the job");
    let (one, other) = (authority.keys("spiffe://job/one"), authority.keys("spiffe://job/other"));
    let known = |name: &str| Some(format!("spiffe://job/{name}"));
    assert_eq!(meet([&one, &other]), [known("other"), known("one")]);
    assert_eq!(meet([&one, &one]), [known("one"), known("one")]);
    // Two authorities that trust each other, and one by way of another.
    let elsewhere = Authority::new("elsewhere");
    let both = format!("{}{}", authority.pem, elsewhere.pem);
    let below = elsewhere.below("a department of it");
    let far = below.member(&named(vec![uri("spiffe://far/one")])) + &below.pem;
    let [near, far] =
        [authority.member(&named(Vec::new())), far].map(|member| trusting(&member, &both, None));
    let (near, far) = (near.unwrap(), far.unwrap());
    assert_eq!(meet([&near, &far]), [Some("spiffe://far/one".to_owned()), None]);
    assert_eq!(meet([&far, &near]), [None, Some("spiffe://far/one".to_owned())]);
}

#[test]
fn a_name_is_the_first_uri_or_else_the_first_dns_name() {
    let authority = Authority::new("of the job");
    let ours = authority.keys("spiffe://job/ours");
    let ip = || SanType::IpAddress([127, 0, 0, 1].into());
    for (names, known) in [
        (vec![dns("a.job"), uri("spiffe://job/a"), uri("spiffe://job/b")], Some("spiffe://job/a")),
        (vec![ip(), dns("b.job"), dns("c.job")], Some("b.job")),
        (vec![ip()], None),
        (vec![], None),
        (vec![uri("spiffe://job/a\nadmin logged in"), dns("d.job")], Some("d.job")),
        (vec![uri(""), uri("spiffe://job/e")], Some("spiffe://job/e")),
    ] {
        let theirs = authority.trusts(&authority.member(&named(names)));
        assert_eq!(meet([&ours, &theirs])[0].as_deref(), known);
        assert_eq!(meet([&theirs, &ours])[1].as_deref(), known);
    }
    assert_eq!(meet([&keys(1), &keys(1)]), [None, None], "raw keys have no names");
}

#[test]
fn all_kinds_of_keys_that_are_named_are_taken() {
    let authority = Authority::new("of the job");
    let ours = authority.keys("spiffe://job/ours");
    for algorithm in
        [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519]
    {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let theirs = authority.trusts(&authority.member_with(&named(vec![dns("a.job")]), key));
        assert_eq!(meet([&theirs, &ours])[1].as_deref(), Some("a.job"));
    }
}

#[test]
fn whom_no_trusted_authority_vouches_for_is_refused_by_name() {
    let authority = Authority::new("of the job");
    let other = Authority::new("of a stranger");
    let (ours, theirs) = (authority.keys("spiffe://job/a"), other.keys("spiffe://job/a"));
    for keys in [[&ours, &theirs], [&theirs, &ours]] {
        let [initiator, acceptor] = quarrel(keys);
        assert!(initiator.contains("no authority that is trusted here"), "{initiator}");
        assert!(acceptor.contains("no authority that is trusted there"), "{acceptor}");
    }
    // Only the acceptor does not trust the other, and only the initiator.
    let both = format!("{}{}", authority.pem, other.pem);
    let trusting = trusting(&other.member(&named(Vec::new())), &both, None).unwrap();
    let [initiator, acceptor] = quarrel([&trusting, &ours]);
    assert!(initiator.contains("no authority that is trusted there"), "{initiator}");
    assert!(acceptor.contains("no authority that is trusted here"), "{acceptor}");
    let [initiator, acceptor] = quarrel([&ours, &trusting]);
    assert!(initiator.contains("no authority that is trusted here"), "{initiator}");
    assert!(acceptor.contains("no authority that is trusted there"), "{acceptor}");
    // One of the same name, as a stranger would choose it.
    let same = Authority::new("of the job").keys("spiffe://job/a");
    let [initiator, acceptor] = quarrel([&same, &ours]);
    assert!(initiator.contains("no authority that is trusted here"), "{initiator}");
    assert!(acceptor.contains("no authority that is trusted there"), "{acceptor}");
    // A member is no authority.
    let key = KeyPair::generate().unwrap();
    let params = named(vec![uri("spiffe://job/member")]);
    let certificate = params.signed_by(&key, &authority.issuer).unwrap().pem();
    let pretends = Authority { issuer: Issuer::new(params, key), pem: certificate };
    let child = pretends.member(&named(Vec::new())) + &pretends.pem;
    let [_, acceptor] = quarrel([&authority.trusts(&child), &ours]);
    assert!(acceptor.contains("a certificate that this side does not take"), "{acceptor}");
}

#[test]
fn time_and_usage_of_a_certificate_count() {
    let authority = Authority::new("of the job");
    let ours = authority.keys("spiffe://job/ours");
    let with = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = named(vec![uri("spiffe://job/theirs")]);
        change(&mut params);
        authority.trusts(&authority.member(&params))
    };
    let expired = with(&|params| params.not_after = date_time_ymd(2020, 1, 1));
    let future = with(&|params| params.not_before = date_time_ymd(3000, 1, 1));
    for (theirs, says) in [(expired, "expired"), (future, "not valid yet")] {
        let [initiator, acceptor] = quarrel([&theirs, &ours]);
        assert!(acceptor.contains(says), "{acceptor}");
        assert!(initiator.contains("it has expired, or is not valid yet"), "{initiator}");
        let [initiator, acceptor] = quarrel([&ours, &theirs]);
        assert!(initiator.contains(says), "{initiator}");
        assert!(acceptor.contains("it has expired, or is not valid yet"), "{acceptor}");
    }
    use ExtendedKeyUsagePurpose::{ClientAuth, CodeSigning, ServerAuth};
    let used = |usages: &[ExtendedKeyUsagePurpose]| {
        with(&|params| params.extended_key_usages = usages.to_vec())
    };
    let (connects, listens) = (used(&[ClientAuth]), used(&[ServerAuth]));
    meet([&connects, &listens]);
    meet([&used(&[ClientAuth, ServerAuth]), &used(&[ClientAuth, ServerAuth])]);
    let [_, acceptor] = quarrel([&listens, &listens]);
    assert!(acceptor.contains("usage is not client auth"), "{acceptor}");
    let [initiator, _] = quarrel([&connects, &connects]);
    assert!(initiator.contains("usage is not server auth"), "{initiator}");
    let signs = used(&[CodeSigning]);
    quarrel([&signs, &ours]);
    quarrel([&ours, &signs]);
}

/// What cannot work is found before the domain is open.
#[test]
fn an_identity_that_is_none_is_named() {
    let authority = Authority::new("of the job");
    let member = authority.member(&named(Vec::new()));
    let certificate = member.split_inclusive("KEY-----\n").last().unwrap();
    let key = KeyPair::generate().unwrap().serialize_pem();
    let nonsense = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
    for (member, trusted, says) in [
        (&*format!("{key}{certificate}"), &*authority.pem, "not that of the first certificate"),
        (&*format!("{key}{nonsense}"), &*authority.pem, "first certificate is none of X.509"),
        (
            &*format!("{}{certificate}", nonsense.replace("CERTIFICATE", "PRIVATE KEY")),
            &*authority.pem,
            "none of those that are known",
        ),
        (&*member, nonsense, "trusted certificates: certificate 1"),
        (&*member, &*format!("{}{nonsense}", authority.pem), "trusted certificates: certificate 2"),
    ] {
        let Err(Error::InvalidArgument(failure)) = trusting(member, trusted, None) else {
            panic!("{says}")
        };
        assert!(failure.to_string().contains(says), "{says}: {failure}");
    }
    let none = TlsKeys::new(None, None);
    assert!(matches!(none, Err(Error::InvalidArgument(_))));
}

/// One end shows no certificate, though it says that it has one.
#[test]
fn a_peer_without_certificate_is_refused() {
    let authority = Authority::new("of the job");
    let (ours, mut theirs) =
        (authority.keys("spiffe://job/ours"), authority.keys("spiffe://job/a"));
    let mut config = (*theirs.initiator).clone();
    let bare = rustls::ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    config.client_auth_cert_resolver = bare.client_auth_cert_resolver.clone();
    theirs.initiator = Arc::new(config);
    let [initiator, acceptor] = quarrel([&theirs, &ours]);
    assert!(acceptor.contains("shows no certificate"), "{acceptor}");
    assert!(initiator.contains("there is none"), "{initiator}");
}

/// What an end is does not decide what it asks of the other: ends of different kinds do not connect, and say so.
#[test]
fn ends_of_which_one_has_no_identity_or_no_secret_hear_what_is_wrong() {
    let authority = Authority::new("of the job");
    let member = authority.member(&named(Vec::new()));
    let with = |secret| trusting(&member, &authority.pem, secret).unwrap();
    let (alone, both, others) = (with(None), with(Some(1)), with(Some(2)));
    let raw = keys(1);
    meet([&alone, &alone]);
    meet([&both, &both]);
    for (keys, reason, says) in [
        ([&raw, &alone], RefuseReason::IdentityWanted, "has no certificate"),
        ([&raw, &both], RefuseReason::IdentityWanted, "has no certificate"),
        ([&alone, &raw], RefuseReason::NoIdentity, "by a certificate"),
        ([&both, &raw], RefuseReason::NoIdentity, "by a certificate"),
        ([&alone, &both], RefuseReason::SecretWanted, "has no secret"),
        ([&both, &alone], RefuseReason::NoSecret, "has a secret"),
        ([&both, &others], RefuseReason::OtherSecret, "another secret"),
    ] {
        let [initiator, acceptor] = quarrel(keys);
        assert_eq!(Declined::because(reason), Declined::unauthenticated(initiator));
        assert!(acceptor.contains(says), "{acceptor}");
    }
}

/// An end that says what it should and proves itself by the other kind gets no further.
#[test]
fn raw_keys_are_no_certificates() {
    let authority = Authority::new("of the job");
    let alone = authority.keys("spiffe://job/a");
    let raw = keys(1);
    for (first, tls) in [(&alone, &raw), (&raw, &alone)] {
        let mixed = TlsKeys { first: first.first.clone(), ..tls.clone() };
        for ends in [[&mixed, first], [first, &mixed]] {
            let outcome = shake_hands(&mut super::ends(ends), |_, _| ());
            assert!(!matches!(outcome, [_, Ok(true)]), "{outcome:?}");
        }
    }
}

#[test]
fn a_handshake_with_certificates_that_was_changed_makes_no_connection() {
    let authority = Authority::new("of the job");
    // Of a kind whose signatures have always the same length.
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let member = authority.member_with(&named(vec![uri("spiffe://job/a")]), key);
    no_byte_may_change(&authority.trusts(&member));
}
