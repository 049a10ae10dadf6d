//! Circles in a graph of files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type Files<'a> = BTreeSet<&'a Path>;

/// The largest sets of files where each uses, over others of the set, every other one.
pub(crate) fn circles<'a>(uses: &BTreeSet<(&'a Path, &'a Path)>) -> BTreeSet<Files<'a>> {
    let files: Files<'_> = uses.iter().map(|(from, _)| *from).collect();
    let reach: BTreeMap<_, _> = files.iter().map(|file| (*file, reachable(uses, file))).collect();
    let circle = |file: &&'a Path| -> Files<'a> {
        let there = |other: &&&Path| reach.get(**other).is_some_and(|back| back.contains(*file));
        reach[*file].iter().filter(there).copied().collect()
    };
    files.iter().map(circle).filter(|circle| !circle.is_empty()).collect()
}

/// The files that a file uses, and those that these use, and so on.
fn reachable<'a>(uses: &BTreeSet<(&'a Path, &'a Path)>, from: &'a Path) -> Files<'a> {
    let (mut found, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(file) = left.pop() {
        let next = uses.iter().filter(|(from, _)| *from == file).map(|(_, to)| *to);
        left.extend(next.filter(|to| found.insert(*to)));
    }
    found
}

#[test]
fn circles_are_found() {
    let uses = ["ab", "bc", "ca", "cd", "de", "fg", "gf", "gd"];
    let uses = uses.iter().map(|two| (Path::new(&two[..1]), Path::new(&two[1..]))).collect();
    let found: Vec<_> = circles(&uses)
        .iter()
        .map(|set| set.iter().map(|f| f.display().to_string()).collect::<String>())
        .collect();
    assert_eq!(found, ["abc", "fg"]);
}
