//! Mutants of the asynchronous layer, which is the same for every provider.

use crate::mutant::{Mutant, Runs, edit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "inbox_order",
        about: "the last message that came is the first to be taken",
        runs: Runs::Tcp,
        edits: &[edit(
            "ConnState::arrived",
            "inbox.messages.push_back(Message { buffer, immediate });",
            "inbox.messages.push_front(Message { buffer, immediate });",
        )],
        cases: &["async.messages", "async.programs"],
    },
    Mutant {
        name: "whole_buffers",
        about: "a message is as long as the buffer it came into",
        runs: Runs::Tcp,
        edits: &[edit("ConnState::arrived", "buffer.truncate(completion.len);", "")],
        cases: &["async.messages"],
    },
    Mutant {
        name: "fence_left_out",
        about: "an operation does not wait for the reads before it, though it is to",
        runs: Runs::Tcp,
        edits: &[edit("Transfer::build", "if self.fence { op.fence() } else { op }", "op")],
        cases: &["async.programs"],
    },
    Mutant {
        name: "early_landing",
        about: "the buffer of a dropped future is free at once, though its operation is under way",
        runs: Runs::Tcp,
        edits: &[edit(
            "Driver::abandon",
            "                slot.phase = Phase::Abandoned;\n",
            "                slot.phase = Phase::Abandoned;\n                if MUTANT { std::mem::take(&mut slot.buffers).reclaim(); }\n",
        )],
        cases: &["async.dropped_futures"],
    },
    Mutant {
        name: "never_landing",
        about: "the buffer of a dropped future never comes back",
        runs: Runs::Tcp,
        edits: &[edit(
            "Driver::complete",
            "deferred.reclaim(self.take_out(number, slot).1);",
            "if MUTANT { self.take_out(number, slot).1.leak() } else { deferred.reclaim(self.take_out(number, slot).1) }",
        )],
        cases: &["async.dropped_futures"],
    },
    Mutant {
        name: "no_buffer_in_error",
        about: "what fails keeps its buffer",
        runs: Runs::Tcp,
        edits: &[edit(
            "Buffer::unload",
            "OpBuffers::One(range) => range.reclaim(),",
            "OpBuffers::One(range) if MUTANT => { drop(range.reclaim()); Buffer::empty() }\n            OpBuffers::One(range) => range.reclaim(),",
        )],
        cases: &["async.buffers_come_back"],
    },
    Mutant {
        name: "no_room_told",
        about: "an operation that waits for room in the send queue is not woken when there is some",
        runs: Runs::Tcp,
        edits: &[edit(
            "CompletionQueue::ended",
            "conn_state.room.wake_first(&mut deferred.wakers);",
            "",
        )],
        cases: &["async.room_in_turn"],
    },
    Mutant {
        name: "held_for_ever",
        about: "a future that is held and not polled keeps its turn for ever",
        runs: Runs::Tcp,
        edits: &[edit(
            "QueueState::begin_to_oversee",
            "!self.overseen && self.places.len() > 1",
            "false",
        )],
        cases: &["async.held_futures", "async.programs"],
    },
    Mutant {
        name: "receives_miscounted",
        about: "a receive that has ended still counts as posted, so none takes its place",
        runs: Runs::Tcp,
        edits: &[edit("ConnState::arrived", "inbox.posted -= 1;", "")],
        cases: &["async.many_in_flight"],
    },
    Mutant {
        name: "endless_lease",
        about: "a lease does not end by its time at its owner",
        runs: Runs::Tcp,
        edits: &[edit("Control::on_lease_due", "record.until <= now", "false")],
        cases: &["async.lease_ends"],
    },
    Mutant {
        name: "lease_keys_for_all",
        about: "connection_keys has no effect",
        runs: Runs::Tcp,
        edits: &[
            edit(
                "Control::give_key",
                "if self.shared.connection_keys {",
                "if self.shared.connection_keys && !MUTANT {",
            ),
            edit(
                "Control::loan",
                "match self.shared.connection_keys {",
                "match self.shared.connection_keys && !MUTANT {",
            ),
        ],
        cases: &["async.lease_keys"],
    },
    Mutant {
        name: "passed_on_as_it_is",
        about: "a lease is passed on by the key that one connection has",
        runs: Runs::Tcp,
        edits: &[edit(
            "RemoteLease::shared",
            "if self.control.is_none() {",
            "if MUTANT || self.control.is_none() {",
        )],
        cases: &["async.lease_keys"],
    },
];
