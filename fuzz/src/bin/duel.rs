//! `scripts/fuzz 60 duel`: two connections against each other, one of whose streams may be spoiled.
#![no_main]

use fabric_util::fuzzing::{duel, duel_seeds};

fuzz::target!(duel, duel_seeds, ["fabric-util/src/stream", "fabric-util/src/region_table.rs"]);
