//! What came out, as a table or as JSON.

use std::time::Duration;

use serde::Serialize;

use crate::Outcome;

/// Of the honest client.
#[derive(Default)]
pub(crate) struct Figures {
    pub(crate) times: Vec<Duration>,
    pub(crate) failures: Vec<String>,
}

#[derive(Serialize)]
pub(crate) struct Row {
    scene: &'static str,
    version: &'static str,
    /// What the strangers had at the end.
    strangers: String,
    /// Resident memory of the server at the end.
    server_bytes: u64,
    median_ms: Option<f64>,
    worst_ms: Option<f64>,
    failed: usize,
    failure: Option<String>,
}

impl Row {
    pub(crate) fn new(
        scene: &'static str,
        version: &'static str,
        strangers: String,
        server_bytes: u64,
        mut figures: Figures,
    ) -> Self {
        figures.times.sort();
        let ms = |time: &Duration| time.as_secs_f64() * 1e3;
        Row {
            scene,
            version,
            strangers,
            server_bytes,
            median_ms: figures.times.get(figures.times.len() / 2).map(ms),
            worst_ms: figures.times.last().map(ms),
            failed: figures.failures.len(),
            failure: figures.failures.pop(),
        }
    }
}

pub(crate) fn print(rows: &[Row], json: bool) -> Outcome {
    if json {
        println!("{}", serde_json::to_string_pretty(rows)?);
        return Ok(());
    }
    println!(
        "{:<38} {:<7} {:>10} {:>10} {:>7} {:>9}  strangers",
        "beside", "", "median ms", "worst ms", "failed", "MiB"
    );
    let time = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
    for row in rows {
        println!(
            "{:<38} {:<7} {:>10} {:>10} {:>7} {:>9}  {}",
            row.scene,
            row.version,
            time(row.median_ms),
            time(row.worst_ms),
            row.failed,
            row.server_bytes >> 20,
            row.strangers
        );
    }
    for row in rows {
        if let Some(failure) = &row.failure {
            println!("{}, {}: {failure}", row.scene, row.version);
        }
    }
    Ok(())
}
