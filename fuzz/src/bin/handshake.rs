//! `scripts/fuzz 60 handshake`: a stranger makes no connection of an end that has a secret, and nothing panics.
#![no_main]

use fabric_util::fuzzing::{handshake, handshake_seeds};

fuzz::target!(
    handshake,
    handshake_seeds,
    [
        "fabric-util/src/stream/greeting.rs",
        "fabric-util/src/stream/wire/handshake.rs",
        "fabric-util/src/stream/tls",
    ]
);
