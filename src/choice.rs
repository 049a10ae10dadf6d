//! Which provider to use, the value of `FABRIC_PROVIDER`, and which one that led to.

use std::fmt;

use fabric_core::{Error, Result};

/// The user's choice of provider, in the notation of `FABRIC_PROVIDER`.
///
/// | value | meaning |
/// |---|---|
/// | unset, empty or `auto` | the best that satisfies the hints: verbs before tcp, each joined with shared memory for the peers of this host |
/// | `tcp` | this one, or an error that says why not |
/// | `verbs,tcp` | in order of preference; passing one over is logged with the reason |
/// | `tcp:eth0` | this device of it |
/// | `auto:eth0` | this device, joined with shared memory |
/// | `^auto` | any, and none joined with shared memory |
/// | `^verbs` or `^verbs,shm` | any but these, and joined with none of these |
///
/// A name that no provider has is an error, also behind `^`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// No preference.
    #[default]
    Auto,
    /// One of these, in order of preference.
    Include(Vec<ProviderSpec>),
    /// None of these providers.
    Exclude(Vec<String>),
}

/// A provider by name, and one of its devices if that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderSpec {
    /// The provider.
    pub provider: String,
    /// The device.
    pub device: Option<String>,
}

impl Choice {
    /// Reads the notation.
    ///
    /// # Errors
    /// `InvalidArgument` that shows what could not be read.
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |why: &str| {
            Error::invalid(
                "choose provider",
                format!(
                    "FABRIC_PROVIDER={text:?}: {why}; write `tcp`, `verbs,tcp`, `tcp:eth0` or `^verbs`"
                ),
            )
        };
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed == "auto" {
            return Ok(Choice::Auto);
        }
        let (exclude, rest) = match trimmed.strip_prefix('^') {
            Some(rest) => (true, rest),
            None => (false, trimmed),
        };
        let mut named = Vec::new();
        for part in rest.split(',').map(str::trim) {
            let part = match part.strip_prefix('^') {
                Some(part) if exclude => part,
                Some(_) => return Err(bad("names to use and names to exclude do not mix")),
                None => part,
            };
            let (provider, device) = match part.split_once(':') {
                Some((_, "")) => return Err(bad("a device's name is missing after `:`")),
                Some((provider, device)) => (provider, Some(device.to_owned())),
                None => (part, None),
            };
            if provider.is_empty() {
                return Err(bad("a provider's name is missing"));
            }
            if exclude && device.is_some() {
                return Err(bad("only whole providers can be excluded"));
            }
            named.push(ProviderSpec { provider: provider.to_owned(), device });
        }
        Ok(if exclude {
            Choice::Exclude(named.into_iter().map(|n| n.provider).collect())
        } else {
            Choice::Include(named)
        })
    }

    /// This provider and no other.
    pub fn only(provider: impl Into<String>) -> Self {
        Choice::Include(vec![ProviderSpec { provider: provider.into(), device: None }])
    }

    /// Every provider name it contains.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Choice::Auto => Vec::new(),
            Choice::Include(named) => named.iter().map(|n| n.provider.as_str()).collect(),
            Choice::Exclude(names) => names.iter().map(String::as_str).collect(),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Choice::Auto => f.write_str("auto"),
            Choice::Include(named) => {
                let named: Vec<_> = named.iter().map(ProviderSpec::to_string).collect();
                f.write_str(&named.join(","))
            }
            Choice::Exclude(names) => write!(f, "^{}", names.join(",")),
        }
    }
}

impl fmt::Display for ProviderSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.device {
            Some(device) => write!(f, "{}:{device}", self.provider),
            None => f.write_str(&self.provider),
        }
    }
}

/// Which provider and device a domain runs on, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Selection {
    /// The provider.
    pub provider: &'static str,
    /// The device.
    pub device: String,
    /// The choice it follows: `auto`, or the value of `FABRIC_PROVIDER`.
    pub choice: Choice,
    /// What was preferred and passed over, each with the reason.
    pub passed_over: Vec<String>,
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chose {}:{} ({})", self.provider, self.device, self.choice)?;
        for reason in &self.passed_over {
            write!(f, "; not {reason}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notation() {
        let named = |provider: &str, device: Option<&str>| ProviderSpec {
            provider: provider.into(),
            device: device.map(Into::into),
        };
        let ok = |text: &str| Choice::parse(text).unwrap();
        assert_eq!(ok(""), Choice::Auto);
        assert_eq!(ok(" auto "), Choice::Auto);
        assert_eq!(ok("tcp"), Choice::only("tcp"));
        assert_eq!(
            ok("verbs:mlx5_0, tcp"),
            Choice::Include(vec![named("verbs", Some("mlx5_0")), named("tcp", None)])
        );
        assert_eq!(ok("^verbs,^udp"), ok("^verbs,udp"));
        assert_eq!(ok("^verbs"), Choice::Exclude(vec!["verbs".into()]));
        for bad in ["tcp,", ",tcp", "tcp,^verbs", "tcp:", ":eth0", "^", "^tcp:eth0"] {
            let text = Choice::parse(bad).unwrap_err().to_string();
            assert!(text.contains(&format!("{bad:?}")), "{text}");
        }
    }

    #[test]
    fn display_reads_back() {
        for text in ["auto", "tcp", "verbs:mlx5_0,tcp", "auto:eth0,tcp", "^auto", "^verbs,udp"] {
            assert_eq!(Choice::parse(text).unwrap().to_string(), text);
        }
    }
}
