//! `scripts/fuzz 60 decode`: the decoders never panic, and decode only what they would encode.
#![no_main]

use fabric_util::fuzzing::{decode, decode_seeds};

fuzz::target!(decode, decode_seeds, ["fabric-util/src/stream/wire"]);
