//! Variables of the environment, by a function that looks them up, and the errors of their values.

use crate::error::{ExchangeError, Result};

/// Looks variables up.
pub(super) struct Variables<'a>(pub(super) &'a dyn Fn(&str) -> Option<String>);

/// A value, and the variable that it is from, with what that has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found<T> {
    pub(super) value: T,
    pub(super) from: String,
}

impl Variables<'_> {
    pub(super) fn is_set(&self, name: &str) -> bool {
        self.0(name).is_some()
    }

    /// A text that is not empty.
    pub(super) fn text(&self, name: &str) -> Result<Option<Found<String>>> {
        let Some(value) = self.0(name) else { return Ok(None) };
        let value = value.trim();
        if value.is_empty() {
            return Err(invalid(format!("{name} is set and empty: give it a value, or unset it")));
        }
        Ok(Some(Found { value: value.to_owned(), from: format!("{name}={value:?}") }))
    }

    /// A whole number of 0 to `max`.
    pub(super) fn number<T>(&self, name: &str, max: T) -> Result<Option<Found<T>>>
    where
        T: TryFrom<u64> + Into<u64> + Copy,
    {
        let Some(Found { value, from }) = self.text(name)? else { return Ok(None) };
        let max: u64 = max.into();
        let number = value.parse::<u64>().ok().filter(|number| *number <= max);
        match number.and_then(|number| T::try_from(number).ok()) {
            Some(value) => {
                Ok(Some(Found { value, from: format!("{name}={value}", value = value.into()) }))
            }
            None => Err(invalid(format!("{from} is not a whole number from 0 to {max}"))),
        }
    }
}

pub(super) fn invalid(text: String) -> ExchangeError {
    ExchangeError::Invalid(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked_and_named() {
        let lookup = |name: &str| match name {
            "GOOD" => Some(" 7\n".to_owned()),
            "EMPTY" => Some(" ".to_owned()),
            "TEXT" => Some("x\u{1b}".to_owned()),
            "NEGATIVE" => Some("-1".to_owned()),
            "LARGE" => Some("4294967296".to_owned()),
            _ => None,
        };
        let variables = Variables(&lookup);
        let number = |name| variables.number::<u32>(name, u32::MAX);
        assert_eq!(number("GOOD").unwrap().unwrap(), Found { value: 7, from: "GOOD=7".into() });
        assert_eq!(number("UNSET"), Ok(None));
        let text = |name| number(name).unwrap_err().to_string();
        assert_eq!(text("TEXT"), r#"TEXT="x\u{1b}" is not a whole number from 0 to 4294967295"#);
        assert!(text("NEGATIVE").contains("\"-1\"") && text("LARGE").contains("4294967296"));
        assert_eq!(text("EMPTY"), "EMPTY is set and empty: give it a value, or unset it");
        assert!(variables.is_set("EMPTY") && !variables.is_set("UNSET"));
    }
}
