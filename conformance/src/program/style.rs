//! Colours. Text has them always; `anstream` leaves them out where it goes to no terminal, or `NO_COLOR` is set.

use anstyle::AnsiColor;

const GOOD: anstyle::Style = AnsiColor::Green.on_default();
const BAD: anstyle::Style = AnsiColor::Red.on_default().bold();
const WARN: anstyle::Style = AnsiColor::Yellow.on_default();

pub(super) fn good(text: &str) -> String {
    paint(GOOD, text)
}

pub(super) fn bad(text: &str) -> String {
    paint(BAD, text)
}

pub(super) fn warn(text: &str) -> String {
    paint(WARN, text)
}

pub(super) fn faint(text: &str) -> String {
    paint(anstyle::Style::new().dimmed(), text)
}

pub(super) fn strong(text: &str) -> String {
    paint(anstyle::Style::new().bold(), text)
}

fn paint(style: anstyle::Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
