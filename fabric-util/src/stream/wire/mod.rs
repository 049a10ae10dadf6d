//! The wire format, version 1. Pure: bytes to values and back, no I/O, no panics on any input.
//!
//! All numbers are little-endian. A connection is one stream of bytes in each direction. It begins with one
//! handshake frame each way ([`handshake`]), then come data frames ([`frame`]).
//!
//! # Handshake frame: 20 bytes, then private data
//! | at | size | field | |
//! |---|---|---|---|
//! | 0 | 4 | magic | `FBRC` |
//! | 4 | 1 | version | 1 |
//! | 5 | 1 | kind | 1 hello, 2 accept, 3 reject, 4 refuse |
//! | 6 | 2 | data | bytes of private data that follow: hello 0..=48, accept 0..=192, reject 0..=128, refuse 0 |
//! | 8 | 4 | reads | reads and atomics the sender answers at a time, at least 1; 0 in reject and refuse |
//! | 12 | 4 | credit | receives the sender has posted; 0 in reject and refuse |
//! | 16 | 4 | reserved | 0 |
//!
//! The connecting side sends hello, the listening side answers with one of the others. After accept the
//! connecting side sends an `ack` frame at once, by which the other side knows that it got there.
//!
//! # Data frame: 24 bytes, then fields by kind, then payload
//! | at | size | field | |
//! |---|---|---|---|
//! | 0 | 1 | kind | below |
//! | 1 | 1 | flags | 1 immediate, 2 last, 4 more, 8 ask |
//! | 2 | 1 | a | atomic operation; status of a `nak` |
//! | 3 | 1 | b | atomic type |
//! | 4 | 4 | length | bytes of payload that follow (`read`: bytes asked for, none follow) |
//! | 8 | 4 | ack | requests that the sender of the frame has accepted, counted from 0, modulo 2^32 |
//! | 12 | 4 | credit | receives that the sender of the frame has posted, modulo 2^32 |
//! | 16 | 4 | sequence | number of the request, or of the request that is answered |
//! | 20 | 4 | immediate | with flag 1; else 0 |
//!
//! | kind | | further fields | payload |
//! |---|---|---|---|
//! | 1 send | request; needs a credit | total:4 reserved:4 | first fragment; flag `more` if others follow |
//! | 2 write | request; with immediate needs a credit | total:4 reserved:4 key:8 address:8 | as send |
//! | 3 read | request | key:8 address:8 | none |
//! | 4 atomic | request | key:8 address:8 operand:8 compare:8 | none; flag `last` asks for the old value |
//! | 5 data | next fragment of the send or write begun | | fragment; flag `more` if others follow |
//! | 6 read data | answer | | chunk; flag `last` on the last one, which may be empty: the read went well |
//! | 7 old value | answer | | 8 bytes |
//! | 8 ack | only carries ack and credit | | none |
//! | 9 nak | the request failed, none after it was executed | | none |
//! | 10 bye | orderly end; nothing follows | | none |
//! | 11 not ready | no shared receive is left for the request `sequence`: that and the requests behind it are discarded, until `resume` | | none |
//! | 12 resume | the answer to `not ready`; no request before `ready` | | none |
//! | 13 ready | requests again, from the first that was discarded on | | none |
//!
//! Credit 2^32 - 1, in the handshake and in every frame, says that the receives are shared with other connections: no request
//! needs a credit then, and one that needs a receive may be answered by `not ready`.
//!
//! Flag `ask` of a send, write, atomic or ack: its sender waits for word, if need be by an `ack` frame, that the
//! requests until this one, or all before this `ack`, are accepted.
//!
//! Requests are numbered from 0 in posting order. A request is accepted when it has been executed in full
//! (a read: when it was checked). The frames of an answer acknowledge its request. Answers come in the order of their requests, before a `nak` of a later
//! one. A receiver treats anything else as a breach that ends the connection.

pub mod frame;
pub mod handshake;
mod malformed;

pub use malformed::Malformed;
pub(crate) use malformed::u64_at;
