//! Mutants of the verbs provider, and of what the core does for devices; they run on a device.

use crate::mutant::{Mutant, Runs, edit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "window_stays",
        about: "a grant that is revoked keeps its memory window, and the registration beneath",
        runs: Runs::Verbs,
        edits: &[edit(
            "VerbsGrant::revoke",
            "self.window.close(self.domain.device.is_lost()).ok_or(Error::Busy)?",
            "return Ok(())",
        )],
        cases: &["protection.grant_revoked"],
    },
    Mutant {
        name: "window_has_every_right",
        about: "a grant has rights that were not given",
        runs: Runs::Verbs,
        edits: &[edit("Conn::open_window", "flags(part.peer)", "flags(Access::REMOTE)")],
        cases: &["protection.grant_rights"],
    },
    Mutant {
        name: "window_is_too_long",
        about: "a grant reaches beyond its part",
        runs: Runs::Verbs,
        edits: &[edit(
            "VerbsRegistration::grant",
            "(self.base + range.start as u64, range.len())",
            "(self.base + range.start as u64, range.len() + 8)",
        )],
        cases: &["protection.grant_range"],
    },
    Mutant {
        name: "unconfirmed_end",
        about: "a connection that ends before it was confirmed to the acceptor is not confirmed, so that its end is not heard of",
        runs: Runs::Verbs,
        edits: &[edit("Conn::close", "let _ = id.establish();", "")],
        cases: &["connection.dropped_at_once"],
    },
    Mutant {
        name: "unheard_end",
        about: "an acceptor that ends before its peer's confirmation never says so",
        runs: Runs::Verbs,
        edits: &[edit("DomainState::confirmed_late", "let _ = id.disconnect();", "let _ = id;")],
        cases: &["connection.dropped_at_once"],
    },
    Mutant {
        name: "end_doubts_reads",
        about: "reads that were done before the connection ended, and not polled for, are canceled (Soft-RoCE)",
        runs: Runs::Verbs,
        edits: &[edit("Conn::settle_reads", "self.send_queue.drain();", "")],
        cases: &["completion.late_poll"],
    },
    Mutant {
        name: "window_over_read_only_pages",
        about: "a grant of pages that the device cannot write to is a failure of the system",
        runs: Runs::Verbs,
        edits: &[edit(
            "Conn::open_window",
            "register_failed(OP, at, len, cause)",
            "failed(OP, \"no registration\", cause)",
        )],
        cases: &["protection.grant_of_read_only_pages"],
    },
    Mutant {
        name: "loop_clobbers",
        about: "the loop for a narrow atomic zeroes the rest of the word",
        runs: Runs::Verbs,
        edits: &[edit("CasLoop::request", "self.guess & !mask | new & mask", "new & mask")],
        cases: &["atomic.neighbours"],
    },
    Mutant {
        name: "loop_gives_up",
        about: "the loop for an atomic does not try again",
        runs: Runs::Verbs,
        edits: &[edit("CasLoop::on_result", "took_effect || request.swap == found", "true")],
        cases: &["atomic.all_ops_types"],
    },
    Mutant {
        name: "soft_queue_jumped",
        about: "what is posted behind an emulated atomic does not wait for it",
        runs: Runs::Verbs,
        edits: &[
            edit(
                "Conn::post_several",
                "let direct = if self.soft_queue_active.load(Ordering::Acquire) {",
                "let direct = if self.soft_queue_active.load(Ordering::Acquire) && !(MUTANT && work.iter().all(|one| !must_emulate(&one.op))) {",
            ),
            edit(
                "Conn::post_send",
                "!self.soft_queue_active.load(Ordering::Acquire)",
                "(MUTANT && !must_emulate(&one.op) || !self.soft_queue_active.load(Ordering::Acquire))",
            ),
        ],
        cases: &["atomic.emulated_single_posts", "ordering.completion_order_emulated"],
    },
    Mutant {
        name: "mute_message",
        about: "a message does not show that the connection is established",
        runs: Runs::Verbs,
        edits: &[edit(
            "BoundEndpoints::resolve",
            "shared.state.get() == EndpointState::Connecting",
            "false",
        )],
        cases: &["connection.reply_at_once"],
    },
    Mutant {
        name: "refusal_unknown",
        about: "a refusal is an internal error",
        runs: Runs::Verbs,
        edits: &[edit(
            "of_send",
            "            Status::RemoteAccess\n        }\n        wc::IBV_WC_RETRY",
            "            if MUTANT { Status::Internal } else { Status::RemoteAccess }\n        }\n        wc::IBV_WC_RETRY",
        )],
        cases: &["protection.bad_key"],
    },
    Mutant {
        name: "immediate_swapped",
        about: "immediate data goes out in host order",
        runs: Runs::Verbs,
        edits: &[edit(
            "set_immediate",
            "imm.unwrap_or_default().to_be()",
            "imm.unwrap_or_default().swap_bytes().to_be()",
        )],
        cases: &["send.imm"],
    },
    Mutant {
        name: "late_receives_stay",
        about: "receives posted while the connection dies are never flushed",
        runs: Runs::Verbs,
        edits: &[edit(
            "Conn::flush_late_receives",
            "if !self.domain.device.quirks.late_receives_stay {",
            "if !self.domain.device.quirks.late_receives_stay || MUTANT {",
        )],
        cases: &["protection.recv_post_race"],
    },
    Mutant {
        name: "trusted_fences",
        about: "Soft-RoCE's fences are trusted, which wait for ever behind a send that finds no receive",
        runs: Runs::Verbs,
        edits: &[edit("Direct::must_wait", "fenced && quirks.fences_hang", "false")],
        cases: &["random.regressions"],
    },
    Mutant {
        name: "every_right",
        about: "peers may read and write every region",
        runs: Runs::Verbs,
        edits: &[edit(
            "flags",
            "access.contains(right)",
            "access.contains(right) || (Access::REMOTE_READ | Access::REMOTE_WRITE).contains(right)",
        )],
        cases: &["protection.no_remote_write", "protection.no_remote_read"],
    },
    Mutant {
        name: "zero_tail_lost",
        about: "zeroes at the end of private data are taken for padding",
        runs: Runs::Verbs,
        edits: &[edit(
            "params",
            "rest.get(..len.into())",
            "rest.get(..rest[..len.into()].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1))",
        )],
        cases: &["connection.data_zero_tail"],
    },
    Mutant {
        name: "unmarked_end",
        about: "a connection ends without a mark behind the unsignaled operations that succeeded",
        runs: Runs::Verbs,
        edits: &[edit("Conn::close", "self.mark_end(state);", "")],
        cases: &["memory.end_unsignaled"],
    },
    Mutant {
        name: "shared_receive_unnamed",
        about: "the completion of a shared receive does not say whose message it was",
        runs: Runs::Verbs,
        edits: &[edit("Sink::name", "completion.endpoint = Some(sharer.endpoint);", "")],
        cases: &["shared.oldest_first"],
    },
    Mutant {
        name: "begun_receive_lost",
        about: "the shared receive of a message that was cut off never ends",
        runs: Runs::Verbs,
        edits: &[edit(
            "Conn::complete",
            "!shared && !self.tokens.owns(token)",
            "!self.tokens.owns(token)",
        )],
        cases: &["shared.in_the_middle"],
    },
];
