//! What the server and the honest client prove themselves by, and the strangers' own, which prove nothing to the server.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use clap::ValueEnum;
use fabric::{Hints, Identity, Secret};

use crate::Outcome;
use crate::authority::Authority;

/// By what an end proves itself.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A secret; connections are authenticated.
    Secret,
    /// An identity; connections are encrypted.
    Identity,
}

/// Files of both sides, in a folder that goes with this.
pub(crate) struct Credentials {
    kind: Kind,
    folder: PathBuf,
}

/// The names of the files of one end.
type Names = &'static [(&'static str, &'static str)];

impl Credentials {
    pub(crate) fn new(kind: Kind) -> Outcome<Self> {
        let folder = std::env::temp_dir().join(format!("strangers-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&folder)?;
        let credentials = Credentials { kind, folder };
        let (here, elsewhere) = (Authority::new()?, Authority::new()?);
        for (name, text) in [
            ("secret", &"7".repeat(32)),
            ("other.secret", &"8".repeat(32)),
            ("member.pem", &here.certify("member")?),
            ("stranger.pem", &elsewhere.certify("stranger")?),
            ("trusted.pem", &here.certificate().to_owned()),
        ] {
            let mut open = OpenOptions::new();
            let path = credentials.folder.join(name);
            open.write(true).create_new(true).mode(0o600).open(path)?.write_all(text.as_bytes())?;
        }
        Ok(credentials)
    }

    fn files(&self, names: Names) -> Vec<(&'static str, PathBuf)> {
        names.iter().map(|(variable, name)| (*variable, self.folder.join(name))).collect()
    }

    /// The environment of the server.
    pub(crate) fn of_server(&self) -> Vec<(&'static str, PathBuf)> {
        self.files(match self.kind {
            Kind::Secret => &[("FABRIC_SECRET_FILE", "secret")],
            Kind::Identity => {
                &[("FABRIC_IDENTITY_FILE", "member.pem"), ("FABRIC_TRUSTED_FILE", "trusted.pem")]
            }
        })
    }

    /// The environment of strangers, which trust the server, and so go as far as they can.
    pub(crate) fn of_strangers(&self) -> Vec<(&'static str, PathBuf)> {
        self.files(match self.kind {
            Kind::Secret => &[("FABRIC_SECRET_FILE", "other.secret")],
            Kind::Identity => {
                &[("FABRIC_IDENTITY_FILE", "stranger.pem"), ("FABRIC_TRUSTED_FILE", "trusted.pem")]
            }
        })
    }

    /// What the honest client asks for.
    pub(crate) fn hints(&self) -> Outcome<Hints> {
        let path = |name| self.folder.join(name);
        let (secret, identity) = match self.kind {
            Kind::Secret => (Some(Secret::from_file(path("secret"))?), None),
            Kind::Identity => {
                let identity = Identity::from_files(path("member.pem"), path("trusted.pem"))?;
                (None, Some(identity))
            }
        };
        Ok(Hints { secret, identity, ..Hints::default() })
    }
}

impl Drop for Credentials {
    fn drop(&mut self) {
        // Nothing of it is of use to anyone.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
