//! Mutants of receives that links share, and of what the handles make of them.

use crate::mutant::{Mutant, Runs, edit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "refused_lost",
        about: "a message that found no receive is not sent again",
        runs: Runs::Tcp,
        edits: &[edit("Sends::go_back", "(index, 0, false, true)", "(index + 1, 0, false, true)")],
        cases: &["shared.waits_at_sender"],
    },
    Mutant {
        name: "discards_some",
        about: "atomics behind a message that found no receive are executed, and again when they come again",
        runs: Runs::Tcp,
        edits: &[edit(
            "Link::take_frame",
            "        if self.incoming.discards && header.kind.is_request() {",
            "        if MUTANT && self.incoming.discards && let Kind::Atomic { at, call, fetch: false } = header.kind { self.execute_atomic(header.seq, at, &call, false)?; }\n        if self.incoming.discards && header.kind.is_request() {",
        )],
        cases: &["shared.behind_is_executed_once"],
    },
    Mutant {
        name: "inject_not_kept",
        about: "an inject that is sent again is read from memory that is the caller's again",
        runs: Runs::Tcp,
        edits: &[edit(
            "Sends::needs_injected",
            "self.peer_shares || !self.nothing_waits()",
            "!self.nothing_waits()",
        )],
        cases: &["shared.behind_is_executed_once", "shared.while_waiting"],
    },
    Mutant {
        name: "reads_counted_twice",
        about: "reads and atomics that are sent again count twice, against fences and the peer's limit",
        runs: Runs::Tcp,
        edits: &[edit(
            "Sends::go_back",
            "self.reads -= again.filter(|entry| entry.is_read()).count() as u32;",
            "drop(again);",
        )],
        cases: &["shared.behind_is_executed_once"],
    },
    Mutant {
        name: "accepted_refused",
        about: "a peer may refuse what it has accepted, so that it completes before it has gone again",
        runs: Runs::Tests,
        edits: &[edit("Sends::go_back", "(seq.wrapping_sub(self.acked) as i32) < 0", "false")],
        cases: &[
            "anyfabric-util/lib/stream::tests::shared::refusals_of_what_cannot_be_refused_are_breaches",
        ],
    },
    Mutant {
        name: "one_woken",
        about: "a post notifies one of those who wait, and forgets the others",
        runs: Runs::Tcp,
        edits: &[edit(
            "SharedReceives::push",
            "std::mem::take(&mut state.waiting)",
            "{ let mut woken = std::mem::take(&mut state.waiting); woken.truncate(1); woken }",
        )],
        cases: &["shared.while_waiting", "shared.scarce"],
    },
    Mutant {
        name: "newest_receive",
        about: "a message takes the receive that was posted last",
        runs: Runs::Tcp,
        edits: &[
            edit("Receives::pop", "self.queue.pop_front()?", "self.queue.pop_back()?"),
            edit("Receives::pop_run", "self.queue.front()?", "self.queue.back()?"),
            edit("Receives::pop_run", "self.queue.pop_front()", "self.queue.pop_back()"),
        ],
        cases: &["shared.oldest_first"],
    },
    Mutant {
        name: "unnamed",
        about: "the completion of a shared receive does not say whose message took it",
        runs: Runs::Tcp,
        edits: &[edit(
            "Link::complete_recv",
            "self.recvs.is_shared().then_some(self.context.id)",
            "None",
        )],
        cases: &["shared.oldest_first"],
    },
    Mutant {
        name: "quiet_receive_lost",
        about: "the shared receive whose message was coming in never ends if the endpoint is dropped",
        runs: Runs::Tcp,
        edits: &[edit(
            "Link::end",
            "begun.filter(|_| self.recvs.is_shared())",
            "begun.filter(|_| false)",
        )],
        cases: &["shared.in_the_middle"],
    },
    Mutant {
        name: "waits_for_ever",
        about: "an endpoint that has ended is still among those who wait",
        runs: Runs::Tests,
        edits: &[edit("Link::leave", "self.recvs.stop_waiting(self.context.id);", "")],
        cases: &["anyfabric-util/lib/stream::tests::shared::those_who_wait_are_few_and_alive"],
    },
    Mutant {
        name: "place_not_free",
        about: "a shared receive that has ended counts against the depth for ever",
        runs: Runs::Tcp,
        edits: &[edit("BoundReceives::end", "self.operations.credit();", "")],
        cases: &["shared.depth"],
    },
];
