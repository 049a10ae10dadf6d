//! What is a secret, and what file may hold one.

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
        let path = self.0.join("secret");
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
