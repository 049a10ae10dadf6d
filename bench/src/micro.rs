//! What the safe handles cost: the lines of the benchmark `paths --threads`, and its verdicts.

use std::path::Path;
use std::process::Command;

use crate::outcome::Outcome;

/// A line of it with a target: nanoseconds, and uncontended mutex pairs of the same run, at most.
struct Goal {
    line: &'static str,
    title: &'static str,
    ns: f64,
    pairs: f64,
}

const GOALS: [Goal; 2] = [
    Goal {
        line: "post + poll(1), 1 threads",
        title: "post and poll(1), null provider",
        ns: 60.0,
        pairs: 6.0,
    },
    Goal {
        line: "post + poll, batches of 16, 1 threads",
        title: "the same, batches of 16",
        ns: 45.0,
        pairs: 4.5,
    },
];

/// Runs it; gives what it printed.
pub(crate) fn run(program: &Path) -> Outcome<Vec<String>> {
    let output = Command::new(program).arg("--threads").output()?;
    if !output.status.success() {
        return Err(format!("{}: {}", program.display(), output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
}

/// Nanoseconds, and pairs, of a line.
fn figures(lines: &[String], name: &str) -> Option<(f64, f64)> {
    let rest = lines.iter().find_map(|line| line.strip_prefix(name))?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    match words[..] {
        [ns, "ns", pairs, "pairs"] => Some((ns.parse().ok()?, pairs.parse().ok()?)),
        _ => None,
    }
}

/// Rows of the table, with the cells of [`Measured::row`](crate::rounds::Measured::row).
pub(crate) fn rows(lines: &[String]) -> Vec<[String; 8]> {
    let pair = figures(lines, "mutex lock and unlock").map(|(ns, _)| ns);
    let row = |goal: &Goal| {
        let (ns, pairs) = figures(lines, goal.line)?;
        let met = ns <= goal.ns && pairs <= goal.pairs;
        Some([
            goal.title.to_owned(),
            format!("<= {} ns, {} pairs", goal.ns, goal.pairs),
            format!("a pair is {:.1} ns", pair?),
            format!("{ns:.0} ns"),
            format!("{pairs:.2}"),
            "-".to_owned(),
            if met { "met" } else { "missed" }.to_owned(),
            String::new(),
        ])
    };
    GOALS.iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_judged_by_both_measures() {
        let text = "mutex lock and unlock     20.1 ns   1.00 pairs\n\
                    post + poll(1), 1 threads      58.2 ns   6.07 pairs\n\
                    post + poll(1), 2 threads      99.0 ns   1.00 pairs\n\
                    post + poll, batches of 16, 1 threads   44.0 ns   3.97 pairs";
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let rows = rows(&lines);
        assert_eq!(rows.len(), 2);
        assert_eq!((&*rows[0][4], &*rows[0][6]), ("6.07", "missed"));
        assert_eq!((&*rows[1][3], &*rows[1][6]), ("44 ns", "met"));
    }
}
