//! Files that decide who is let in, and what others may not do with them.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use zeroize::Zeroizing;

use crate::error::{Error, Result};

/// The rights that group and others may not have.
pub(super) struct Rule {
    forbidden: u32,
    broken: &'static str,
    remedy: &'static str,
}

/// What is in it is for its owner alone.
pub(super) const PRIVATE: Rule =
    Rule { forbidden: 0o077, broken: "others may touch it", remedy: "`chmod 600` keeps them off" };

/// What is in it is its owner's word, which all may know.
pub(super) const UNALTERED: Rule = Rule {
    forbidden: 0o022,
    broken: "others may write to it",
    remedy: "`chmod go-w` keeps them off",
};

/// At most `max` bytes of a regular file that belongs to this process's user or to root, and that others may not use
/// against the rule.
///
/// # Errors
/// `InvalidArgument` that names the file, what is wrong with it, and what would be right; `NoMemory` if this process has no
/// descriptor left.
pub(super) fn read(
    op: &'static str,
    path: &Path,
    rule: &Rule,
    max: usize,
) -> Result<Zeroizing<Vec<u8>>> {
    // A FIFO without a writer would be waited for.
    let mut options = File::options();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC).open(path);
    let file = file.map_err(|cause| {
        let text = format!("it cannot be read: {cause}");
        match Error::system(op, "fabric", cause) {
            full @ Error::NoMemory(_) => full,
            _ => invalid(op, path, &text),
        }
    })?;
    read_checked(file, rule, max).map_err(|why| invalid(op, path, &why))
}

/// What is wrong with a file.
pub(super) fn invalid(op: &'static str, path: &Path, why: &str) -> Error {
    Error::invalid(op, format!("{}: {why}", path.display()))
}

fn read_checked(file: File, rule: &Rule, max: usize) -> Result<Zeroizing<Vec<u8>>, String> {
    // Of what was opened, whatever the path leads to by now.
    check_file(&file.metadata().map_err(|error| error.to_string())?, rule)?;
    // All of it at once: memory that it grows out of would keep a copy.
    let mut bytes = Zeroizing::new(Vec::with_capacity(max));
    file.take(max as u64).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn check_file(file: &Metadata, rule: &Rule) -> Result<(), String> {
    // SAFETY: it only asks, and cannot fail (geteuid(2)).
    let user = unsafe { libc::geteuid() };
    if !file.is_file() {
        return Err("it is no regular file".to_owned());
    }
    if ![user, 0].contains(&file.uid()) {
        let owner = file.uid();
        return Err(format!(
            "it belongs to user {owner}; it has to belong to user {user} or to root"
        ));
    }
    let mode = file.mode() & 0o7777;
    if mode & rule.forbidden != 0 {
        return Err(format!("{} (mode {mode:04o}); {}", rule.broken, rule.remedy));
    }
    Ok(())
}
