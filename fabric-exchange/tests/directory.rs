//! What other processes can do to a directory: nothing of it is taken for the job's, and nothing is left behind.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fabric_exchange::{
    Exchange, ExchangeError, Job, JoinOptions, Membership, Rendezvous, Result, Secret,
};

const PATIENCE: Duration = Duration::from_secs(60);

fn secret(of: u8) -> Option<Secret> {
    Some(Secret::new(&[of; 32]).unwrap())
}

fn join(root: &Path, name: &str, rank: u32, secret: Option<Secret>) -> Result<Exchange> {
    let membership = Membership::new(Job::new(name, 0, 2).unwrap(), rank).unwrap();
    let mut options = JoinOptions::default();
    options.secret = secret;
    Exchange::join(&Rendezvous::Directory(root.into()), &membership, &options)
}

/// The only one in a directory.
fn only(folder: &Path) -> PathBuf {
    let mut entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let first = entries.next().unwrap();
    assert_eq!(entries.next(), None);
    first
}

#[test]
fn a_file_of_a_stranger_is_an_error() {
    let root = tempfile::tempdir().unwrap();
    let first = join(root.path(), "job", 0, secret(1)).unwrap();
    let second = join(root.path(), "job", 1, secret(1)).unwrap();
    first.put("key", b"value").unwrap();
    let keys = only(root.path()).join("keys");
    let file = only(&keys);
    let (sealed, open) = (fs::read(&file).unwrap(), [b"FBXS\x01\0", &b"value"[..]].concat());
    let mut changed = sealed.clone();
    *changed.last_mut().unwrap() ^= 1;
    for (bytes, why) in [
        (&changed, "another secret, or was changed"),
        (&open, "without a secret"),
        (&sealed[..sealed.len() / 2].to_vec(), "is cut off"),
    ] {
        fs::write(&file, bytes).unwrap();
        let error = second.get("key", PATIENCE).unwrap_err();
        assert!(matches!(error, ExchangeError::Unauthenticated(_)), "{error:?}");
        assert!(error.to_string().contains(why), "{error}");
    }
    for (bytes, why) in
        [(b"hello".to_vec(), "none of fabric's"), (vec![0; 5000], "more than 4134 bytes")]
    {
        fs::write(&file, bytes).unwrap();
        let error = second.get("key", PATIENCE).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    fs::write(&file, &sealed).unwrap();
    assert_eq!(second.get("key", PATIENCE).unwrap(), b"value");
    // Of one key to another.
    second.put("other", b"of other").unwrap();
    let other =
        fs::read_dir(&keys).unwrap().map(|entry| entry.unwrap().path()).find(|path| *path != file);
    fs::write(other.unwrap(), &sealed).unwrap();
    assert!(matches!(first.get("other", PATIENCE), Err(ExchangeError::Unauthenticated(_))));
}

#[test]
fn a_stranger_is_not_counted_in_a_barrier() {
    let root = tempfile::tempdir().unwrap();
    let first = join(root.path(), "job", 0, secret(1)).unwrap();
    assert!(first.barrier("x", Duration::ZERO).is_err());
    let gate = fs::read_dir(only(root.path())).unwrap().map(|entry| entry.unwrap().path());
    let gate = gate.into_iter().find(|path| path.to_string_lossy().contains("gates-")).unwrap();
    // No rank's, or none at all.
    for name in ["2", "-1", "x", ".new-1"] {
        fs::write(gate.join(name), b"").unwrap();
    }
    let late = first.barrier("x", Duration::ZERO).unwrap_err();
    assert!(late.to_string().ends_with("missing is rank 1"), "{late}");
    fs::write(gate.join("1"), b"FBXS\x01\0").unwrap();
    let error = first.barrier("x", PATIENCE).unwrap_err();
    assert!(matches!(error, ExchangeError::Unauthenticated(_)), "{error:?}");
}

#[test]
fn all_members_have_the_same_secret() {
    let root = tempfile::tempdir().unwrap();
    let _sealed = join(root.path(), "sealed", 0, secret(1)).unwrap();
    let _open = join(root.path(), "open", 0, None).unwrap();
    for (name, other, why) in [
        ("sealed", secret(2), "another secret"),
        ("sealed", None, "FABRIC_SECRET_FILE"),
        ("open", secret(1), "without a secret"),
    ] {
        let error = join(root.path(), name, 1, other).unwrap_err();
        assert!(matches!(error, ExchangeError::Unauthenticated(_)), "{error:?}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[test]
fn the_last_rank_that_leaves_removes_everything() {
    let root = tempfile::tempdir().unwrap();
    let ranks = [0, 1].map(|rank| join(root.path(), "job", rank, None).unwrap());
    std::thread::scope(|scope| {
        for rank in ranks {
            scope.spawn(move || {
                rank.put(&rank.rank().to_string(), b"x").unwrap();
                rank.barrier("x", PATIENCE).unwrap();
                rank.all_gather(b"y", PATIENCE).unwrap();
                rank.leave().unwrap();
            });
        }
    });
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    let nowhere = root.path().join("nowhere");
    let error = join(&nowhere, "job", 0, None).unwrap_err();
    assert!(matches!(error, ExchangeError::Unreachable(_)), "{error:?}");
}
