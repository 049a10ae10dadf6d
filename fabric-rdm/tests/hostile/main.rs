//! Peers that break the protocol: what they send, and what an honest endpoint makes of it.
//!
//! | file | what belongs there |
//! |---|---|
//! | `attacker` | a peer by a plain connected endpoint, with the encoding of requests and frames written anew |
//! | `scene` | the honest endpoints: the one that is attacked, and another peer of it that has to go on undisturbed |
//! | `frames` | frames that are none, and confirmations |
//! | `messages` | messages, pieces and offers |
//! | `words` | what is said of messages and windows |
//! | `connections` | requests, strangers, parking, silence |
//! | `refusals` | peers that refuse |
//! | `calls` | what the application does meanwhile |
//! | `honest` | what needs no attacker to go wrong |

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod attacker;
mod calls;
mod connections;
mod frames;
mod honest;
mod messages;
mod refusals;
mod scene;
mod words;
