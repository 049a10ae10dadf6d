//! Tables as text: columns as wide as their widest cell, the last one wrapped to the terminal.
//!
//! A few dozen lines do for what is needed here; the table crates bring borders, and their dependencies.

use std::fmt::Write;

use anstyle::Style;

/// A piece of a row.
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Self {
        Cell { text: text.into(), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell::styled(text, Style::new())
    }
}

/// The last column gets at least so much, however narrow the terminal.
const MIN_WIDTH: usize = 24;
const GAP: usize = 2;

/// Writes rows, each indented by `indent`; `width` is that of the terminal.
pub(crate) fn rows(out: &mut String, indent: usize, width: usize, rows: &[Vec<Cell>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| widest(column).unwrap_or(0)).collect();
    let fixed: usize = widths.iter().rev().skip(1).map(|width| width + GAP).sum();
    let room = width.saturating_sub(indent + fixed).max(MIN_WIDTH);
    for row in rows {
        let mut line = " ".repeat(indent);
        let mut skipped = 0; // blanks that only a following cell makes necessary
        for (column, Cell { text, style }) in row.iter().enumerate() {
            line.push_str(&" ".repeat(std::mem::take(&mut skipped)));
            if column + 1 < columns {
                let _ = write!(line, "{style}{text}{style:#}");
                skipped = widths[column] - text.chars().count() + GAP;
                continue;
            }
            for (number, part) in wrap(text, room).into_iter().enumerate() {
                if number > 0 {
                    let _ = write!(line, "\n{}", " ".repeat(indent + fixed));
                }
                let _ = write!(line, "{style}{part}{style:#}");
            }
        }
        out.push_str(&line);
        out.push('\n');
    }
}

/// Breaks a text at blanks into lines of at most `room` characters; longer words stay whole.
pub(crate) fn wrap(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut len = 0;
    for word in text.split(' ') {
        let more = word.chars().count();
        if let Some(line) =
            lines.last_mut().filter(|line| line.is_empty() || len + 1 + more <= room)
        {
            if !line.is_empty() {
                line.push(' ');
                len += 1;
            }
            line.push_str(word);
            len += more;
        } else {
            lines.push(word.to_owned());
            len = more;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_the_last_one_wraps() {
        let mut out = String::new();
        let row = |cells: [&str; 3]| cells.map(Cell::from).into();
        rows(
            &mut out,
            2,
            34,
            &[row(["a", "bbbb", "one two three four five six"]), row(["aaa", "", "x"])],
        );
        let right = "  a    bbbb  one two three four five\n             six\n  aaa        x\n";
        assert_eq!(out, right);
    }

    #[test]
    fn short_rows_leave_no_blanks_at_the_end() {
        let mut out = String::new();
        rows(&mut out, 0, 80, &[vec!["long".into(), "x".into()], vec!["a".into()]]);
        assert_eq!(out, "long  x\na\n");
    }

    #[test]
    fn wrapping() {
        assert_eq!(wrap("", 5), [""]);
        assert_eq!(wrap("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrap("aaaaaaa b", 5), ["aaaaaaa", "b"]);
        assert_eq!(wrap("aa bb", usize::MAX), ["aa bb"]);
    }
}
