//! Files that are read and written.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::{FORMAT, Matrix, Report};
use serde::{Deserialize, Serialize};

use super::{html, junit};

/// Where reports go without `--report`.
pub(super) const DIRECTORY: &str = "target/conformance";

/// A file to be written after the run. Whether it can be is noticed before it; and it is there when it is whole, not
/// before: what others wait for, or had there already, no run that fails or is killed leaves cut short.
pub(super) struct Output {
    path: PathBuf,
    /// What the file is called meanwhile; itself where it is none (`/dev/stdout`).
    part: PathBuf,
    file: File,
}

impl Output {
    pub(super) fn create(path: Option<PathBuf>) -> Result<Option<Self>, String> {
        let Some(path) = path else { return Ok(None) };
        let special = path.metadata().is_ok_and(|data| !data.is_file());
        let mut part = path.clone().into_os_string();
        if !special {
            part.push(".part");
        }
        let part = PathBuf::from(part);
        match File::create(&part) {
            Ok(file) => Ok(Some(Output { path, part, file })),
            Err(error) => Err(named(&path, &error)),
        }
    }

    pub(super) fn write(mut self, text: &str) -> Result<(), String> {
        let whole =
            |()| if self.part == self.path { Ok(()) } else { fs::rename(&self.part, &self.path) };
        self.file.write_all(text.as_bytes()).and_then(whole).map_err(|e| named(&self.path, &e))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.part != self.path {
            // It is gone already if it was written.
            let _ = fs::remove_file(&self.part);
        }
    }
}

/// Writes to the file, or to stdout, in colour if that is a terminal; a reader that went away (`| head`) is no error.
pub(super) fn put(path: Option<&Path>, text: &str) -> Result<(), String> {
    let Some(path) = path else {
        return match anstream::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
            _ => Ok(()),
        };
    };
    fs::write(path, text).map_err(|error| named(path, &error))
}

/// Writes the report in its three forms; gives the path of the one for people.
pub(super) fn put_report(directory: &Path, matrix: &Matrix) -> Result<PathBuf, String> {
    fs::create_dir_all(directory).map_err(|error| named(directory, &error))?;
    put(Some(&directory.join("report.json")), &json(matrix)?)?;
    put(Some(&directory.join("report.xml")), &junit::report(matrix)?)?;
    let page = directory.join("report.html");
    put(Some(&page), &html::page(matrix))?;
    Ok(page)
}

pub(super) fn json(value: &impl Serialize) -> Result<String, String> {
    let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
    Ok(text + "\n")
}

/// Reads a record.
pub(super) fn record(path: &Path) -> Result<Report, String> {
    let text = fs::read_to_string(path).map_err(|error| named(path, &error))?;
    parse(&text).map_err(|reason| format!("{}: {reason}", path.display()))
}

fn parse(text: &str) -> Result<Report, String> {
    /// What records of all versions have.
    #[derive(Deserialize)]
    struct Head {
        format: u32,
        program: String,
    }
    let broken = |error: serde_json::Error| match error.classify() {
        serde_json::error::Category::Eof => format!("the record is cut short: {error}"),
        _ => format!("this is no record of a run: {error}"),
    };
    let Head { format, program } = serde_json::from_str(text).map_err(broken)?;
    let own = env!("CARGO_PKG_VERSION");
    if format != FORMAT {
        return Err(format!("a record of format {format}; this program reads format {FORMAT}"));
    }
    if program != own {
        return Err(format!("fabric-conformance {program} wrote it, and this is {own}"));
    }
    serde_json::from_str(text).map_err(broken)
}

fn named(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of nothing.
    fn text() -> String {
        let catalog = std::sync::Arc::new(fabric::Catalog::empty());
        let options = crate::Options { factor: Some(1.0), ..Default::default() };
        json(&crate::run(&catalog, &options, &mut ()).unwrap()).unwrap()
    }

    #[test]
    fn record_is_read_again() {
        let text = text();
        assert_eq!(json(&parse(&text).unwrap()).unwrap(), text);
    }

    #[test]
    fn cut_record_is_named_so() {
        let text = text();
        for len in [0, 1, text.len() / 2, text.len() - 3] {
            let error = parse(&text[..len]).unwrap_err();
            assert!(error.starts_with("the record is cut short: "), "{len}: {error}");
        }
    }

    #[test]
    fn other_files_are_no_records() {
        for text in ["[]", "{}", "null", "<html>", "{\"format\":\"1\"}"] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with("this is no record of a run: "), "{text}: {error}");
        }
    }

    #[test]
    fn other_versions_are_named() {
        let text = text();
        let other = text.replacen("\"format\": 1", "\"format\": 7", 1);
        let error = parse(&other).unwrap_err();
        assert_eq!(error, "a record of format 7; this program reads format 1");
        let own = format!("\"program\": \"{}\"", env!("CARGO_PKG_VERSION"));
        let other = text.replacen(&own, "\"program\": \"9.9.9\"", 1);
        let error = parse(&other).unwrap_err();
        assert!(error.starts_with("fabric-conformance 9.9.9 wrote it"), "{error}");
    }
}
