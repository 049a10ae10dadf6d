//! What the contract leaves open in a case, so that its transcript may differ from provider to provider.

use std::collections::BTreeMap;
use std::fmt;

/// What of a case's transcript may differ between providers, and why the contract allows it. Everything else is
/// compared. A case states as little as it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Freedom {
    /// Nothing: transcripts are equal.
    None,
    /// Lengths and numbers of operations, where providers declare these limits differently: as [`Counts`]
    /// then, equal if not. By the names of [`Limits::named`](fabric::Limits::named).
    ///
    /// [`Counts`]: Freedom::Counts
    Limits(&'static [&'static str]),
    /// How operations, connection attempts and connections end: statuses, lengths, immediates, errors, reasons. What
    /// ends, and in which order, is equal.
    Statuses(&'static str),
    /// How many operations, and their lengths: the same kinds of operations end in the same statuses. Events are equal.
    Counts(&'static str),
    /// All of it: the case itself checks what may happen.
    Whole(&'static str),
}

impl Freedom {
    /// Its name, as in reports; empty for none.
    pub const fn name(self) -> &'static str {
        match self {
            Freedom::None => "",
            Freedom::Limits(_) => "limits",
            Freedom::Statuses(_) => "statuses",
            Freedom::Counts(_) => "counts",
            Freedom::Whole(_) => "everything",
        }
    }

    /// Why the contract allows it; empty for none.
    pub fn why(self) -> String {
        match self {
            Freedom::None => String::new(),
            Freedom::Limits(names) => {
                format!("goes up to the declared limit of {}", names.join(" and "))
            }
            Freedom::Statuses(why) | Freedom::Counts(why) | Freedom::Whole(why) => why.to_owned(),
        }
    }

    /// What is left of it between two providers that declare this.
    pub(crate) fn between(
        self,
        one: &BTreeMap<String, u64>,
        two: &BTreeMap<String, u64>,
    ) -> Freedom {
        match self {
            Freedom::Limits(names) if names.iter().all(|name| one.get(*name) == two.get(*name)) => {
                Freedom::None
            }
            Freedom::Limits(_) => Freedom::Counts(""),
            other => other,
        }
    }
}

impl fmt::Display for Freedom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Freedom::None => f.write_str("nothing"),
            _ => write!(f, "{}: {}", self.name(), self.why()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_limits_leave_nothing_open() {
        let limits = |message: u64, inject: u64| {
            BTreeMap::from([("message".to_owned(), message), ("inject".to_owned(), inject)])
        };
        let free = Freedom::Limits(&["message"]);
        assert_eq!(free.between(&limits(8, 1), &limits(8, 2)), Freedom::None);
        assert!(matches!(free.between(&limits(8, 1), &limits(9, 1)), Freedom::Counts(_)));
        let whole = Freedom::Whole("so");
        assert_eq!(whole.between(&limits(1, 1), &limits(1, 1)), whole);
    }
}
