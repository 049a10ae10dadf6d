//! Colours, where they are wanted.

use std::io::IsTerminal;

/// How to colour text; plain unless it goes to a terminal and `NO_COLOR` (<https://no-color.org>) is unset.
pub(super) struct Style {
    coloured: bool,
}

impl Style {
    /// No colours.
    pub(super) fn plain() -> Self {
        Style { coloured: false }
    }

    /// As suits where the text goes.
    pub(super) fn of(output: &impl IsTerminal) -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Style { coloured: output.is_terminal() && !refused }
    }

    pub(super) fn good(&self, text: &str) -> String {
        self.paint("32", text)
    }

    pub(super) fn bad(&self, text: &str) -> String {
        self.paint("1;31", text)
    }

    pub(super) fn warn(&self, text: &str) -> String {
        self.paint("33", text)
    }

    pub(super) fn faint(&self, text: &str) -> String {
        self.paint("2", text)
    }

    pub(super) fn strong(&self, text: &str) -> String {
        self.paint("1", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
