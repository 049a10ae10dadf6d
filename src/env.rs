//! The environment variables: their names, the library's own values, and a warning for misspelt ones. Those of providers
//! are applied in `catalog`. All are read once for each domain that is opened.

use std::collections::BTreeSet;
use std::time::Duration;

use fabric_core::{
    EndpointAttr, Error, Hints, IDENTITY_FILE, Identity, Result, SECRET_FILE, Secret, Security,
    TRUSTED_FILE, Variable,
};
use fabric_util::log_line;
use fabric_util::sync::Mutex;

use crate::choice::Choice;

/// Those that concern every provider.
pub(crate) const VARIABLES: [Variable; 8] = [
    Variable::new(
        PROVIDER,
        "which provider to use: names in order of preference (`verbs,tcp`), each with a device if \
                  wanted (`tcp:eth0`), or names to exclude (`^verbs`, `^shm`)",
        "auto: the best that satisfies the application's hints, joined with shared memory for the peers of this host",
    ),
    Variable::new(
        CONNECT_TIMEOUT,
        "default time for connecting and accepting, in milliseconds (1 to 3600000)",
        "5000",
    ),
    Variable::new(
        LIVENESS,
        "default liveness interval in seconds (1 to 3600): a dead peer host is noticed within \
                  three of these; 0 turns it off",
        "10",
    ),
    Variable::new(
        STALL,
        "default time in seconds (1 to 3600) after which a connection ends that has something under way and \
                  does not get on, though its peer lives: longer than any single operation takes; 0 turns it off",
        "0",
    ),
    Variable::new(
        SECURITY,
        "how much connections are to be protected, at least: `open`; `authenticated`, which takes a secret; or `encrypted`, \
                  which takes a secret or an identity",
        "what the application asks for",
    ),
    Variable::new(
        SECRET_FILE,
        "the file with the secret that both ends of every connection have: 32 to 64 bytes that only its owner may touch \
                  (`(umask 077; openssl rand -hex 32 >job.secret)`). Connections are authenticated then, or encrypted if FABRIC_SECURITY says so",
        "none; an application's own secret goes before",
    ),
    Variable::new(
        IDENTITY_FILE,
        "the file with this process's private key and its certificates (PEM), which only its owner may touch. Connections \
                  are encrypted then, and both ends prove who they are. FABRIC_TRUSTED_FILE has to be there, too",
        "none; an application's own identity goes before",
    ),
    Variable::new(
        TRUSTED_FILE,
        "the file with the certificates (PEM) of the authorities whose members are let in, which only its owner may write to",
        "none; it takes FABRIC_IDENTITY_FILE",
    ),
];

const PROVIDER: &str = "FABRIC_PROVIDER";
const CONNECT_TIMEOUT: &str = "FABRIC_CONNECT_TIMEOUT_MS";
const LIVENESS: &str = "FABRIC_LIVENESS_S";
const STALL: &str = "FABRIC_STALL_S";
const SECURITY: &str = "FABRIC_SECURITY";

/// The value of a variable of this process.
pub(crate) fn value(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// An error of the value of a variable.
pub(crate) fn bad(detail: String) -> Error {
    Error::invalid("read environment", detail)
}

/// An error of a file that a variable names.
fn of_file(name: &str, error: Error) -> Error {
    match error {
        Error::NoMemory(_) => error,
        error => bad(format!("{name}: {error}")),
    }
}

/// An error of a variable that takes another.
fn alone(name: &str, other: &str) -> Error {
    bad(format!("{name} is set and {other} is not: an identity takes both"))
}

/// What the library's own variables say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) choice: Choice,
    pub(crate) endpoint: EndpointAttr,
    pub(crate) security: Security,
    pub(crate) secret: Option<Secret>,
    pub(crate) identity: Option<Identity>,
}

