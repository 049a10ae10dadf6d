//! Names of operations and providers that another process has sent.
//!
//! In this library such names live for ever, so those of others have to: few and short ones, so that no peer can fill the
//! memory with them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Deserializer};

/// The name, or `"remote"` if there are too many of others, or it is too long.
///
/// # Errors
/// If there is no string.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
    static NAMES: Mutex<Names> = Mutex::new(Names(BTreeSet::new()));
    let name = String::deserialize(from)?;
    // A set is whole between statements.
    Ok(NAMES.lock().unwrap_or_else(PoisonError::into_inner).keep(&name))
}

struct Names(BTreeSet<&'static str>);

impl Names {
    const MAX_COUNT: usize = 256;
    const MAX_LEN: usize = 64;

    fn keep(&mut self, name: &str) -> &'static str {
        if let Some(known) = self.0.get(name) {
            return known;
        }
        if self.0.len() == Self::MAX_COUNT || name.len() > Self::MAX_LEN {
            return "remote";
        }
        let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
        self.0.insert(name);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "what a table of its own keeps is leaked on purpose")]
    fn names_of_others_are_bounded() {
        let mut names = Names(BTreeSet::new());
        assert_eq!(names.keep("connect"), "connect");
        assert_eq!(names.keep(&"x".repeat(Names::MAX_LEN + 1)), "remote");
        for i in 0..1000 {
            names.keep(&format!("name {i}"));
        }
        assert_eq!(names.0.len(), Names::MAX_COUNT);
        assert_eq!((names.keep("one more"), names.keep("connect")), ("remote", "connect"));
    }
}
