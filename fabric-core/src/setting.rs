//! Settings that a provider has of its own: their description, and the errors of a bad name or value.

use std::ops::RangeInclusive;

use crate::error::{Error, Failure, Result};

/// A setting of one provider, for what does not concern the others.
///
/// The handles read it from the environment variable `FABRIC_<PROVIDER>_<NAME>`, in upper case: `gather_us` of `tcp` is
/// `FABRIC_TCP_GATHER_US`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setting {
    /// Its name: lower snake case, unique in its provider; the unit, if there is one, is the last word.
    pub name: &'static str,
    /// What it does, and the values it takes, with units and limits.
    pub meaning: &'static str,
    /// What holds when it is not set.
    pub default: &'static str,
}

impl Setting {
    /// A setting with all that users need to know of it.
    pub const fn new(name: &'static str, meaning: &'static str, default: &'static str) -> Self {
        Setting { name, meaning, default }
    }
}

/// The error for a name that is none of the provider's settings; it names those that there are.
#[cold]
pub fn unknown(provider: &'static str, name: &str, settings: &[Setting]) -> Error {
    let names: Vec<_> = settings.iter().map(|setting| setting.name).collect();
    let there_are = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    let text = format!("there is no setting {name:?} (there are: {there_are})");
    Error::InvalidArgument(Failure::new("configure", text).of(provider))
}

/// Reads a setting's value that is a whole number; the error names the setting, the value, and the range.
pub fn number(name: &str, value: &str, range: RangeInclusive<u64>) -> Result<u64> {
    match value.trim().parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => {
            let text = format!("{name}={value:?} is not a whole number in {range:?}");
            Err(Error::invalid("configure", text))
        }
    }
}

/// Reads a setting's value that is one of a few words; the error names the setting, the value, and the words.
pub fn choice<T: Copy>(name: &str, value: &str, words: &[(&str, T)]) -> Result<T> {
    let found = words.iter().find(|(word, _)| *word == value.trim());
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let text = format!("{name}={value:?} is none of: {}", words.join(", "));
        Error::invalid("configure", text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_gets_those_that_there_are() {
        let settings = [Setting::new("pace_us", "", ""), Setting::new("depth", "", "")];
        let text = unknown("null", "pace", &settings).to_string();
        assert!(text.contains(r#"no setting "pace" (there are: pace_us, depth) [null]"#), "{text}");
        assert!(unknown("null", "pace", &[]).to_string().contains("(there are: none)"));
    }

    #[test]
    fn words_are_checked() {
        let words = [("all", 1), ("none", 0)];
        assert_eq!(choice("share", " none ", &words).unwrap(), 0);
        for bad in ["", "al", "ALL", "all,none"] {
            let text = choice("share", bad, &words).unwrap_err().to_string();
            let right = format!("share={bad:?} is none of: all, none");
            assert!(text.contains(&right), "{text}");
        }
    }

    #[test]
    fn numbers_are_checked() {
        assert_eq!(number("depth", " 8 ", 1..=8).unwrap(), 8);
        for bad in ["", "soon", "-1", "9", "0"] {
            let text = number("depth", bad, 1..=8).unwrap_err().to_string();
            let right = format!("depth={bad:?} is not a whole number in 1..=8");
            assert!(text.contains(&right), "{text}");
        }
    }
}
