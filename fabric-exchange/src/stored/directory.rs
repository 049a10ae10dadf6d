//! A directory as a store, which hosts may have in common: values are files that appear as a whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, OFlags, RenameFlags};

use super::names::name_of;
use super::store::Store;
use crate::error::{ExchangeError, Result};
use crate::job::Job;
use crate::random::random;

/// What is being written begins with this, and is seen by no reader.
const UNFINISHED: &str = ".new-";

/// The directory of one incarnation of a job.
pub(crate) struct Directory {
    root: PathBuf,
    own: PathBuf,
}

impl Directory {
    /// Within `root`, which has to be there.
    pub(crate) fn open(root: &Path, job: &Job) -> Result<Self> {
        if !root.is_dir() {
            let root = root.display();
            return Err(ExchangeError::Unreachable(format!(
                "{root} is no directory that this process can reach: create it, on a file system that all processes of the job see"
            )));
        }
        let own = root.join(format!("{}.{}", name_of(job.name()), job.incarnation()));
        Ok(Directory { root: root.to_owned(), own })
    }

    /// Creates it if this is its first value.
    fn folder(&self, folder: &str) -> Result<PathBuf> {
        let path = self.own.join(folder);
        match fs::create_dir_all(&path) {
            Ok(()) => Ok(path),
            Err(error) => Err(ExchangeError::of_path("create", &path, &error)),
        }
    }

    fn random_name(prefix: &str) -> Result<String> {
        let number = random()?;
        let digits: String = number.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("{prefix}{digits}"))
    }
}

impl Store for Directory {
    fn create(&self, folder: &str, name: &str, value: &[u8]) -> Result<bool> {
        let folder = self.folder(folder)?;
        let (unfinished, path) = (folder.join(Self::random_name(UNFINISHED)?), folder.join(name));
        let created = write_new(&unfinished, value).and_then(|()| publish(&unfinished, &path));
        // After a rename it is not there any more.
        let _ = fs::remove_file(&unfinished);
        created.map_err(|error| ExchangeError::of_path("write", &path, &error))
    }

    fn read(&self, folder: &str, name: &str, max: usize) -> Result<Option<Vec<u8>>> {
        let folder = self.own.join(folder);
        let path = folder.join(name);
        let value = read_regular(&path, max).or_else(|error| match is_absent(&error) {
            true => {
                look_again(&self.own, &folder);
                read_regular(&path, max)
            }
            false => Err(error),
        });
        match value {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(ExchangeError::of_path("read", &path, &error)),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        let path = self.own.join(folder);
        let entries = match fs::read_dir(&path) {
            Err(error) if is_absent(&error) => return Ok(Vec::new()),
            entries => entries.map_err(|error| ExchangeError::of_path("list", &path, &error))?,
        };
        let mut names = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => names.extend(entry.file_name().into_string().ok()),
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(ExchangeError::of_path("list", &path, &error)),
            }
        }
        names.retain(|name| !name.starts_with('.'));
        Ok(names)
    }

    fn count(&self, folder: &str) -> Result<usize> {
        Ok(self.list(folder)?.len())
    }

    fn remove(&self, folder: &str, name: &str) -> Result<()> {
        let path = self.own.join(folder).join(name);
        match fs::remove_file(&path) {
            Err(error) if !is_absent(&error) => {
                Err(ExchangeError::of_path("remove", &path, &error))
            }
            _ => Ok(()),
        }
    }

    fn remove_folder(&self, folder: &str) -> Result<()> {
        remove_tree(&self.own.join(folder))
    }

    fn remove_all(&self) -> Result<()> {
        // Away at once, so that no process finds a part of it.
        let away = self.root.join(Self::random_name(".gone-")?);
        match fs::rename(&self.own, &away) {
            Ok(()) => remove_tree(&away),
            // Another rank that left last does it.
            Err(error) if is_absent(&error) => Ok(()),
            Err(error) => Err(ExchangeError::of_path("remove", &self.own, &error)),
        }
    }

    /// A directory knows of no processes.
    const ALIVE: Option<&'static str> = None;
}

/// Whether it is not there, or was removed while it was open.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::StaleNetworkFileHandle)
}

