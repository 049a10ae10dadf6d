//! Mutants of `fabric-core`: what all providers share.

use crate::mutant::{Mutant, Runs, edit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "queue_too_deep",
        about: "a queue takes one operation more than its depth",
        runs: Runs::Tcp,
        edits: &[
            edit(
                "Producer::has_room",
                "self.is_below(self.ring.depth)",
                "self.is_below(self.ring.depth + u32::from(MUTANT))",
            ),
            // Or the ring itself would break, which is noticed in other ways.
            edit("allocate_slots", "count.next_power_of_two()", "(count + 1).next_power_of_two()"),
        ],
        cases: &["completion.depth_counts_untaken", "flow.sq_depth", "flow.rq_depth"],
    },
    Mutant {
        name: "place_never_free",
        about: "an operation that has completed counts against the depth for ever",
        runs: Runs::Tcp,
        edits: &[edit(
            "Consumer::credit",
            "u64::from(count).min(counted)",
            "u64::from(count - count.min(1)).min(counted)",
        )],
        cases: &["rma.read_depth", "completion.exactly_once"],
    },
    Mutant {
        name: "unsigned_min",
        about: "min and max of signed integers compare them as unsigned",
        runs: Runs::Tcp,
        edits: &[edit("integer_arithmetic", "ty.is_signed_integer()", "false")],
        cases: &["atomic.all_ops_types"],
    },
    Mutant {
        name: "nan_wins",
        about: "min and max of a NaN and a number give the NaN",
        runs: Runs::Tcp,
        edits: &[edit(
            "float_arithmetic",
            "AtomicOp::Min | AtomicOp::Max if old.is_nan() => operand_bits,",
            "AtomicOp::Min | AtomicOp::Max if old.is_nan() => if MUTANT { old_bits } else { operand_bits },",
        )],
        cases: &["atomic.all_ops_types"],
    },
    Mutant {
        name: "torn_add",
        about: "an add is a load and a store, between which the CPU can write",
        runs: Runs::Tcp,
        edits: &[edit(
            "atomic",
            "arch::fetch_add(at, width, operand)",
            "{ let old = arch::load_word(at, width); let _ = arch::swap(at, width, old.wrapping_add(operand) & mask); old }",
        )],
        cases: &["atomic.cpu_coherent"],
    },
    Mutant {
        name: "wide_add",
        about: "an add to a narrow element carries into its neighbours",
        runs: Runs::Tcp,
        edits: &[edit(
            "atomic",
            "arch::fetch_add(at, width, operand)",
            "{ let old = arch::load_word(at, width); let _ = arch::fetch_add((at as usize & !7) as *mut u8, 8, operand << (8 * (at as usize & 7))); old }",
        )],
        cases: &["atomic.faa", "atomic.neighbours"],
    },
    Mutant {
        name: "swap_anyway",
        about: "compare-and-swap swaps whatever it finds",
        runs: Runs::Tcp,
        edits: &[edit(
            "atomic",
            "arch::compare_exchange(at, width, call.compare & mask, operand)",
            "arch::swap(at, width, operand)",
        )],
        cases: &["atomic.cas_miss"],
    },
    Mutant {
        name: "no_check_sum",
        about: "a descriptor's check sum is not looked at",
        runs: Runs::Tcp,
        edits: &[edit(
            "RemoteRegion::from_bytes",
            "crc32fast::hash(&bytes[..36]) != (word(32) >> 32) as u32",
            "false",
        )],
        cases: &["memory.desc_corrupt"],
    },
    Mutant {
        name: "descriptor_without_rights",
        about: "the rights that a descriptor states are not looked at before the post",
        runs: Runs::Tcp,
        edits: &[edit(
            "RemoteSlice::check",
            "if fits && self.region.access.contains(need) {",
            "if fits && (self.region.access.contains(need) || MUTANT) {",
        )],
        cases: &["protection.no_remote_read", "protection.no_remote_write"],
    },
    Mutant {
        name: "descriptor_without_end",
        about: "the range that a descriptor states is not looked at before the post",
        runs: Runs::Tcp,
        edits: &[edit(
            "RemoteSlice::check",
            "self.offset.checked_add(len).is_some_and(|end| end <= self.region.len)",
            "true",
        )],
        cases: &["atomic.last_word", "memory.unaligned_base"],
    },
];
