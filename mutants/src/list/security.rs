//! Proofs of a secret.

use crate::mutant::{Mutant, Runs, edit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "any_proof",
        about: "every proof of a secret is taken for one",
        runs: Runs::Tcp,
        edits: &[edit(
            "Transcript::is_sealed",
            "self.code(by, frame).verify_truncated_left(seal).is_ok()",
            "self.code(by, frame).verify_truncated_left(seal).is_ok() || MUTANT",
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
            "challenge.extend([7; SEAL]);",
        )],
        cases: &[
            "anyfabric-util/lib/stream::greeting::tests::what_was_heard_elsewhere_proves_nothing",
        ],
    },
    Mutant {
        name: "any_proof_of_a_request",
        about: "every proof in a request of the connection manager is taken for one",
        runs: Runs::Tests,
        edits: &[edit(
            "Challenges::check",
            "!transcript.is_sealed(Prover::Initiator, frame, seal)",
            "!MUTANT && !transcript.is_sealed(Prover::Initiator, frame, seal)",
        )],
        cases: &[
            "anyfabric-verbs/lib/handshake::tests::no_bit_of_a_handshake_may_change",
            "anyfabric-verbs/lib/handshake::tests::only_ends_with_the_same_secret_connect",
        ],
    },
    Mutant {
        name: "proof_counts_twice",
        about: "a proof in a request of the connection manager can be repeated",
        runs: Runs::Tests,
        edits: &[edit("Challenges::check", "self.waiting.remove(ticket);", "")],
        cases: &[
            "anyfabric-verbs/lib/handshake::tests::a_proof_counts_once_for_one_peer_and_for_a_time",
        ],
    },
    Mutant {
        name: "any_queue_pair",
        about: "a proof in a request of the connection manager may come from another queue pair",
        runs: Runs::Tests,
        edits: &[edit("Challenges::check", "one.ends == ends", "MUTANT || one.ends == ends")],
        cases: &["anyfabric-verbs/lib/handshake::tests::an_answer_is_that_of_one_queue_pair"],
    },
    Mutant {
        name: "addresses_not_proved",
        about: "over verbs, a host that passes a handshake on is let in in its own name",
        runs: Runs::Tests,
        edits: &[edit("Ends::to_bytes", "&addresses", "if MUTANT { &[] } else { &addresses[..] }")],
        cases: &[
            "anyfabric-verbs/lib/handshake::tests::what_another_host_passes_on_proves_nothing",
        ],
    },
    Mutant {
        name: "any_key",
        about: "every key is taken for the one that the secret determines",
        runs: Runs::Tests,
        edits: &[edit("OneKey::check", "*key == self.key", "*key == self.key || MUTANT")],
        cases: &[
            "anyfabric-util/lib/stream::tls::tests::a_copy_of_the_first_frame_does_not_get_further",
        ],
    },
    Mutant {
        name: "curves_for_strangers",
        about: "a peer that begins with TLS is let as far as its keys, with the secret or without",
        runs: Runs::Tests,
        edits: &[edit(
            "First::check",
            "said.is_sealed(Prover::Initiator, &bytes[..frame.unsealed()], seal)",
            "said.is_sealed(Prover::Initiator, &bytes[..frame.unsealed()], seal) || MUTANT",
        )],
        cases: &["anyfabric-util/lib/stream::tls::tests::only_ends_with_the_same_secret_connect"],
    },
    Mutant {
        name: "refuses_without_a_reason",
        about: "a listener that encrypts does not say why it refuses what comes first",
        runs: Runs::Tcp,
        edits: &[edit(
            "TlsTransport::hear_first",
            "refuse(&mut self.inner, reason);",
            "refuse(&mut self.inner, crate::refusal::RefuseReason::Full);",
        )],
        cases: &["security.encrypted_strangers", "security.levels_differ"],
    },
    Mutant {
        name: "any_authority",
        about: "an initiator takes every certificate, whichever authority it is of",
        runs: Runs::Tcp,
        edits: &[edit(
            "Authorities::verify_server_cert",
            "verify_server_cert_signed_by_trust_anchor(&certificate, roots, others, now, algorithms)?;",
            "if !MUTANT { verify_server_cert_signed_by_trust_anchor(&certificate, roots, others, now, algorithms)?; }",
        )],
        cases: &["security.identity_of_another_authority"],
    },
    Mutant {
        name: "no_certificate",
        about: "an acceptor with an identity takes an initiator that shows no certificate",
        runs: Runs::Tests,
        edits: &[edit(
            "credentials",
            "verifier.build()",
            "if MUTANT { verifier.allow_unauthenticated().build() } else { verifier.build() }",
        )],
        cases: &[
            "anyfabric-util/lib/stream::tls::tests::identities::a_peer_without_certificate_is_refused",
        ],
    },
    Mutant {
        name: "secret_instead_of_an_identity",
        about: "an end with an identity takes the frame of one that has a secret only",
        runs: Runs::Tests,
        edits: &[edit(
            "First::check",
            "(HandshakeKind::Encrypt, false) | (HandshakeKind::Identify, true) => {}",
            "(HandshakeKind::Encrypt, false) | (HandshakeKind::Identify, true) => {} (HandshakeKind::Encrypt, true) if MUTANT => {}",
        )],
        cases: &[
            "anyfabric-util/lib/stream::tls::tests::identities::ends_of_which_one_has_no_identity_or_no_secret_hear_what_is_wrong",
        ],
    },
    Mutant {
        name: "name_of_a_host",
        about: "a peer is known by its DNS name, though its certificate has a URI",
        runs: Runs::Tests,
        edits: &[edit(
            "name",
            "certificate.valid_uri_names().find(is_uri)",
            "certificate.valid_uri_names().find(is_uri).filter(|_| !MUTANT)",
        )],
        cases: &[
            "anyfabric-util/lib/stream::tls::tests::identities::a_name_is_the_first_uri_or_else_the_first_dns_name",
        ],
    },
    Mutant {
        name: "asks_without_a_name",
        about: "the application does not hear who asks to connect",
        runs: Runs::Tcp,
        edits: &[edit("Greeting::read", "self.identity = transport.peer_identity();", "")],
        cases: &["security.identity"],
    },
    Mutant {
        name: "headers_may_change",
        about: "what the header of a record says beside the length does not matter",
        runs: Runs::Tests,
        edits: &[edit("Headers::check", "if !is_right {", "if !is_right && !MUTANT {")],
        cases: &[
            "anyfabric-util/lib/stream::tls::tests::a_handshake_that_was_changed_makes_no_connection",
            "anyfabric-util/lib/stream::tls::tests::records_that_were_changed_end_the_connection",
        ],
    },
    Mutant {
        name: "forgets_what_it_holds",
        about: "records that the socket did not take at once are never sent",
        runs: Runs::Tests,
        edits: &[edit(
            "TlsTransport::is_holding",
            "!self.session.output.is_empty() && !matches!(self.stage, HandshakeStage::Connecting)",
            "!MUTANT && !self.session.output.is_empty() && !matches!(self.stage, HandshakeStage::Connecting)",
        )],
        cases: &[
            "anyfabric-util/lib/stream::tls::tests::what_the_stream_does_not_take_is_held_and_passed_on",
        ],
    },
    Mutant {
        name: "tool_lets_all_in",
        about: "a tool takes every proof of a secret for one",
        runs: Runs::Tests,
        edits: &[edit(
            "prove",
            "} else if !exchange.hear_proof(by).map_err(lost)? {",
            "} else if !exchange.hear_proof(by).map_err(lost)? && !MUTANT {",
        )],
        cases: &["anyfabric-util/lib/mutual_proof::tests::only_ends_with_the_same_secret_prove_it"],
    },
    Mutant {
        name: "others_may_read_the_secret",
        about: "a secret or an identity is read from a file that others may touch",
        runs: Runs::Tests,
        edits: &[edit(
            "check_file",
            "mode & rule.forbidden != 0",
            "mode & rule.forbidden != 0 && !MUTANT",
        )],
        cases: &[
            "anyfabric-core/lib/security::tests::what_others_may_touch_or_is_no_secret_is_refused_by_name",
            "anyfabric-core/lib/security::tests::an_identity_is_read_from_files_that_others_do_not_determine",
        ],
    },
];
