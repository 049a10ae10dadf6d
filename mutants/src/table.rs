//! What is printed.

use std::fmt::Write;

use crate::mutant::Mutant;
use crate::trial::Verdict;

/// Killers named in a row; the rest is counted.
const NAMED: usize = 4;

/// One mutant's row, as soon as it is known.
pub(crate) fn row(verdict: &Verdict) -> String {
    let outcome = if verdict.is_killed() { "killed" } else { "SURVIVED" };
    let Verdict { name, about, provider, killers, unexpected, seconds } = verdict;
    let mut text = format!("{outcome:8}  {name:26}  {provider:5}  {seconds:5.1} s  {about}\n");
    if verdict.is_killed() {
        let more = killers.len().saturating_sub(NAMED);
        let named = killers.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let note = if *unexpected { "not by its own cases, but by " } else { "by " };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:10}{note}{named}{more}", "");
    }
    text
}

/// One that random programs need not find.
pub(crate) fn out_of_reach(mutant: &Mutant, why: &str) -> String {
    let Mutant { name, about, .. } = mutant;
    format!("{:8}  {name:26}  {about}\n{:10}{why}\n", "not tried", "")
}

/// Those that cannot be tried here.
pub(crate) fn not_tried(mutants: &[(usize, &Mutant)], why: &str) -> String {
    let names: Vec<_> = mutants.iter().map(|m| m.1.name).collect();
    format!("NOT TRIED, {why}: {}\n", names.join(", "))
}

/// The last line, of so many that were chosen.
pub(crate) fn summary(verdicts: &[Verdict], chosen: usize) -> String {
    let killed = verdicts.iter().filter(|verdict| verdict.is_killed()).count();
    let mut text = format!("mutants: {killed} killed, {} survived", verdicts.len() - killed);
    if chosen > verdicts.len() {
        // Writing to a string does not fail.
        let _ = write!(text, ", {} NOT TRIED", chosen - verdicts.len());
    }
    text
}

/// The mutants, for `--list`.
pub(crate) fn list(mutants: &[(usize, &Mutant)]) -> String {
    let row = |(_, mutant): &(usize, &Mutant)| {
        let Mutant { name, about, runs, cases, .. } = mutant;
        format!("{name:26}  {:5}  {about}\n{:10}for {}\n", runs.provider(), "", cases.join(", "))
    };
    mutants.iter().map(row).collect()
}
