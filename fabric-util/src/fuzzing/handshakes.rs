//! Handshakes: either end at each level, fed with what a stranger says.

use fabric_core::{Identity, Secret};

use crate::proof::{HandshakeKeys, SEAL};
use crate::stream::testing::{Stream, link};
use crate::stream::wire::handshake::{Handshake, HandshakeKind};
use crate::stream::{Greeting, Initiator, READS};
#[cfg(feature = "encryption")]
use crate::stream::{TlsKeys, TlsTransport, Transport};

/// In the first byte: which end is fed, whether it has a secret, encrypts and has an identity; and how long the pieces are.
const INITIATOR: u8 = 0x80;
const SECRET: u8 = 0x40;
#[cfg(feature = "encryption")]
const ENCRYPTS: u8 = 0x20;
#[cfg(feature = "encryption")]
const IDENTITY: u8 = 0x10;
const PIECES: u8 = 0x0f;

/// Feeds bytes to an end that waits for a handshake, as the first byte says. Without the secret, or a key that an authority has
/// certified, they never make a connection of an end that has one, or an identity.
pub fn handshake(bytes: &[u8], identity: &Identity) {
    let Some((&mode, bytes)) = bytes.split_first() else { return };
    let Ok(secret) = Secret::new(&[7; 32]) else { return };
    let pieces = bytes.chunks(usize::from(mode & PIECES).max(1));
    #[cfg(feature = "encryption")]
    if mode & ENCRYPTS != 0 {
        let identity = (mode & IDENTITY != 0).then_some(identity);
        let is_open = encrypted(mode, pieces, &secret, identity).unwrap_or(false);
        assert!(!is_open, "a connection without the secret or a certificate");
        return;
    }
    let keys = (mode & SECRET != 0).then(|| HandshakeKeys::new(&secret));
    let is_open = match mode & INITIATOR {
        0 => acceptor(pieces, keys.as_ref()),
        _ => initiator(pieces, keys.as_ref()).unwrap_or(false),
    };
    assert!(!is_open || keys.is_none(), "a connection without the secret");
}

/// To each end at each level: what comes first, as far as that is known, and each other frame in its place.
pub fn handshake_seeds() -> Vec<Vec<u8>> {
    let frame = |kind, is_sealed| {
        let frame = Handshake { is_sealed, ..Handshake::new(kind, READS, 1) };
        let mut bytes = frame.encode(&[]);
        bytes.resize(bytes.len() + if is_sealed { SEAL } else { 0 }, 7);
        bytes
    };
    let mut seeds = Vec::new();
    for mode in (0..16).map(|mode| mode << 4 | PIECES) {
        for (kind, is_sealed) in
            HandshakeKind::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)])
        {
            let challenge = frame(HandshakeKind::Challenge, true);
            seeds.push([&[mode], &frame(kind, is_sealed)[..]].concat());
            seeds.push([&[mode], &challenge[..], &frame(kind, is_sealed)].concat());
        }
    }
    seeds
}

/// Feeds an end until its connection is made, or never will be.
fn feed<'a, E>(
    pieces: impl Iterator<Item = &'a [u8]>,
    mut take: impl FnMut(&[u8]) -> Result<bool, E>,
) -> bool {
    for piece in pieces {
        match take(piece) {
            Ok(false) => {}
            Ok(true) => return true,
            Err(_) => return false,
        }
    }
    false
}

fn initiator<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    keys: Option<&HandshakeKeys>,
) -> Option<bool> {
    let mut link = link();
    let mut initiator = Initiator::begin(&mut link, b"data", keys).ok()?;
    Some(feed(pieces, |piece| initiator.receive(&mut link, piece)))
}

fn acceptor<'a>(pieces: impl Iterator<Item = &'a [u8]>, keys: Option<&HandshakeKeys>) -> bool {
    let (mut greeting, mut stranger) = (Greeting::new(keys), Stream::default());
    feed(pieces, |piece| {
        stranger.came.extend_from_slice(piece);
        greeting.read(&mut stranger)
    })
}

/// An end that encrypts. An acceptor is first given what an initiator with the secret says first, which can be copied.
#[cfg(feature = "encryption")]
fn encrypted<'a>(
    mode: u8,
    pieces: impl Iterator<Item = &'a [u8]>,
    secret: &Secret,
    identity: Option<&Identity>,
) -> Option<bool> {
    let has_secret = mode & SECRET != 0 || identity.is_none();
    let keys = TlsKeys::new(has_secret.then_some(secret), identity).ok()?;
    let mut stranger = Stream::default();
    if mode & INITIATOR != 0 {
        let mut end = TlsTransport::initiator(stranger, &keys).ok()?;
        return Some(feed(pieces, |piece| {
            end.inner_mut().came.extend_from_slice(piece);
            end.finish_connect()
        }));
    }
    if mode & SECRET != 0 {
        stranger.came = keys.first_frame().ok()?;
    }
    let mut end = TlsTransport::acceptor(stranger, &keys).ok()?;
    let mut greeting = Greeting::new(None);
    Some(feed(pieces, |piece| {
        end.inner_mut().came.extend_from_slice(piece);
        greeting.read(&mut end)
    }))
}
