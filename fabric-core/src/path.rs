//! Which way a connection goes.

use std::fmt;

use crate::error::Name;
use crate::info::{Capabilities, Info};

/// Which way a connection goes: by which provider and device, and why by no other.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Path {
    /// The provider that carries it.
    #[cfg_attr(feature = "serde", serde(deserialize_with = "crate::names::deserialize"))]
    pub provider: Name,
    /// The device of that.
    pub device: String,
    /// What the connection can do: what the domain declares of connections, and maybe more.
    pub capabilities: Capabilities,
    /// The other ways that the domain has, each with the reason why not.
    pub passed_over: Vec<String>,
}

impl Path {
    /// By this device, without another way to choose from.
    pub fn new(info: &Info) -> Self {
        let Info { provider, capabilities, .. } = *info;
        // Datagrams go by no connection.
        let capabilities = capabilities - Capabilities::DATAGRAMS;
        Path { provider, device: info.device.clone(), capabilities, passed_over: Vec::new() }
    }

    /// The same, and not by `other`, for this reason.
    pub fn and_not(mut self, other: &str, reason: impl fmt::Display) -> Self {
        self.passed_over.push(format!("{other}: {reason}"));
        self
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "by {}:{}", self.provider, self.device)?;
        for reason in &self.passed_over {
            write!(f, "; not {reason}")?;
        }
        Ok(())
    }
}
