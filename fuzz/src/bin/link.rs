//! `scripts/fuzz 60 link`: whatever a peer sends, everything completes once and nothing panics.
#![no_main]

use fabric_util::fuzzing::{link, link_seeds};

fuzz::target!(
    link,
    link_seeds,
    [
        "fabric-util/src/stream/incoming.rs",
        "fabric-util/src/stream/target.rs",
        "fabric-util/src/stream/initiator.rs",
        "fabric-util/src/stream/wire/frame.rs",
    ]
);
