//! The link between two hosts, which only the user can break.

use std::process::Command;

use crate::check::{Failed, Outcome};

/// Commands, for `sh`, that break and mend the link between the two hosts of a run. What they do is the user's matter:
/// `tc`, `ip link`, or a word to a switch. The way to the server of the other host ([`Peer`](crate::Peer)) must not be cut
/// with it: by that its end is asked what it knows while the link is silent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkControl {
    /// Cuts it: nothing comes through.
    pub cut: String,
    /// Makes it lose some packets.
    pub impair: Option<String>,
    /// Makes it as it was.
    pub mend: String,
}

/// A link that is cut or impaired; it is mended when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct BrokenLink<'a> {
    control: &'a LinkControl,
    mended: bool,
}

impl LinkControl {
    #[track_caller]
    pub(crate) fn cut(&self) -> Result<BrokenLink<'_>, Failed> {
        self.broken(&self.cut)
    }

    #[track_caller]
    pub(crate) fn impair(&self) -> Result<BrokenLink<'_>, Failed> {
        match &self.impair {
            Some(impair) => self.broken(impair),
            None => Err(Failed::new("a command that impairs the link", "none was given")),
        }
    }

    #[track_caller]
    fn broken(&self, command: &str) -> Result<BrokenLink<'_>, Failed> {
        // Made first: half a cut is mended too.
        let link = BrokenLink { control: self, mended: false };
        run(command)?;
        Ok(link)
    }
}

impl BrokenLink<'_> {
    /// Mends it.
    ///
    /// # Errors
    /// If the command fails.
    #[track_caller]
    pub fn mend(mut self) -> Outcome {
        self.mended = true;
        run(&self.control.mend)
    }
}

impl Drop for BrokenLink<'_> {
    fn drop(&mut self) {
        if !self.mended {
            // The case has failed already, and says why.
            let _ = run(&self.control.mend);
        }
    }
}

#[track_caller]
fn run(command: &str) -> Outcome {
    let done = Command::new("sh").arg("-c").arg(command).output()?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(Failed::new(format!("`{command}` to succeed"), format!("{}: {said}", done.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_broken_is_mended() {
        let file = std::env::temp_dir().join(format!("fabric-link-{}", std::process::id()));
        let path = file.display();
        let control = LinkControl {
            cut: format!("touch {path}"),
            impair: Some("echo no such link >&2; false".to_owned()),
            mend: format!("rm {path}"),
        };
        let cut = control.cut().unwrap();
        assert!(file.exists());
        cut.mend().unwrap();
        assert!(!file.exists());
        drop(control.cut().unwrap());
        assert!(!file.exists());
        let failed = control.impair().unwrap_err();
        assert!(failed.seen().contains("no such link"), "{failed}");
    }
}