impl Settings {
    pub(crate) fn from(get: impl Fn(&str) -> Option<String>) -> Result<Self> {
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
        if let Some(s) = number(&get, STALL, 0, 3600)? {
            settings.endpoint.stall = (s > 0).then(|| Duration::from_secs(s));
        }
        if let Some(value) = get(SECURITY) {
            settings.security = level(&value)?;
        }
        if let Some(path) = get(SECRET_FILE) {
            let secret = Secret::from_file(&path);
            settings.secret = Some(secret.map_err(|error| of_file(SECRET_FILE, error))?);
        }
        settings.identity = match (get(IDENTITY_FILE), get(TRUSTED_FILE)) {
            (None, None) => None,
            (Some(identity), Some(trusted)) => {
                let identity = Identity::from_files(identity, trusted);
                let names = format!("{IDENTITY_FILE} and {TRUSTED_FILE}");
                Some(identity.map_err(|error| of_file(&names, error))?)
            }
            (Some(_), None) => return Err(alone(IDENTITY_FILE, TRUSTED_FILE)),
            (None, Some(_)) => return Err(alone(TRUSTED_FILE, IDENTITY_FILE)),
        };
        Ok(settings)
    }

    /// The application's hints, with what the user wants of security: never less than the application, and its secret and its
    /// identity if it has them.
    pub(crate) fn secured(&self, hints: &Hints) -> Hints {
        let mut hints = hints.clone();
        hints.security = hints.security.max(self.security);
        hints.secret = hints.secret.or_else(|| self.secret.clone());
        hints.identity = hints.identity.or_else(|| self.identity.clone());
        hints
    }
}

/// Warns of variables that look like one of these and are none, once of each.
pub(crate) fn warn_of_mistakes(known: &[Variable]) {
    static WARNED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for (name, mistake) in mistakes(names, known) {
        let new = WARNED.lock().insert(name);
        if new {
            log_line!(Warn, "{mistake}");
        }
    }
}

/// The names that look like one of `known` and are none, and what to say of each.
fn mistakes(
    names: impl Iterator<Item = String>,
    known: &[Variable],
) -> impl Iterator<Item = (String, String)> {
    let is_known = |name: &str| known.iter().any(|known| known.name == name);
    let unknown = names.filter(move |name| name.starts_with("FABRIC_") && !is_known(name));
    // Other software has variables of this prefix, too: only what is near to one of ours is a mistake.
    unknown.filter_map(|name| {
        let distance = |known: &str| strsim::damerau_levenshtein(&name, known);
        let nearest = known.iter().map(|known| &*known.name).min_by_key(|known| distance(known))?;
        let text = format!(
            "the environment variable {name} is unknown and has no effect; did you mean {nearest}?"
        );
        (distance(nearest) <= 3).then_some((name, text))
    })
}

fn level(value: &str) -> Result<Security> {
    Security::parse(value.trim()).ok_or_else(|| {
        let levels = Security::ALL.map(|level| level.to_string()).join(", ");
        bad(format!("{SECURITY}={value:?} is none of: {levels}"))
    })
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
        _ => Err(bad(format!("{name}={value:?} is not a whole number in {min}..={max}"))),
    }
}

#[cfg(test)]
mod tests {
    use fabric_core::Setting;

    use super::*;

