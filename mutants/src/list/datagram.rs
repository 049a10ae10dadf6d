//! Mutants of datagrams, over UDP and in the handles.

use crate::mutant::{Mutant, Runs, edit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "datagram_cut",
        about: "a datagram longer than its receive ends that as if it had fitted",
        runs: Runs::Tcp,
        edits: &[edit(
            "DatagramReceives::complete",
            "if len > taken.len {",
            "if len > taken.len && !MUTANT {",
        )],
        cases: &["datagram.too_long_for_its_receive"],
    },
    Mutant {
        name: "datagram_of_the_last",
        about: "the source of a datagram is that of another receive",
        runs: Runs::Tcp,
        edits: &[edit(
            "DatagramSources::place",
            "token.sequence() as usize & (self.0.len() - 1)",
            "if MUTANT { 0 } else { token.sequence() as usize & (self.0.len() - 1) }",
        )],
        cases: &["datagram.many_to_one"],
    },
    Mutant {
        name: "datagram_unlimited",
        about: "a datagram beyond the limit is handed to the provider",
        runs: Runs::Tcp,
        edits: &[edit(
            "DatagramInner::prepare_send",
            "if len > max {",
            "if len > max && !MUTANT {",
        )],
        cases: &["datagram.too_long"],
    },
    Mutant {
        name: "datagram_handle_of_others",
        about: "an endpoint takes the handles of others",
        runs: Runs::Tcp,
        edits: &[edit(
            "DatagramInner::prepare_send",
            "if !to.is_of(self) {",
            "if !to.is_of(self) && !MUTANT {",
        )],
        cases: &["datagram.of_others"],
    },
    Mutant {
        name: "datagram_secured",
        about: "a domain with security makes datagram endpoints",
        runs: Runs::Tcp,
        edits: &[edit(
            "check",
            "if domain.security > Security::Open {",
            "if domain.security > Security::Open && !MUTANT {",
        )],
        cases: &["datagram.secured"],
    },
];
