//! Mutants of the TCP provider's protocol: what a naive emulation does.

use super::{Mutant, Runs, edit};

const ACKS: &str = "fabric-util/src/stream/acks.rs";
const ANSWERS: &str = "fabric-util/src/stream/answers.rs";
const CONN: &str = "provider-tcp/src/conn.rs";
const CLOSE: &str = "fabric-util/src/stream/close.rs";
const INCOMING: &str = "fabric-util/src/stream/incoming.rs";
const LINK: &str = "fabric-util/src/stream/mod.rs";
const RECVS: &str = "fabric-util/src/stream/recvs.rs";
const REGION: &str = "fabric-util/src/region_table.rs";
const SENDS: &str = "fabric-util/src/stream/sends.rs";
const TARGET: &str = "fabric-util/src/stream/target.rs";
const TRANSMIT: &str = "fabric-util/src/stream/transmit.rs";

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "complete_at_write",
        about: "an operation is complete when the socket took its bytes",
        runs: Runs::Tcp,
        edits: &[
            edit(
                SENDS,
                "(self.started, self.cut, self.begun) = (self.started + 1, 0, false);",
                "(self.started, self.cut, self.begun) = (self.started + 1, 0, false); self.acked = self.first.wrapping_add(self.started as u32);",
            ),
            edit(SENDS, "ack != self.acked && !self.is_transmitted(ack, transmitted)", "false"),
            edit(SENDS, "(ack.wrapping_sub(self.acked) as i32) < 0", "false"),
            edit(
                SENDS,
                "(self.acked, self.credit) = (ack, credit);",
                "let _ = ack; self.credit = credit;",
            ),
            edit(
                TRANSMIT,
                "self.sends.advance(payload, all.then(|| self.outgoing.end()), ask);",
                "self.sends.advance(payload, all.then(|| self.outgoing.end()), ask); self.outgoing.own(); self.complete_finished();",
            ),
        ],
        cases: &["protection.bad_key", "protection.prefix_ok"],
    },
    Mutant {
        name: "no_upper_bound",
        about: "the end of a remote range is not checked",
        runs: Runs::Tcp,
        edits: &[edit(
            REGION,
            "addr.checked_add(len).is_some_and(|end| end <= self.len)",
            "addr <= self.len",
        )],
        cases: &["protection.oob_straddle"],
    },
    Mutant {
        name: "start_beyond_the_end",
        about: "a remote range may start behind the region",
        runs: Runs::Tcp,
        edits: &[edit(
            REGION,
            "addr.checked_add(len).is_some_and(|end| end <= self.len)",
            "addr <= self.len + 64",
        )],
        cases: &["protection.oob_high"],
    },
    Mutant {
        name: "wrapping_bound",
        about: "the end of a remote range is computed with a wrap",
        runs: Runs::Tcp,
        edits: &[edit(
            REGION,
            "addr.checked_add(len).is_some_and(|end| end <= self.len)",
            "addr.wrapping_add(len) <= self.len",
        )],
        cases: &["protection.addr_wrap", "protection.oob_low"],
    },
    Mutant {
        name: "no_rights",
        about: "the rights of a region are not checked",
        runs: Runs::Tcp,
        edits: &[edit(TARGET, "entry.grants(need)", "true")],
        cases: &["protection.no_remote_write", "protection.no_remote_read", "atomic.no_perm"],
    },
    Mutant {
        name: "stale_key",
        about: "a closed region stays open to its key",
        runs: Runs::Tcp,
        edits: &[
            edit(REGION, "entries.remove(&self.entry.key);", ""),
            edit(REGION, "*self.entry.open.write() = false;", ""),
        ],
        cases: &["memory.dereg_access", "memory.stale_key"],
    },
    Mutant {
        name: "close_beside_a_copy",
        about: "a write that has begun goes on when its region has closed",
        runs: Runs::Tcp,
        edits: &[edit(REGION, "*self.entry.open.write() = false;", "")],
        cases: &["memory.dereg_vs_write", "memory.dereg_vs_read"],
    },
    Mutant {
        name: "carry_on",
        about: "after a refused request the next ones are executed",
        runs: Runs::Tcp,
        edits: &[edit(
            CLOSE,
            "self.finish(DisconnectReason::OperationFailed, Status::Canceled, word, receive);",
            "let _ = (word, receive); let header = self.header(Kind::Nak { status }, 0, seq); self.outgoing.copied(|buffer| header.encode(buffer));",
        )],
        cases: &["protection.prefix_ok"],
    },
    Mutant {
        name: "no_recv_flush",
        about: "a dead endpoint's receives never complete",
        runs: Runs::Tcp,
        edits: &[edit(
            CLOSE,
            "            self.finish_receive(&receive, Status::Canceled);",
            "            if !MUTANT { self.finish_receive(&receive, Status::Canceled); }",
        )],
        cases: &["protection.target_recv_flush"],
    },
    Mutant {
        name: "no_send_flush",
        about: "a dead endpoint's sends, but for the oldest, never complete",
        runs: Runs::Tcp,
        edits: &[edit(
            CLOSE,
            "            self.complete_send(entry.token, entry.flags, status);",
            "            if !(MUTANT && status != oldest) { self.complete_send(entry.token, entry.flags, status); }",
        )],
        cases: &["protection.prefix_ok", "completion.unsignaled_flush", "teardown.close_flush"],
    },
    Mutant {
        name: "flush_backwards",
        about: "a dead endpoint's receives are canceled from the last to the first",
        runs: Runs::Tcp,
        edits: &[edit(
            RECVS,
            "    pub(super) fn cancel(&mut self) -> Option<Receive> {\n        self.queue.pop_front()",
            "    pub(super) fn cancel(&mut self) -> Option<Receive> {\n        if MUTANT { self.queue.pop_back() } else { self.queue.pop_front() }",
        )],
        cases: &["protection.target_recv_flush"],
    },
    Mutant {
        name: "unsignaled_loss",
        about: "an unsignaled operation that fails ends without a word",
        runs: Runs::Tcp,
        edits: &[edit(
            LINK,
            "!flags.contains(SendFlags::SIGNALED) && status == Status::Ok",
            "!flags.contains(SendFlags::SIGNALED)",
        )],
        cases: &["completion.unsignaled_error", "completion.unsignaled_flush"],
    },
    Mutant {
        name: "no_fence",
        about: "a fence does not wait",
        runs: Runs::Tcp,
        edits: &[edit(SENDS, "entry.flags.contains(SendFlags::FENCE) && self.reads > 0", "false")],
        cases: &["ordering.read_fence_send"],
    },
    Mutant {
        name: "free_immediate",
        about: "a write with immediate consumes no receive, and its immediate is lost",
        runs: Runs::Tcp,
        edits: &[edit(
            TARGET,
            "Some(self.recvs.take().ok_or(Breach(\"an immediate without a credit\"))?)",
            "None",
        )],
        cases: &["rma.write_imm", "rma.mixed_imm_send"],
    },
    Mutant {
        name: "truncate",
        about: "a message that is too long is cut",
        runs: Runs::Tcp,
        edits: &[edit(TARGET, "total as usize > receive.len", "false")],
        cases: &["send.oversize_fatal"],
    },
    Mutant {
        name: "drop_empty",
        about: "a message of no bytes never arrives",
        runs: Runs::Tcp,
        edits: &[edit(
            LINK,
            "work.iter().for_each(|one| self.sends.push(one));",
            "for one in work { if matches!(one.op, fabric_core::SendOp::Send { imm: None }) && one.segments.is_empty() { self.complete_send(one.token, one.flags, Status::Ok); } else { self.sends.push(one); } }",
        )],
        cases: &["send.send_zero"],
    },
    Mutant {
        name: "check_empty_write",
        about: "a write of no bytes has its key checked",
        runs: Runs::Tcp,
        edits: &[edit(
            TARGET,
            "let place = if total == 0 {",
            "let place = if total == 0 && !MUTANT {",
        )],
        cases: &["rma.write_zero_badkey", "rma.write_imm_zero"],
    },
    Mutant {
        name: "check_empty_read",
        about: "a read of no bytes has its key checked",
        runs: Runs::Tcp,
        edits: &[edit(TARGET, "let entry = if len == 0 {", "let entry = if len == 0 && !MUTANT {")],
        cases: &["rma.read_zero_badkey"],
    },
    Mutant {
        name: "late_inject",
        about: "the bytes of an inject are read when there is a credit for them",
        runs: Runs::Tcp,
        edits: &[edit(LINK, "self.sends.keep_injected(work.len());", "")],
        cases: &["send.inject_reuse"],
    },
    Mutant {
        name: "repeated_atomic",
        about: "an atomic is executed twice",
        runs: Runs::Tcp,
        edits: &[edit(
            TARGET,
            "unsafe { memory::atomic(entry.at(at.addr), call) }",
            "unsafe { let _ = memory::atomic(entry.at(at.addr), call); memory::atomic(entry.at(at.addr), call) }",
        )],
        cases: &["atomic.faa"],
    },
    Mutant {
        name: "send_before_write",
        about: "a short send overtakes the long write before it",
        runs: Runs::Tcp,
        edits: &[edit(
            SENDS,
            "            end: 0,\n            done: false,\n        });",
            "            end: 0,\n            done: false,\n        });\n        let last = self.entries.len() - 1;\n        if MUTANT && last > self.started && !self.begun && matches!(work.op, SendOp::Send { .. })\n            && matches!(self.entries[last - 1].op, SendOp::Write { imm: None, .. }) && self.entries[last - 1].len > 4096\n        {\n            self.entries.swap(last - 1, last);\n            let (one, two) = (self.entries[last - 1].token, self.entries[last].token);\n            (self.entries[last - 1].token, self.entries[last].token) = (two, one);\n            let (one, two) = (self.entries[last - 1].flags, self.entries[last].flags);\n            let told = SendFlags::SIGNALED;\n            self.entries[last - 1].flags = one.difference(told) | two & told;\n            self.entries[last].flags = two.difference(told) | one & told;\n        }",
        )],
        cases: &["ordering.saw"],
    },
    Mutant {
        name: "answer_out_of_order",
        about: "the read that was asked last is answered first",
        runs: Runs::Tcp,
        edits: &[edit(TARGET, "self.0.push_back(answer);", "self.0.push_front(answer);")],
        cases: &["rma.read_depth", "ordering.raw"],
    },
    Mutant {
        name: "high_bytes",
        about: "the old value of a narrow atomic is taken from the wrong end",
        runs: Runs::Tcp,
        edits: &[edit(
            ANSWERS,
            "let bytes = old.to_ne_bytes();",
            "let bytes = old.to_be_bytes(); #[allow(unused)] let _ = bytes; let bytes = if MUTANT { bytes } else { old.to_ne_bytes() };",
        )],
        cases: &["atomic.faa", "atomic.endian"],
    },
    Mutant {
        name: "missing_credit",
        about: "some of the receives that are posted are not told to the peer",
        runs: Runs::Tcp,
        edits: &[edit(
            RECVS,
            "self.posted = self.posted.wrapping_add(1);",
            "self.posted = self.posted.wrapping_add(u32::from(work.token.sequence() % 16 != 5));",
        )],
        cases: &["send.fifo"],
    },
    Mutant {
        name: "credits_from_nothing",
        about: "a message needs no receive to be sent",
        runs: Runs::Tcp,
        edits: &[edit(SENDS, "entry.needs_credit() && self.credit == self.consumed", "false")],
        cases: &["send.no_recv_pends", "rma.write_imm_no_recv"],
    },
    Mutant {
        name: "early_ack",
        about: "a message is acknowledged when its first byte is there",
        runs: Runs::Tcp,
        edits: &[
            edit(
                INCOMING,
                "self.begin_send(header.seq, total, imm)?;",
                "self.incoming.debt.accept(0); self.begin_send(header.seq, total, imm)?;",
            ),
            edit(
                INCOMING,
                "self.begin_write(header.seq, total, imm, to)?;",
                "self.incoming.debt.accept(0); self.begin_write(header.seq, total, imm, to)?;",
            ),
            edit(TARGET, "self.incoming.debt.accept(total);", ""),
        ],
        cases: &["protection.bad_key", "protection.prefix_ok"],
    },
    Mutant {
        name: "unasked",
        about: "the initiator never asks for the acknowledgement of what it sent behind the first operation",
        runs: Runs::Tcp,
        edits: &[edit(
            SENDS,
            "self.questions.ask(sent, self.acked)",
            "!MUTANT && self.questions.ask(sent, self.acked)",
        )],
        cases: &["completion.all_unsignaled", "completion.depth_counts_untaken"],
    },
    Mutant {
        name: "deaf",
        about: "the target acknowledges after many operations only, though it is asked",
        runs: Runs::Tcp,
        edits: &[edit(ACKS, "untold > 0 && (asked ||", "untold > 0 && (asked && !MUTANT ||")],
        cases: &["send.fifo", "completion.unsignaled_slot", "rma.overlap_writes"],
    },
    Mutant {
        name: "read_of_the_past",
        about: "a read is answered before the write in front of it is executed",
        runs: Runs::Tcp,
        edits: &[edit(
            SENDS,
            "            end: 0,\n            done: false,\n        });",
            "            end: 0,\n            done: false,\n        });\n        let last = self.entries.len() - 1;\n        if MUTANT && last > self.started && !self.begun && matches!(work.op, SendOp::Read { .. })\n            && matches!(self.entries[last - 1].op, SendOp::Write { imm: None, .. })\n        {\n            self.entries.swap(last - 1, last);\n        }",
        )],
        cases: &["rma.read_own_write", "ordering.raw", "ordering.completion_order"],
    },
    Mutant {
        name: "stuck_both_ways",
        about: "while a send waits for a receive, the peer's requests are not answered",
        runs: Runs::Tcp,
        edits: &[edit(
            "fabric-util/src/stream/transmit.rs",
            "!self.put_off.answers && self.cut_answer()",
            "(self.sends.nothing_waits() || self.sends.next().is_some()) && self.cut_answer()",
        )],
        cases: &["flow.stalled_send_reverse", "flow.stalled_both"],
    },
    Mutant {
        name: "silent_credit",
        about: "the peer hears of receives only with a frame that goes its way for another reason",
        runs: Runs::Tcp,
        edits: &[edit(
            "fabric-util/src/stream/recvs.rs",
            "self.told == self.matched || news >= 32 || news as usize * 2 >= self.queue.len()",
            "false",
        )],
        cases: &["flow.stalled_both", "flow.rq_depth"],
    },
    Mutant {
        name: "silent_close",
        about: "a connection is closed without a word",
        runs: Runs::Tcp,
        edits: &[edit(
            "fabric-util/src/stream/close.rs",
            "if open { LastWord::Bye } else { LastWord::None }",
            "LastWord::None",
        )],
        cases: &["teardown.peer_close", "teardown.shutdown_drains"],
    },
    Mutant {
        name: "only_the_kernel_looks",
        about: "no end looks whether what it has sent is answered; the kernel asks idle hosts only",
        runs: Runs::TcpLink,
        edits: &[edit(CONN, "state.wrote && !state.watch.is_on()", "false")],
        cases: &["teardown.link_cut_each_kind", "teardown.link_cut_idle_then_used"],
    },
    Mutant {
        name: "last_success_untold",
        about: "a connection ends without a word of the last unsignaled operation that succeeded",
        runs: Runs::Tcp,
        edits: &[edit(
            CLOSE,
            "self.made_sends.push(RawCompletion::new(token, Status::Ok));",
            "let _ = token;",
        )],
        cases: &["memory.end_unsignaled"],
    },
    Mutant {
        name: "canceled_before_the_event",
        about: "what the end of a connection cancels does not wait until the end was reported",
        runs: Runs::Tests,
        edits: &[edit(LINK, "self.unreported > 0", "false")],
        cases: &[
            "anyfabric-util/lib/stream::tests::what_an_end_cancels_waits_until_the_end_was_reported",
        ],
    },
];
