//! What the rig of a case is made from.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::linkcontrol::LinkControl;
use crate::recorder::Recorder;
use crate::target::Target;
use crate::usage::Usage;
use crate::watch::Watch;

/// One for each case.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) target: Target,
    pub(crate) watch: Arc<Watch>,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) id: String,
    pub(crate) seed: u64,
    pub(crate) factor: f64,
    pub(crate) soak: bool,
    pub(crate) connect_timeout: Option<Duration>,
    pub(crate) lossy: bool,
    pub(crate) program: Option<PathBuf>,
    pub(crate) link: Option<LinkControl>,
    pub(crate) start: Option<Usage>,
}

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}, seed {}, factor {}", self.id, self.target, self.seed, self.factor)
    }
}
