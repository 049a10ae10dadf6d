//! Encryption: a transport whose bytes are TLS records of another.
//!
//! TLS 1.3 (RFC 8446) by rustls, which also changes the keys before they have encrypted too much. The initiator says first, in
//! one handshake frame, that it has the secret; so strangers cost an acceptor a hash and no more, and ends of other levels
//! understand each other enough to say what is wrong (`first`). Behind that each end proves by a key of its own that it has the secret
//! (`keys`). What the connection's protocol says comes within TLS, the hello among it.
//!
//! `session`: TLS between two buffers, with `headers` of the records; `transport`: from and to the transport below; `scatter`: to the memory of the connection.

mod first;
mod headers;
mod keys;
mod scatter;
mod session;
mod transport;

pub use keys::TlsKeys;
pub use transport::TlsTransport;

#[cfg(test)]
mod tests;
