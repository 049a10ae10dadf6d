//! Encryption: a transport whose bytes are TLS records of another.
//!
//! TLS 1.3 (RFC 8446) by rustls, which also changes the keys before they have encrypted too much. The initiator says first, in
//! one handshake frame, by what it proves itself, and that it has the secret, where there is one; so strangers cost an acceptor a
//! hash and no more then, and ends of other levels understand each other enough to say what is wrong (`first`). Behind that
//! each end proves by a key of its own that it has the secret (`raw_keys`), or who it is by a certificate (`certificates`).
//! What the connection's protocol says comes within TLS, the hello among it.
//!
//! `keys`: all that a domain's connections share, from `credentials` of either kind; `session`: TLS between two buffers, with `headers` of the records;
//! `transport`: from and to the transport below; `scatter`: to the memory of the connection.

mod certificates;
mod credentials;
mod first;
mod headers;
mod keys;
mod raw_keys;
mod scatter;
mod session;
mod transport;

pub use keys::TlsKeys;
pub use transport::TlsTransport;

#[cfg(test)]
mod tests;
