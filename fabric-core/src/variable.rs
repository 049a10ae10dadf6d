//! Environment variables: their description.

use std::borrow::Cow;

use crate::setting::Setting;

/// An environment variable that this library, or one of its providers, reads.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Variable {
    /// Its name.
    pub name: Cow<'static, str>,
    /// What it does, and the values it takes.
    pub meaning: &'static str,
    /// What holds when it is not set.
    pub default: &'static str,
}

impl Variable {
    /// A variable with all that users need to know of it.
    pub const fn new(name: &'static str, meaning: &'static str, default: &'static str) -> Self {
        Variable { name: Cow::Borrowed(name), meaning, default }
    }

    /// The one that sets `setting` of `provider`.
    pub fn of(provider: &str, setting: &Setting) -> Self {
        let word =
            |text: &str| text.to_ascii_uppercase().replace(|c| !char::is_alphanumeric(c), "_");
        let name = format!("FABRIC_{}_{}", word(provider), word(setting.name));
        Variable { name: name.into(), meaning: setting.meaning, default: setting.default }
    }
}
