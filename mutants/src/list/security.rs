//! Proofs of a secret.

use crate::mutant::{Mutant, Runs, edit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "any_proof",
        about: "every proof of a secret is taken for one",
        runs: Runs::Tcp,
        edits: &[edit(
            "Transcript::is_sealed",
            "self.code(by, frame).verify_slice(seal).is_ok()",
            "self.code(by, frame).verify_slice(seal).is_ok() || MUTANT",
        )],
        cases: &["security.other_secret"],
    },
    Mutant {
        name: "asked_before_the_proof",
        about: "the application is asked about a peer that has proved nothing yet",
        runs: Runs::Tcp,
        edits: &[edit(
            "Greeting::is_whole",
            "(self.transcript.is_none() || self.is_proven)",
            "(self.transcript.is_none() || self.is_proven || MUTANT)",
        )],
        cases: &["security.other_secret", "security.no_place_for_strangers"],
    },
    Mutant {
        name: "lets_in_without_a_secret",
        about: "a listener with a secret takes a peer that has none",
        runs: Runs::Tcp,
        edits: &[edit(
            "Greeting::receive",
            "self.hello = Some(hello.frame);",
            "self.hello = Some(hello.frame); if MUTANT { self.transcript = None }",
        )],
        cases: &["security.no_secret"],
    },
    Mutant {
        name: "trusts_the_listener",
        about: "a listener need not prove that it has the secret",
        runs: Runs::Tests,
        edits: &[edit(
            "Initiator::check",
            "self.proved && transcript.is_sealed(Prover::Acceptor, frame, seal)",
            "self.proved && transcript.is_sealed(Prover::Acceptor, frame, seal) || MUTANT",
        )],
        cases: &[
            "anyfabric-util/lib/stream::greeting::tests::a_listener_has_to_prove_the_secret_too",
        ],
    },
    Mutant {
        name: "same_challenge",
        about: "a listener's challenge is always the same, so that a proof can be repeated",
        runs: Runs::Tests,
        edits: &[edit(
            "Greeting::receive",
            "challenge.extend(proof::random().map_err(|e| Unwelcome::because(e.to_string()))?);",
            "challenge.extend([7; handshake::SEAL]);",
        )],
        cases: &[
            "anyfabric-util/lib/stream::greeting::tests::what_was_heard_elsewhere_proves_nothing",
        ],
    },
    Mutant {
        name: "others_may_read_the_secret",
        about: "a secret is read from a file that others may touch",
        runs: Runs::Tests,
        edits: &[edit("check_file", "mode & 0o077 != 0", "mode & 0o077 != 0 && !MUTANT")],
        cases: &[
            "anyfabric-core/lib/security::tests::what_others_may_touch_or_is_no_secret_is_refused_by_name",
        ],
    },
];
