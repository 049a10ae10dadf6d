//! `scripts/fuzz 60 greeting`: messages by which connections over verbs are made, in any order, changed and made up: no peer is
//! let in that has not proved the secret.
#![no_main]

use provider_verbs::fuzzing::{greeting, greeting_seeds};

fuzz::target!(
    greeting,
    greeting_seeds,
    ["provider-verbs/src/header.rs", "provider-verbs/src/handshake.rs"]
);
