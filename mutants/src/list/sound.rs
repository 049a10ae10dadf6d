//! Mutants of what keeps safe programs sound: memory goes only on proof, and user code is called with nothing held, by
//! threads that survive it. User code that misbehaves is not of the suite, so tests find most of them.

use crate::mutant::{Mutant, Runs, edit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "freed_without_proof",
        about: "what was in flight is freed though the provider could not stop it",
        runs: Runs::Tests,
        edits: &[edit("EndpointInner::close", "matches!(quiesced, Some(Ok(())))", "true")],
        cases: &["anyfabric/handles/lifetimes::what_cannot_be_stopped_keeps_its_memory"],
    },
    Mutant {
        name: "freed_though_registered",
        about: "memory is freed though its registration could not be ended",
        runs: Runs::Tests,
        edits: &[edit(
            "RegionCore::drop",
            "self.domain.count_leaked(1);",
            // SAFETY of none: that is the bug.
            "unsafe { ManuallyDrop::drop(&mut self.memory) };",
        )],
        cases: &["anyfabric/handles/regions::memory_that_a_device_does_not_let_go_of_stays"],
    },
    Mutant {
        name: "undeclared_registers",
        about: "a copy in assembly changes registers that it does not declare",
        runs: Runs::Tests,
        edits: &[edit(
            "copy_long",
            "copy_vectors(dst, src, len, is_x86_feature_detected!(\"avx\"));",
            "copy_vectors(dst, src, len, is_x86_feature_detected!(\"avx\")); \
             asm!(\"xor r12d, r12d\", \"xor r13d, r13d\", \"xor r14d, r14d\", \"xor r15d, r15d\");",
        )],
        cases: &["anyfabric-core/lib/memory::tests::registers::numbers_outlive_accesses"],
    },
    Mutant {
        name: "engine_dies",
        about: "a panic ends the engine's thread",
        runs: Runs::Tests,
        edits: &[edit("run_rounds", "callback::caught(&mut round)", "Some(round())")],
        cases: &[
            "anyfabric-tcp/lib/engine::panic_tests::it_ends_the_endpoints_and_the_thread_lives_on",
        ],
    },
    Mutant {
        name: "panic_of_a_sink",
        about: "a panic of an event sink is not caught where the sink is called",
        runs: Runs::Tests,
        edits: &[edit(
            "Reports::flush_all",
            "callback::run(|| self.sink.event(event));",
            "self.sink.event(event);",
        )],
        cases: &["anyfabric-util/lib/reports::tests::each_once_in_order_whatever_panics"],
    },
    Mutant {
        name: "logs_at_once",
        about: "log lines reach the logger where they come up, under locks",
        runs: Runs::Tests,
        edits: &[edit(
            "push",
            "let mut text = message.to_string();",
            "let mut text = message.to_string(); if MUTANT { hand_over(&Line { level, place, text }); return; }",
        )],
        cases: &["anyfabric-util/logging/lines_wait_for_the_logger_and_no_thread_for_it"],
    },
    Mutant {
        name: "events_at_once",
        about: "events reach the sink where they come up, under locks",
        runs: Runs::Tcp,
        edits: &[edit("Engine::add_report", "self.progress.interrupt();", "self.report();")],
        cases: &["connection.connect_basic"],
    },
    Mutant {
        name: "wakers_at_once",
        about: "wakers are called where they are found, under locks",
        runs: Runs::Tcp,
        edits: &[edit(
            "Wakers::wake",
            "self.wake.extend(wakers);",
            "wakers.into_iter().for_each(|waker| Call::Wake(waker).run());",
        )],
        cases: &["async.messages"],
    },
    Mutant {
        name: "converts_under_the_lock",
        about: "a user's conversion runs under the lock of the receive queue",
        runs: Runs::Tests,
        edits: &[edit(
            "Endpoint::recv",
            "let recv = Recv::new(into, context);",
            "let recv = { let _held = MUTANT.then(|| self.lock_recv()); Recv::new(into, context) };",
        )],
        cases: &["anyfabric/handles/arguments::a_conversion_may_call_the_library"],
    },
    Mutant {
        name: "formats_under_the_lock",
        about: "a user's formatter is written to under the queue's lock",
        runs: Runs::Tests,
        edits: &[edit(
            "CqInner::snapshot",
            "self.lock().snapshot()",
            "let state = self.lock(); let snapshot = state.snapshot(); if MUTANT { std::mem::forget(state); } snapshot",
        )],
        cases: &["anyfabric/handles/arguments::a_formatter_may_call_the_library"],
    },
    Mutant {
        name: "trusts_the_runtime",
        about: "a runtime whose task was roused is believed to run it",
        runs: Runs::Tests,
        edits: &[
            edit("by_tokio", "crate::block_on::is_here()", "false"),
            edit(
                "Sleep::see_to_it",
                "node.reactor().timers.oversee(Instant::now() + LAG, me);",
                "drop(me);",
            ),
        ],
        cases: &["anyfabric-async/lifetimes/a_runtime_that_nobody_drives_holds_up_nobody"],
    },
];