/// A host remembers of NFS that a file was not there. Opening a directory asks the server whether it has changed since
/// (close-to-open consistency); what was remembered of it counts no more if it has.
fn look_again(own: &Path, folder: &Path) {
    for path in [own, folder] {
        let _ = fs::read_dir(path);
    }
}

fn remove_tree(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if !is_absent(&error) => Err(ExchangeError::of_path("remove", path, &error)),
        _ => Ok(()),
    }
}

/// Writes a file to the end, and to its server.
fn write_new(path: &Path, value: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(value)?;
    file.sync_all()
}

/// Gives a complete file its name, unless there is one of that name.
fn publish(unfinished: &Path, path: &Path) -> io::Result<bool> {
    match fs::hard_link(unfinished, path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        // File systems without links.
        Err(error)
            if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) =>
        {
            rename_new(unfinished, path)
        }
        linked => linked.map(|()| true),
    }
}

fn rename_new(unfinished: &Path, path: &Path) -> io::Result<bool> {
    match rustix::fs::renameat_with(CWD, unfinished, CWD, path, RenameFlags::NOREPLACE) {
        Err(rustix::io::Errno::EXIST) => Ok(false),
        renamed => Ok(renamed.map(|()| true)?),
    }
}

/// Reads a file of at most so many bytes. What is no regular file, such as a pipe, is not waited for.
fn read_regular(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidData, "it is no regular file"));
    }
    let mut value = Vec::new();
    file.take(max as u64 + 1).read_to_end(&mut value)?;
    if value.len() > max {
        let text = format!("it has more than {max} bytes");
        return Err(io::Error::new(ErrorKind::InvalidData, text));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> (tempfile::TempDir, Directory) {
        let root = tempfile::tempdir().unwrap();
        let directory = Directory::open(root.path(), &Job::new("a/../b", 3, 1).unwrap()).unwrap();
        (root, directory)
    }

    #[test]
    fn a_value_is_written_once_and_as_a_whole() {
        let (root, store) = directory();
        assert_eq!(store.read("keys", "a", 9), Ok(None));
        assert_eq!(store.create("keys", "a", b"first"), Ok(true));
        assert_eq!(store.create("keys", "a", b"second"), Ok(false));
        assert_eq!(store.read("keys", "a", 5), Ok(Some(b"first".to_vec())));
        assert!(store.read("keys", "a", 4).is_err());
        // What another process is writing is not seen.
        fs::write(store.own.join("keys/.new-1"), b"half").unwrap();
        assert_eq!(store.list("keys"), Ok(vec!["a".to_owned()]));
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "within the root");
    }

    #[test]
    fn a_rename_replaces_nothing() {
        let (root, _) = directory();
        let [from, other, to] = ["from", "other", "to"].map(|name| root.path().join(name));
        fs::write(&from, b"first").unwrap();
        fs::write(&other, b"second").unwrap();
        assert!(rename_new(&from, &to).unwrap());
        assert!(!rename_new(&other, &to).unwrap());
        assert_eq!(fs::read(&to).unwrap(), b"first");
    }

    #[test]
    fn what_is_no_file_is_an_error_and_not_waited_for() {
        let (root, store) = directory();
        store.create("keys", "a", b"x").unwrap();
        let fifo = store.own.join("keys/pipe");
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let text = store.read("keys", "pipe", 9).unwrap_err().to_string();
        assert!(text.contains("no regular file"), "{text}");
        std::os::unix::fs::symlink(root.path().join("elsewhere"), store.own.join("keys/link"))
            .unwrap();
        assert!(store.read("keys", "link", 9).is_err());
    }

    #[test]
    fn all_of_it_is_removed() {
        let (root, store) = directory();
        store.create("keys", "a", b"x").unwrap();
        store.create("gates", "0", b"x").unwrap();
        store.remove("keys", "a").unwrap();
        store.remove("keys", "a").unwrap();
        store.remove_folder("gates").unwrap();
        assert_eq!((store.list("keys"), store.list("gates")), (Ok(vec![]), Ok(vec![])));
        store.remove_all().unwrap();
        store.remove_all().unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
        let missing = root.path().join("missing");
        let text = Directory::open(&missing, &Job::new("a", 0, 1).unwrap()).err().unwrap();
        assert!(text.to_string().contains("create it"), "{text}");
    }
}
