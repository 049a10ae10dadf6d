//! What is a secret and what an identity, and what files may hold them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;

#[test]
fn a_secret_has_enough_bytes_and_is_not_shown() {
    for len in [0, 31, 65] {
        let text = Secret::new(&vec![7; len]).unwrap_err().to_string();
        assert!(text.contains("32 to 64") && text.contains("openssl rand"), "{text}");
    }
    let secret = Secret::new(&[0x41; 32]).unwrap();
    assert_eq!(secret.bytes(), [0x41; 32]);
    let shown = format!("{secret:?}");
    assert!(!shown.contains("65") && !shown.contains("AA") && !shown.contains("41"), "{shown}");
    assert_eq!(secret, Secret::new(&[0x41; 32]).unwrap());
    assert_ne!(secret, Secret::new(&[0x41; 33]).unwrap());
    assert_ne!(secret, Secret::new(&[0x42; 32]).unwrap());
}

#[test]
fn levels_have_names() {
    for level in Security::ALL {
        assert_eq!(Security::parse(&level.to_string()), Some(level));
    }
    assert_eq!(Security::parse("Open"), None);
    assert!(Security::Open < Security::Authenticated);
}

/// A folder of one test's own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("fabric-secret-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, bytes: &[u8], mode: u32) -> PathBuf {
        self.named("secret", bytes, mode)
    }

    fn named(&self, name: &str, bytes: &[u8], mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no files")]
fn a_file_holds_a_secret_and_perhaps_a_line_end() {
    let folder = Folder::new("good");
    for (bytes, len) in [
        (&[b'x'; 32][..], 32),
        (b"0123456789abcdef0123456789abcdef\n", 32),
        (b"0123456789abcdef0123456789abcdef\r\n", 32),
        (&[b'y'; 64], 64),
    ] {
        for mode in [0o600, 0o400] {
            let _ = fs::remove_file(folder.0.join("secret"));
            let secret = Secret::from_file(folder.file(bytes, mode)).unwrap();
            assert_eq!(secret.bytes(), &bytes[..len]);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no files")]
fn what_others_may_touch_or_is_no_secret_is_refused_by_name() {
    let folder = Folder::new("bad");
    let refused = |path: &Path| match Secret::from_file(path) {
        Err(Error::InvalidArgument(failure)) => failure.to_string(),
        other => panic!("{other:?}"),
    };
    for mode in [0o640, 0o604, 0o620, 0o601] {
        let path = folder.file(&[b'x'; 32], mode);
        let text = refused(&path);
        assert!(text.contains(&format!("mode {mode:04o}")), "{text}");
        assert!(text.contains(&*path.to_string_lossy()) && text.contains("chmod 600"), "{text}");
    }
    assert!(refused(&folder.file(b"short\n", 0o600)).contains("not 5"));
    assert!(refused(&folder.file(&[b'x'; 1 << 20], 0o600)).contains("more than 64"));
    assert!(refused(&folder.file(&[b'x'; 65], 0o600)).contains("more than 64"));
    assert!(refused(&folder.0).contains("no regular file"));
    assert!(refused(&folder.0.join("none")).contains("cannot be read"));
    assert!(refused(Path::new("/dev/zero")).contains("no regular file"));
    let fifo = folder.0.join("fifo");
    let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
    // SAFETY: a string of C.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    assert!(refused(&fifo).contains("no regular file"));
}

/// A text of PEM, with bytes that are nothing: what they mean is found out by who uses them.
fn pem(kind: &str, bytes: &str) -> String {
    format!("-----BEGIN {kind}-----\n{bytes}\n-----END {kind}-----\n")
}

#[test]
fn an_identity_has_one_key_and_certificates_and_does_not_show_the_key() {
    let [certificate, next] = ["AQID", "BAUG"].map(|bytes| pem("CERTIFICATE", bytes));
    for kind in ["PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"] {
        let key = pem(kind, "QUFB");
        let text = format!("of a node\n{certificate}{key}{}{next}", pem("EC PARAMETERS", "BwgJ"));
        let identity = Identity::from_pem(text.as_bytes(), next.as_bytes()).unwrap();
        assert_eq!(identity.key(), b"AAA");
        assert_eq!(identity.chain().collect::<Vec<_>>(), [[1, 2, 3], [4, 5, 6]]);
        assert_eq!(identity.trusted().collect::<Vec<_>>(), [[4, 5, 6]]);
        let shown = format!("{identity:?}");
        assert!(["65", "AAA", "41"].iter().all(|key| !shown.contains(key)), "{shown}");
    }
    let key = pem("PRIVATE KEY", "AQID");
    let whole = format!("{key}{certificate}");
    for (identity, trusted, says) in [
        ("", &*certificate, "no private key"),
        (&*certificate, &*certificate, "no private key"),
        (&*(pem("ENCRYPTED PRIVATE KEY", "AQID") + &certificate), &*certificate, "with a password"),
        (&*format!("{key}{key}{certificate}"), &*certificate, "several private keys"),
        (&*key, &*certificate, "the first"),
        (&*whole, "", "authorities"),
        (&*whole, &*key, "authorities"),
        (&*whole, "-----BEGIN CERTIFICATE-----\nAQID\n", "no PEM"),
        (&*whole.replace("AQID", "A!ID"), &*certificate, "no PEM"),
    ] {
        let refused = Identity::from_pem(identity.as_bytes(), trusted.as_bytes());
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(says), "{says}: {text}");
        assert!(text.contains("the identity: ") != text.contains("the trusted certificates: "));
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no files")]
fn an_identity_is_read_from_files_that_others_do_not_determine() {
    let folder = Folder::new("identity");
    let certificate = pem("CERTIFICATE", "AQID");
    let whole = pem("PRIVATE KEY", "AQID") + &certificate;
    let files = |modes: [u32; 2], trusted: &str| {
        let file = |name, bytes: &str, mode| {
            let _ = fs::remove_file(folder.0.join(name));
            folder.named(name, bytes.as_bytes(), mode)
        };
        let identity = file("node.pem", &whole, modes[0]);
        Identity::from_files(identity, file("authority.pem", trusted, modes[1]))
    };
    for modes in [[0o600, 0o644], [0o400, 0o600], [0o600, 0o444]] {
        let identity = files(modes, &certificate).unwrap();
        assert_eq!(identity.key(), [1, 2, 3]);
        assert!(identity.origins()[0].ends_with("node.pem"));
    }
    let large = certificate.clone() + &" ".repeat(1 << 20);
    for (modes, trusted, says) in [
        ([0o640, 0o644], &*certificate, ["node.pem", "mode 0640", "chmod 600"]),
        ([0o604, 0o644], &*certificate, ["node.pem", "mode 0604", "chmod 600"]),
        ([0o600, 0o664], &*certificate, ["authority.pem", "mode 0664", "chmod go-w"]),
        ([0o600, 0o646], &*certificate, ["authority.pem", "mode 0646", "chmod go-w"]),
        ([0o600, 0o644], &*large, ["authority.pem", "more than", "1048576"]),
        ([0o600, 0o644], "", ["authority.pem", "no certificate", "CERTIFICATE"]),
    ] {
        let Err(Error::InvalidArgument(failure)) = files(modes, trusted) else {
            panic!("{says:?}")
        };
        let text = failure.to_string();
        assert!(says.iter().all(|part| text.contains(part)), "{says:?}: {text}");
    }
    let missing = Identity::from_files(folder.0.join("none"), folder.0.join("authority.pem"));
    assert!(missing.unwrap_err().to_string().contains("none: it cannot be read"));
}
