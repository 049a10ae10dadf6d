//! The open domains that programs run on, and what is wrong if one disagrees with the contract.

use std::net::IpAddr;
use std::time::Duration;

use fabric::{Capabilities, Domain};

use super::program::DOMAINS;
use crate::check::Failed;
use crate::target::Target;

/// How long anything that should happen may take, before scaling.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the contract and a run differ.
#[derive(Clone, Debug)]
pub struct Disagreement {
    /// What was expected, and seen.
    pub failed: Failed,
    /// What the program did until then.
    pub trace: Vec<String>,
}

impl std::fmt::Display for Disagreement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.trace.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        write!(f, "{}", self.failed)
    }
}

/// Open domains of one device, for one program after the other.
#[derive(Debug)]
pub struct Bench {
    pub(super) domains: Vec<Domain>,
    pub(super) ip: IpAddr,
    pub(super) unique_keys: bool,
    pub(super) shared_receives: bool,
    factor: f64,
}

impl Bench {
    /// Opens the device. Deadlines are stretched by `factor`.
    ///
    /// # Errors
    /// If the provider refuses.
    pub(super) fn new(target: &Target, factor: f64) -> fabric::Result<Self> {
        let domains = (0..DOMAINS).map(|_| target.open()).collect::<fabric::Result<_>>()?;
        let has = |capability| target.info().capabilities.contains(capability);
        let unique_keys = has(Capabilities::UNIQUE_KEYS);
        let shared_receives = has(Capabilities::SHARED_RECEIVES);
        Ok(Bench { domains, ip: target.ip(), unique_keys, shared_receives, factor })
    }

    /// How long anything that should happen may take here.
    pub(super) fn timeout(&self) -> Duration {
        self.scaled(DEFAULT_TIMEOUT)
    }

    pub(super) fn scaled(&self, time: Duration) -> Duration {
        time.mul_f64(self.factor)
    }

    /// `time`, as failures name it.
    pub(super) fn stretched(&self, time: Duration) -> String {
        format!("{time:?}, stretched {}", self.factor)
    }

    /// The failure of what did not come in time.
    pub(super) fn nothing_came(&self, expected: &str) -> Failed {
        let within = self.stretched(DEFAULT_TIMEOUT);
        Failed::new(format!("{expected} within {within}"), "nothing came")
    }
}
