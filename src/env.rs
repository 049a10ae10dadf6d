//! The environment variables, all of them: parsed here, once for each domain that is opened.

use std::sync::Once;
use std::time::Duration;

use fabric_core::{EndpointAttr, Error, Result};
use fabric_util::log_line;

use crate::choice::Choice;

/// An environment variable that this library reads.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it does, and the values it takes.
    pub meaning: &'static str,
    /// What holds when it is not set.
    pub default: &'static str,
}

/// Every environment variable that this library reads.
pub const VARIABLES: &[Variable] = &[
    Variable {
        name: PROVIDER,
        meaning: "which provider to use: names in order of preference (`verbs,tcp`), each with a device if \
                  wanted (`tcp:eth0`), or names to exclude (`^verbs`)",
        default: "auto: the best that satisfies the application's hints",
    },
    Variable {
        name: CONNECT_TIMEOUT,
        meaning: "default time for connecting and accepting, in milliseconds (1 to 3600000)",
        default: "5000",
    },
    Variable {
        name: LIVENESS,
        meaning: "default liveness interval in seconds (1 to 3600): a dead peer host is noticed within \
                  three of these; 0 turns it off",
        default: "10",
    },
    Variable {
        name: GATHER,
        meaning: "TCP: how long a post may wait for the application's next poll, in microseconds (0 to 1000), while \
                  earlier ones are unacknowledged, so that many go in one system call; 0 writes each at once",
        default: "50",
    },
    Variable {
        name: ADVERSARY,
        meaning: "for tests: TCP takes every liberty that the contract leaves (cuts, delays, odd orders), as \
                  this seed says (a whole number)",
        default: "none: TCP does its best",
    },
];

const PROVIDER: &str = "FABRIC_PROVIDER";
const CONNECT_TIMEOUT: &str = "FABRIC_CONNECT_TIMEOUT_MS";
const LIVENESS: &str = "FABRIC_LIVENESS_S";
const GATHER: &str = "FABRIC_TCP_GATHER_US";
const ADVERSARY: &str = "FABRIC_TCP_ADVERSARY";

/// What the environment says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) choice: Choice,
    pub(crate) endpoint: EndpointAttr,
    pub(crate) tcp: Tcp,
}

/// What it says for TCP.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(feature = "tcp"), allow(dead_code))]
pub(crate) struct Tcp {
    pub(crate) gather: Option<Duration>,
    pub(crate) adversary: Option<u64>,
}

impl Settings {
    pub(crate) fn from_env() -> Result<Self> {
        static LOOKED: Once = Once::new();
        LOOKED.call_once(|| {
            let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
            for mistake in mistakes(names) {
                log_line!(Warn, "{mistake}");
            }
        });
        Self::from(|name| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()))
    }

    fn from(get: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let mut settings = Settings::default();
        if let Some(value) = get(PROVIDER) {
            settings.choice = Choice::parse(&value)?;
        }
        if let Some(ms) = number(&get, CONNECT_TIMEOUT, 1, 3_600_000)? {
            settings.endpoint.connect_timeout = Duration::from_millis(ms);
        }
        if let Some(s) = number(&get, LIVENESS, 0, 3600)? {
            settings.endpoint.liveness = (s > 0).then(|| Duration::from_secs(s));
        }
        settings.tcp.gather = number(&get, GATHER, 0, 1000)?.map(Duration::from_micros);
        settings.tcp.adversary = number(&get, ADVERSARY, 0, u64::MAX)?;
        Ok(settings)
    }
}

/// What to say of variables that look like one of this library's and are none.
fn mistakes(names: impl Iterator<Item = String>) -> Vec<String> {
    let is_known = |name: &str| VARIABLES.iter().any(|known| known.name == name);
    let unknown = names.filter(|name| name.starts_with("FABRIC_") && !is_known(name));
    // Other software has variables of this prefix, too: only what is near to one of ours is a mistake.
    let text = |name: String| {
        let known = VARIABLES.iter().map(|known| known.name);
        let nearest = known.min_by_key(|known| strsim::damerau_levenshtein(&name, known))?;
        let distance = strsim::damerau_levenshtein(&name, nearest);
        (distance <= 3).then(|| {
            format!("the environment variable {name} is unknown and has no effect; did you mean {nearest}?")
        })
    };
    unknown.filter_map(text).collect()
}

fn number(
    get: &impl Fn(&str) -> Option<String>,
    name: &str,
    min: u64,
    max: u64,
) -> Result<Option<u64>> {
    let Some(value) = get(name) else { return Ok(None) };
    match value.trim().parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(Some(number)),
        _ => Err(Error::invalid(
            "read environment",
            format!("{name}={value:?} is not a whole number in {min}..={max}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> Result<Settings> {
        Settings::from(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn numbers_are_checked() {
        let settings = with(CONNECT_TIMEOUT, "250").unwrap();
        assert_eq!(settings.endpoint.connect_timeout, Duration::from_millis(250));
        assert_eq!(with(LIVENESS, "0").unwrap().endpoint.liveness, None);
        assert_eq!(with(ADVERSARY, "7").unwrap().tcp.adversary, Some(7));
        assert_eq!(with(GATHER, "0").unwrap().tcp.gather, Some(Duration::ZERO));
        assert!(with(GATHER, "1001").is_err());
        for bad in ["", "soon", "-1", "3600001"] {
            let text = with(CONNECT_TIMEOUT, bad).unwrap_err().to_string();
            assert!(text.contains(CONNECT_TIMEOUT) && text.contains("1..=3600000"), "{text}");
        }
    }

    #[test]
    fn misspelt_variables_are_named() {
        let mistakes = |name: &str| mistakes(std::iter::once(name.to_owned()));
        let lines = mistakes("FABRIC_PROVDER");
        assert!(
            lines[0].contains("FABRIC_PROVDER")
                && lines[0].contains("did you mean FABRIC_PROVIDER?")
        );
        assert_eq!(mistakes("FABRIC_LIVENES").len(), 1);
        // Right ones, other software's, and those of no concern.
        for name in [PROVIDER, ADVERSARY, "FABRIC_CFG_PATH", "FABRIC_", "PROVIDER"] {
            assert!(mistakes(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn bad_choice_is_an_error() {
        assert!(with(PROVIDER, "tcp,,verbs").is_err());
    }
}
