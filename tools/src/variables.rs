//! `fabric info --env`.

use std::borrow::Cow;

use fabric::Catalog;
use fabric_exchange::Launch;

use crate::report::{FAINT, HEAD};
use crate::table::{self, Cell};

/// The value of a variable, if it is set.
pub(crate) fn value(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// A variable: its name, what it means, and what holds without it.
pub(crate) struct Described {
    pub(crate) name: Cow<'static, str>,
    pub(crate) meaning: &'static str,
    pub(crate) default: &'static str,
}

/// Those of the library and its providers, then those of jobs.
pub(crate) fn all() -> impl Iterator<Item = Described> {
    let library = Catalog::builtin().variables().into_iter().map(|of| Described {
        name: of.name,
        meaning: of.meaning,
        default: of.default,
    });
    library.chain(Launch::VARIABLES.map(|of| Described {
        name: of.name.into(),
        meaning: of.meaning,
        default: of.default,
    }))
}

/// Every variable with meaning, default and present value.
pub(crate) fn report(width: usize) -> String {
    let mut out = String::new();
    for variable in all() {
        if !out.is_empty() {
            out.push('\n');
        }
        table::rows(&mut out, 0, width, &[vec![Cell::styled(&*variable.name, HEAD)]]);
        let value = value(&variable.name);
        let value = value.map_or_else(|| Cell::styled("not set", FAINT), Cell::from);
        let rows = [
            vec!["meaning".into(), variable.meaning.into()],
            vec!["default".into(), variable.default.into()],
            vec!["value".into(), value],
        ];
        table::rows(&mut out, 2, width, &rows);
    }
    out
}