    fn with(name: &'static str, value: &'static str) -> Result<Settings> {
        Settings::from(|asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn numbers_are_checked() {
        let settings = with(CONNECT_TIMEOUT, "250").unwrap();
        assert_eq!(settings.endpoint.connect_timeout, Duration::from_millis(250));
        assert_eq!(with(LIVENESS, "0").unwrap().endpoint.liveness, None);
        let stall = |value| with(STALL, value).unwrap().endpoint.stall;
        assert_eq!((stall("0"), stall("7")), (None, Some(Duration::from_secs(7))));
        assert_eq!(with(LIVENESS, "7").unwrap().endpoint.stall, None, "off unless it is asked for");
        for bad in ["", "soon", "-1", "3600001"] {
            let text = with(CONNECT_TIMEOUT, bad).unwrap_err().to_string();
            assert!(text.contains(CONNECT_TIMEOUT) && text.contains("1..=3600000"), "{text}");
        }
    }

    #[test]
    fn the_environment_raises_security_and_never_lowers_it() {
        let secret = Secret::new(&[1; 32]).unwrap();
        let authenticated = Hints { security: Security::Authenticated, ..Hints::default() };
        let raised = with(SECURITY, "authenticated").unwrap().secured(&Hints::default());
        assert_eq!(raised.security, Security::Authenticated);
        let kept = with(SECURITY, "open").unwrap().secured(&authenticated);
        assert_eq!(kept.security, Security::Authenticated);
        let with_secret = Hints { secret: Some(secret.clone()), ..Hints::default() };
        let other = Secret::new(&[2; 32]).unwrap();
        let settings = Settings { secret: Some(other.clone()), ..Settings::default() };
        assert_eq!(settings.secured(&with_secret).secret, Some(secret), "the program's own");
        assert_eq!(settings.secured(&Hints::default()).secret, Some(other));
        let text = with(SECURITY, "some").unwrap_err().to_string();
        assert!(
            text.contains("FABRIC_SECURITY=\"some\"") && text.contains("authenticated"),
            "{text}"
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no files")]
    fn a_secret_file_that_is_none_is_named() {
        let text = with(SECRET_FILE, "/dev/null").unwrap_err().to_string();
        assert!(text.contains("FABRIC_SECRET_FILE") && text.contains("/dev/null"), "{text}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no files")]
    fn an_identity_takes_both_files() {
        for (is, is_not) in [(IDENTITY_FILE, TRUSTED_FILE), (TRUSTED_FILE, IDENTITY_FILE)] {
            let text = with(is, "node.pem").unwrap_err().to_string();
            assert!(text.contains(&format!("{is} is set and {is_not} is not")), "{text}");
        }
        let both = Settings::from(|asked| {
            [IDENTITY_FILE, TRUSTED_FILE].contains(&asked).then(|| "/dev/null".to_owned())
        });
        let text = both.unwrap_err().to_string();
        assert!(text.contains("FABRIC_IDENTITY_FILE") && text.contains("/dev/null"), "{text}");
    }

    #[test]
    fn a_programs_own_identity_goes_before() {
        let identity = |name: &str| {
            let [key, certificate] = ["PRIVATE KEY", "CERTIFICATE"]
                .map(|kind| format!("-----BEGIN {kind}-----\n{name}\n-----END {kind}-----\n"));
            let pem = key + &certificate;
            Some(Identity::from_pem(pem.as_bytes(), certificate.as_bytes()).unwrap())
        };
        let settings = Settings { identity: identity("AAAA"), ..Settings::default() };
        let own = Hints { identity: identity("BBBB"), ..Hints::default() };
        let key = |hints: &Hints| settings.secured(hints).identity.unwrap().key().to_vec();
        assert_eq!(key(&Hints::default()), [0; 3]);
        assert_eq!(key(&own), own.identity.as_ref().unwrap().key());
    }

    #[test]
    #[cfg_attr(miri, ignore = "no memory is touched")]
    fn misspelt_variables_are_named() {
        let mut known = VARIABLES.to_vec();
        known.push(Variable::of("tcp", &Setting::new("gather_us", "", "")));
        let mistakes = |name: &str| -> Vec<String> {
            mistakes(std::iter::once(name.to_owned()), &known).map(|mistake| mistake.1).collect()
        };
        for (wrong, right) in [
            ("FABRIC_PROVDER", PROVIDER),
            ("FABRIC_LIVENES", LIVENESS),
            ("FABRIC_TCP_GATER_US", "FABRIC_TCP_GATHER_US"),
        ] {
            let line = &mistakes(wrong)[0];
            assert!(line.contains(&format!("variable {wrong} is unknown")), "{line}");
            assert!(line.contains(&format!("did you mean {right}?")), "{line}");
        }
        // Right ones, other software's, and those of no concern.
        for name in [PROVIDER, "FABRIC_TCP_GATHER_US", "FABRIC_CFG_PATH", "FABRIC_", "PROVIDER"] {
            assert!(mistakes(name).is_empty(), "{name}");
        }
    }

    #[test]
    fn names_of_settings_are_in_upper_case() {
        let setting = Setting::new("pace_us", "", "");
        assert_eq!(Variable::of("shared-memory", &setting).name, "FABRIC_SHARED_MEMORY_PACE_US");
    }

    #[test]
    fn bad_choice_is_an_error() {
        assert!(with(PROVIDER, "tcp,,verbs").is_err());
    }
}
