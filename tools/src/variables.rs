//! `fabric info --env`.

use fabric::{Catalog, Variable};
use fabric_exchange::Launch;

use crate::report::{FAINT, HEAD};
use crate::table::{self, Cell};

/// The value of a variable, if it is set.
pub(crate) fn value(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Those of the library and its providers, then those of jobs.
pub(crate) fn all() -> impl Iterator<Item = Variable> {
    Catalog::builtin().variables().into_iter().chain(Launch::VARIABLES)
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
