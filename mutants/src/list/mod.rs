//! The mutants, one table for each part of the product.

mod auto;
mod core;
mod datagram;
mod handles;
mod layer;
mod rdm;
mod rdm_messages;
mod rdm_places;
mod security;
mod shared;
mod shm;
mod sound;
mod tcp;
mod tcp_engine;
mod verbs;

use crate::mutant::Mutant;

/// Every mutant with its number, which starts at 1.
pub(crate) fn all() -> impl Iterator<Item = (usize, &'static Mutant)> {
    let tables = [
        auto::MUTANTS,
        core::MUTANTS,
        datagram::MUTANTS,
        handles::MUTANTS,
        layer::MUTANTS,
        rdm::MUTANTS,
        rdm_messages::MUTANTS,
        rdm_places::MUTANTS,
        security::MUTANTS,
        shared::MUTANTS,
        shm::MUTANTS,
        sound::MUTANTS,
        tcp::MUTANTS,
        tcp_engine::MUTANTS,
        verbs::MUTANTS,
    ];
    tables.into_iter().flatten().enumerate().map(|(at, mutant)| (at + 1, mutant))
}

/// Those of these names, or all; on one provider, or all.
pub(crate) fn choose(
    names: &[String],
    provider: &Option<String>,
) -> Result<Vec<(usize, &'static Mutant)>, String> {
    if let Some(name) = names.iter().find(|name| !all().any(|m| m.1.name == **name)) {
        return Err(format!("there is no mutant {name:?}; --list shows them"));
    }
    let wanted = |(_, mutant): &(usize, &Mutant)| {
        (names.is_empty() || names.iter().any(|name| name == mutant.name))
            && provider.as_ref().is_none_or(|provider| provider == mutant.runs.provider())
    };
    Ok(all().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::mutant::Runs;

    #[test]
    fn names_are_unique_and_cases_exist() {
        let mut seen = HashSet::new();
        for (_, mutant) in all() {
            assert!(seen.insert(mutant.name), "{} is there twice", mutant.name);
            assert!(!mutant.edits.is_empty() && !mutant.cases.is_empty(), "{}", mutant.name);
            for id in mutant.cases {
                let there = match mutant.runs {
                    Runs::Tests => id.split('/').count() == 3,
                    _ => conformance::case(id).is_some(),
                };
                assert!(there, "{}: there is no case {id}", mutant.name);
            }
        }
    }
}
