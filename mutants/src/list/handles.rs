//! Mutants of `fabric`: the checks, the queues and the handles that every program uses.

use super::{Mutant, Runs, edit};

const CHECK: &str = "src/check.rs";
const CQ: &str = "src/cq.rs";
const MEMBERS: &str = "src/cq/members.rs";
const ENDPOINT: &str = "src/endpoint.rs";
const POST: &str = "src/post.rs";
const REGION: &str = "src/region.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "local_range",
        about: "the range of a local slice is not checked",
        runs: Runs::Tcp,
        edits: &[edit(
            CHECK,
            "slice.offset.checked_add(slice.len).is_some_and(|end| end <= slice.region.len())",
            "true",
        )],
        cases: &["memory.local_oob"],
    },
    Mutant {
        name: "local_rights",
        about: "the rights of a local region are not checked",
        runs: Runs::Tcp,
        edits: &[edit(CHECK, "!core.access.contains(need)", "false")],
        cases: &["memory.local_ro_dest"],
    },
    Mutant {
        name: "segment_too_many",
        about: "more segments than the endpoint takes are taken",
        runs: Runs::Tcp,
        edits: &[edit(CHECK, "into.segments.len() - before > most", "false")],
        cases: &["send.segments_plus1"],
    },
    Mutant {
        name: "inject_too_much",
        about: "more bytes than the endpoint injects are taken",
        runs: Runs::Tcp,
        edits: &[edit(CHECK, "bytes.len() > most", "false")],
        cases: &["send.inject_over"],
    },
    Mutant {
        name: "message_too_long",
        about: "a message beyond the declared maximum is taken",
        runs: Runs::Tcp,
        edits: &[edit(CHECK, "len as u64 <= info.limits.message", "true")],
        cases: &["send.over_max"],
    },
    Mutant {
        name: "misaligned_atomic",
        about: "a misaligned atomic is no error of the call",
        runs: Runs::Tcp,
        edits: &[edit(CHECK, "!at.addr().addr.is_multiple_of(size as u64)", "false")],
        cases: &["atomic.misaligned"],
    },
    Mutant {
        name: "region_let_go",
        about: "an operation in flight does not keep its region",
        runs: Runs::Tcp,
        edits: &[edit(CHECK, "into.keep.add(core.clone());", "")],
        cases: &["memory.dereg_busy"],
    },
    Mutant {
        name: "closed_though_busy",
        about: "a region closes while operations use it",
        runs: Runs::Tcp,
        edits: &[edit(REGION, "self.is_used() && self.is_still_used()", "false")],
        cases: &["memory.dereg_busy"],
    },
    Mutant {
        name: "unsignaled_unasked",
        about: "closing a region does not ask whether unsignaled operations have ended",
        runs: Runs::Tcp,
        edits: &[edit(REGION, "self.core.domain.settle();", "")],
        cases: &["memory.close_unsignaled"],
    },
    Mutant {
        name: "dropped_not_reclaimed",
        about: "nobody finds out that unsignaled operations no longer use a dropped region",
        runs: Runs::Tcp,
        edits: &[edit(REGION, "domain.reclaim(&self.core);", "")],
        cases: &["memory.drop_unsignaled"],
    },
    Mutant {
        name: "silent_failure",
        about: "an unsignaled operation that fails is not reported",
        runs: Runs::Tcp,
        edits: &[edit(MEMBERS, "report == Report::Failure && !ok", "false")],
        cases: &["completion.unsignaled_error", "completion.unsignaled_flush"],
    },
    Mutant {
        name: "all_quiet",
        about: "unsignaled operations are never signaled inside",
        runs: Runs::Tcp,
        edits: &[edit(POST, "lane.quiet + 1 >= self.quiet_most()", "false")],
        cases: &["completion.all_unsignaled", "completion.unsignaled_post_only"],
    },
    Mutant {
        name: "lost_immediate",
        about: "immediate data does not reach the application",
        runs: Runs::Tcp,
        edits: &[edit(MEMBERS, "completion.immediate = raw.immediate;", "")],
        cases: &["send.imm", "rma.write_imm"],
    },
    Mutant {
        name: "length_of_the_receive",
        about: "a receive tells the length of its memory, not of the message",
        runs: Runs::Tcp,
        edits: &[edit(MEMBERS, "completion.len = raw.len as usize;", "completion.len = slot.len;")],
        cases: &["send.recv_larger"],
    },
    Mutant {
        name: "overbooked_queue",
        about: "endpoints are bound to a completion queue beyond its room",
        runs: Runs::Tcp,
        edits: &[edit(CQ, "if room > free {", "if room > free + usize::from(MUTANT) * room {")],
        cases: &["completion.shared_queue", "flow.cq_reserve"],
    },
    Mutant {
        name: "sleep_on_the_stash",
        about: "a queue that is armed forgets the completions it has taken from the provider already",
        runs: Runs::Tcp,
        edits: &[edit(
            CQ,
            "        if !state.stash.is_empty() {\n            return Ok(Armed::Ready);",
            "        if !state.stash.is_empty() && !MUTANT {\n            return Ok(Armed::Ready);",
        )],
        cases: &["completion.wait_after_full"],
    },
    Mutant {
        name: "canceled_is_ok",
        about: "what a dropped endpoint had in flight is Ok",
        runs: Runs::Tcp,
        edits: &[edit(
            CQ,
            "Completion::new(slot.context, shared.id, slot.kind, Status::Canceled)",
            "Completion::new(slot.context, shared.id, slot.kind, Status::Ok)",
        )],
        cases: &["connection.cancel_connect"],
    },
    Mutant {
        name: "told_twice",
        about: "the end of a connection is told twice",
        runs: Runs::Tcp,
        edits: &[
            // The handles let the second one fall, on behalf of all providers.
            edit("src/eq.rs", "!shared.ended.swap(true, Ordering::AcqRel)", "true"),
            edit(
                "fabric-util/src/stream/mod.rs",
                "self.report(Event::Disconnected { endpoint, reason });",
                "self.report(Event::Disconnected { endpoint, reason }); self.report(Event::Disconnected { endpoint, reason });",
            ),
        ],
        cases: &["protection.target_learns"],
    },
    Mutant {
        name: "others_swept_away",
        about: "with a dropped endpoint go the completions of the others that wait in its queue",
        runs: Runs::Tcp,
        edits: &[edit(
            CQ,
            "        let mut left = 0;\n",
            "        if MUTANT { state.stash.clear(); }\n        let mut left = 0;\n",
        )],
        cases: &["teardown.drop_keeps_other"],
    },
    Mutant {
        name: "room_too_early",
        about: "the room of a dropped endpoint is given away while its completions still wait",
        runs: Runs::Tcp,
        edits: &[edit(CQ, "state.reserved - tenant.room + left", "state.reserved - tenant.room")],
        cases: &["teardown.endpoint_drop_frees_regions"],
    },
    Mutant {
        name: "kept_by_the_dead",
        about: "the regions of a dropped endpoint's operations are never let go",
        runs: Runs::Tcp,
        edits: &[edit(CQ, "slot.keep.release(&mut released)", "std::mem::forget(slot.keep)")],
        cases: &["teardown.endpoint_drop_frees_regions"],
    },
    Mutant {
        name: "shutdown_at_once",
        about: "shutdown does not wait for what was posted",
        runs: Runs::Tcp,
        edits: &[edit(ENDPOINT, "self.drain(Instant::now().checked_add(timeout))", "Ok(())")],
        cases: &["teardown.shutdown_drains"],
    },
    Mutant {
        name: "shutdown_of_the_signaled",
        about: "shutdown does not find out about unsignaled operations",
        runs: Runs::Tcp,
        edits: &[edit(ENDPOINT, "self.flush(&mut side.lane)", "true")],
        cases: &["teardown.shutdown_drains"],
    },
    Mutant {
        name: "eaten_wake_up",
        about: "who looks at a queue clears the sign for the others that sleep on it",
        runs: Runs::Tcp,
        edits: &[edit(
            CQ,
            "        if armed == Armed::Ready {",
            "        if armed == Armed::Ready && !MUTANT {",
        )],
        cases: &["threads.wait_many"],
    },
];
