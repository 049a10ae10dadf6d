//! What a domain's level of security makes of its connections: which keys a handshake takes, and what the transport is.

use std::io;
use std::sync::Arc;

use fabric_core::{DomainAttr, EndpointId, Error, RemoteAddr, Result, Security, Segment, SendOp};

use super::io_vec::IoVec;
#[cfg(feature = "encryption")]
use super::tls::{TlsKeys, TlsTransport};
use super::transport::{Reached, Silence, Transport};
use crate::proof::HandshakeKeys;

/// How all connections of a domain are protected.
#[derive(Clone)]
pub enum Protection {
    /// Not at all.
    Open,
    /// Both ends prove in their handshake that they have the secret of these keys.
    Authenticated(Arc<HandshakeKeys>),
    /// They do so before it, or prove who they are by certificates, or both; and encrypt.
    #[cfg(feature = "encryption")]
    Encrypted(TlsKeys),
}

impl Protection {
    /// The most that a provider whose connections are streams of bytes has to offer.
    pub const OFFERED: Security =
        if cfg!(feature = "encryption") { Security::Encrypted } else { Security::Authenticated };

    /// As a domain is opened.
    ///
    /// # Errors
    /// `Unsupported` for a level that is not offered, `InvalidArgument` for an identity that is none, `Internal` if there are
    /// no keys of the secret.
    pub fn new(attr: &DomainAttr) -> Result<Self> {
        match (attr.security, &attr.secret) {
            (Security::Open, _) => Ok(Protection::Open),
            (Security::Authenticated, Some(secret)) => {
                Ok(Protection::Authenticated(Arc::new(HandshakeKeys::new(secret))))
            }
            #[cfg(feature = "encryption")]
            (Security::Encrypted, secret) => {
                Ok(Protection::Encrypted(TlsKeys::new(secret.as_ref(), attr.identity.as_ref())?))
            }
            (level, _) => {
                let text = format!("security {level}, as this library was built");
                Err(Error::unsupported("open domain", "fabric", text))
            }
        }
    }

    /// The keys by which both ends prove in their handshake that they have the secret.
    pub fn handshake(&self) -> Option<&HandshakeKeys> {
        match self {
            Protection::Authenticated(keys) => Some(keys),
            _ => None,
        }
    }

    /// What an initiator's transport becomes, which is connected or becomes so.
    ///
    /// # Errors
    /// `Internal`: there are no random numbers, or encryption failed.
    pub fn initiator<T: Transport>(&self, inner: T) -> Result<Protected<T>> {
        match self {
            #[cfg(feature = "encryption")]
            Protection::Encrypted(keys) => {
                Ok(Protected::Tls(Box::new(TlsTransport::initiator(inner, keys)?)))
            }
            _ => Ok(Protected::Plain(inner)),
        }
    }

    /// What an acceptor's transport becomes, on which nothing was received yet.
    ///
    /// # Errors
    /// `Internal`: encryption failed.
    pub fn acceptor<T: Transport>(&self, inner: T) -> Result<Protected<T>> {
        match self {
            #[cfg(feature = "encryption")]
            Protection::Encrypted(keys) => {
                Ok(Protected::Tls(Box::new(TlsTransport::acceptor(inner, keys)?)))
            }
            _ => Ok(Protected::Plain(inner)),
        }
    }
}

/// A transport that is encrypted or not.
pub enum Protected<T> {
    /// It is as it was.
    Plain(T),
    /// Its bytes are TLS records.
    #[cfg(feature = "encryption")]
    Tls(Box<TlsTransport<T>>),
}

impl<T: Transport> Protected<T> {
    /// What it is over.
    #[inline]
    pub fn inner(&self) -> &T {
        match self {
            Protected::Plain(inner) => inner,
            #[cfg(feature = "encryption")]
            Protected::Tls(tls) => tls.inner(),
        }
    }

    /// What it is over.
    #[inline]
    pub fn inner_mut(&mut self) -> &mut T {
        match self {
            Protected::Plain(inner) => inner,
            #[cfg(feature = "encryption")]
            Protected::Tls(tls) => tls.inner_mut(),
        }
    }
}

/// Calls a method of whichever it is.
macro_rules! either {
    ($transport:expr, $inner:ident => $call:expr) => {
        match $transport {
            Protected::Plain($inner) => $call,
            #[cfg(feature = "encryption")]
            Protected::Tls($inner) => {
                fabric_core::cold_path();
                $call
            }
        }
    };
}

impl<T: Transport> Transport for Protected<T> {
    #[inline]
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        either!(self, inner => unsafe { inner.send(from) })
    }

    #[inline]
    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        // SAFETY: the caller's promise.
        either!(self, inner => unsafe { inner.recv(to) })
    }

    #[inline]
    fn may_have_come(&self) -> bool {
        either!(self, inner => inner.may_have_come())
    }

    #[inline]
    fn is_holding(&self) -> bool {
        either!(self, inner => inner.is_holding())
    }

    fn flush(&mut self) -> io::Result<()> {
        either!(self, inner => inner.flush())
    }

    fn shutdown_write(&mut self) {
        either!(self, inner => inner.shutdown_write());
    }

    fn finish_connect(&mut self) -> io::Result<bool> {
        either!(self, inner => inner.finish_connect())
    }

    fn unsent(&self) -> usize {
        either!(self, inner => inner.unsent())
    }

    fn peer_identity(&self) -> Option<Arc<str>> {
        either!(self, inner => inner.peer_identity())
    }

    fn silence(&self) -> Option<Silence> {
        either!(self, inner => inner.silence())
    }

    fn arm(&mut self) -> bool {
        either!(self, inner => inner.arm())
    }

    #[inline]
    fn is_reached(&self, addr: *const u8, len: usize) -> bool {
        match self {
            Protected::Plain(inner) => inner.is_reached(addr, len),
            #[cfg(feature = "encryption")]
            Protected::Tls(_) => false,
        }
    }

    fn reaches(&self, at: RemoteAddr) -> bool {
        match self {
            Protected::Plain(inner) => inner.reaches(at),
            #[cfg(feature = "encryption")]
            Protected::Tls(_) => false,
        }
    }

    unsafe fn fetch(&mut self, from: RemoteAddr, to: &[IoVec]) -> Option<bool> {
        match self {
            // SAFETY: the caller's promise.
            Protected::Plain(inner) => unsafe { inner.fetch(from, to) },
            #[cfg(feature = "encryption")]
            Protected::Tls(_) => None,
        }
    }

    fn dump(&self) -> Option<String> {
        either!(self, inner => inner.dump())
    }

    // What is encrypted goes by the stream alone.
    fn open(&mut self, endpoint: EndpointId) {
        match self {
            Protected::Plain(inner) => inner.open(endpoint),
            #[cfg(feature = "encryption")]
            Protected::Tls(_) => {}
        }
    }

    fn close(&mut self) {
        match self {
            Protected::Plain(inner) => inner.close(),
            #[cfg(feature = "encryption")]
            Protected::Tls(_) => {}
        }
    }

    #[inline]
    unsafe fn reach(&mut self, op: &SendOp, segments: &[Segment]) -> Reached {
        match self {
            // SAFETY: the caller's promise.
            Protected::Plain(inner) => unsafe { inner.reach(op, segments) },
            #[cfg(feature = "encryption")]
            Protected::Tls(_) => Reached::No,
        }
    }

    #[inline]
    fn gave_up(&self) -> bool {
        either!(self, inner => inner.gave_up())
    }
}
