//! The wire format, version 1. Pure: bytes to values and back, no I/O, no panics on any input.
//!
//! All numbers are little-endian. A connection is one stream of bytes in each direction. It begins with
//! handshake frames ([`handshake`]), then come data frames ([`frame`]).
//!
//! # Handshake frame: 20 bytes, then private data, then 32 bytes if it is sealed
//! | at | size | field | |
//! |---|---|---|---|
//! | 0 | 4 | magic | `FBRC` |
//! | 4 | 1 | version | 1 |
//! | 5 | 1 | kind | 1 hello, 2 accept, 3 reject, 4 refuse, 5 challenge, 6 proof, 7 encrypt, 8 identify |
//! | 6 | 2 | data | bytes of private data that follow: hello 0..=48, accept 0..=192, reject 0..=128, encrypt and identify 0..=32, others 0 |
//! | 8 | 4 | reads | hello and accept: reads and atomics the sender answers at a time, at least 1; others 0 |
//! | 12 | 4 | credit | hello and accept: receives the sender has posted; others 0 |
//! | 16 | 1 | sealed | 1: 32 bytes follow the private data; always in challenge, proof and encrypt, never in refuse |
//! | 17 | 1 | reason | refuse: 0 the backlog is full, or the listener closed; 1 the listening side wants the proof of a secret; 2 it has no secret; 3 the proof is none; 4 it encrypts; 5 it does not; 6 it wants a certificate; 7 it has none. Others 0 |
//! | 18 | 2 | reserved | 0 |
//!
//! The connecting side sends hello, the listening side answers with accept, reject or refuse. After accept the
//! connecting side sends an `ack` frame at once, by which the other side knows that it got there.
//!
//! Where both have a secret, hello is sealed with a random number; the listening side answers with challenge, sealed with
//! another; and the connecting side with proof. Proof, accept and reject are sealed with HMAC-SHA-256 over all handshake frames
//! that either side has sent, in their order, and over the frame itself as far as its seal. The key is 64 bytes by HKDF-SHA-256,
//! with the salt `anyfabric` and the info `handshake 1, initiator` or `handshake 1, acceptor`, from the secret. What is not sealed
//! so, or wrongly, ends the connection, and the application does not hear of it.
//!
//! Where both encrypt, the connecting side says encrypt instead, or identify where it proves by a certificate who it is. With a
//! secret its private data is a random number, and it is sealed as the first frame of a connection; identify has neither where
//! there is no secret. Behind it comes TLS, and in that the handshake as without a secret. An answer that is no TLS is refuse.
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
mod whole_send;

pub use malformed::Malformed;
pub(crate) use malformed::u64_at;
pub(crate) use whole_send::WholeSend;
