//! What goes before the application's bytes in a connection's private data.
//!
//! librdmacm pads private data with zeroes, so the true length travels in front; and any program may connect, so a
//! request and a refusal begin with a magic. Sizes: 56 bytes on a request, 196 on an accept, 148 on a reject; multi-byte
//! numbers are little-endian.
//!
//! | message | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
//! |---|---|---|---|---|---|---|---|---|
//! | request | `f` | `b` | version | length | probe queue pair, 3 bytes ||| kind |
//! | accept | length | probe queue pair, 3 bytes ||| data ... ||||
//! | reject | `f` | `b` | version | kind | length | reason | 0 | 0 |
//!
//! An accept has no version: it answers in that of the request. The probe queue pair is zero for a device that
//! needs none (`quirks.rs`).
//!
//! Where both ends have a secret (`handshake.rs`), a message has its whole size, and all of it counts. A request is a hello,
//! with the private data, or a proof: a ticket (8 bytes from the 8th), a random number (16), a seal. An accept, and a
//! reject by the application, end with a seal. A challenge is a reject with a ticket (8 bytes from the 8th) and a random
//! number (32).

use fabric_core::info::{MAX_ACCEPT_DATA, MAX_CONNECT_DATA, MAX_REJECT_DATA};
use fabric_util::proof::SEAL;
use fabric_util::refusal::RefuseReason;

const MAGIC: [u8; 2] = *b"fb";
const VERSION: u8 = 1;
const REQUEST: usize = 8;
const ACCEPT: usize = 4;
const REJECT: usize = 8;
const TICKET: usize = 8;
/// Bytes of a proof, which are the first of a whole one: a request has no room for more.
pub(crate) const SHORT_SEAL: usize = 24;
/// Bytes of an initiator's random number.
pub(crate) const NONCE: usize = 16;

/// The whole private data of a message.
pub(crate) type RequestBytes = [u8; 56];
pub(crate) type AcceptBytes = [u8; 196];
pub(crate) type RejectBytes = [u8; 148];

const _: () = assert!(REQUEST + MAX_CONNECT_DATA <= size_of::<RequestBytes>());
const _: () = assert!(REQUEST + TICKET + NONCE + SHORT_SEAL == size_of::<RequestBytes>());
const _: () = assert!(ACCEPT + MAX_ACCEPT_DATA + SHORT_SEAL <= size_of::<AcceptBytes>());
const _: () = assert!(REJECT + MAX_REJECT_DATA + SHORT_SEAL <= size_of::<RejectBytes>());

/// What a request or an accept carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectParams {
    /// The number of the queue pair that answers probes; zero if there is none.
    pub(crate) probe: u32,
    pub(crate) data: Box<[u8]>,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Hello {
        params: ConnectParams,
        /// The peer has a secret.
        is_secured: bool,
    },
    /// The answer to the challenge with this ticket.
    Proof { ticket: u64 },
}

/// Why a peer rejected a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The library: the backlog is full, the listener closed, the request made no sense, there is no common secret.
    Refused(RefuseReason),
    /// The application, with its data.
    Rejected(Box<[u8]>),
    /// The request is to be made again, with a proof.
    Challenge { ticket: u64 },
}

/// What a message ends with where both ends have a secret, and what is before it.
pub(crate) fn split_seal<const N: usize>(bytes: &[u8; N]) -> (&[u8], &[u8; SHORT_SEAL]) {
    // Every message is longer than its seal.
    bytes.split_last_chunk().unwrap_or((&[], &[0; SHORT_SEAL]))
}

/// With the zeroes that librdmacm pads with, or cut to what counts.
pub(crate) fn whole<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut whole = [0; N];
    let len = bytes.len().min(N);
    whole[..len].copy_from_slice(&bytes[..len]);
    whole
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

pub(crate) fn request(probe: u32, data: &[u8], is_secured: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(REQUEST + data.len());
    bytes.extend(MAGIC);
    bytes.extend([VERSION, data.len() as u8]);
    bytes.extend(&probe.to_le_bytes()[..3]);
    bytes.push(is_secured.into());
    bytes.extend(data);
    bytes
}

/// A proof; its seal is to follow.
pub(crate) fn proof(ticket: u64, nonce: &[u8; SEAL]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size_of::<RequestBytes>());
    bytes.extend(MAGIC);
    bytes.extend([VERSION, 0, 0, 0, 0, 2]);
    bytes.extend(ticket.to_le_bytes());
    bytes.extend(&nonce[..NONCE]);
    bytes
}

/// Reads a request; the error says what is wrong with it.
pub(crate) fn parse_request(bytes: &[u8]) -> Result<Request, &'static str> {
    let (head, rest) = bytes.split_at_checked(REQUEST).ok_or("its private data is too short")?;
    if head[..2] != MAGIC {
        return Err("it is no endpoint of this library");
    }
    if head[2] != VERSION {
        return Err("it speaks another version");
    }
    match head[7] {
        kind @ 0..=1 => {
            let params = params(head[3], MAX_CONNECT_DATA, &head[4..7], rest)?;
            Ok(Request::Hello { params, is_secured: kind == 1 })
        }
        2 => {
            let ticket = rest.get(..TICKET).ok_or("its private data is too short")?;
            Ok(Request::Proof { ticket: number(ticket) })
        }
        _ => Err("its request is of no known kind"),
    }
}

pub(crate) fn accept(probe: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![data.len() as u8];
    bytes.extend(&probe.to_le_bytes()[..3]);
    bytes.extend(data);
    bytes
}

/// Reads an accept; the error says what is wrong with it.
pub(crate) fn parse_accept(bytes: &[u8]) -> Result<ConnectParams, &'static str> {
    let (head, rest) = bytes.split_at_checked(ACCEPT).ok_or("its private data is too short")?;
    params(head[0], MAX_ACCEPT_DATA, &head[1..4], rest)
}

fn params(len: u8, max: usize, probe: &[u8], rest: &[u8]) -> Result<ConnectParams, &'static str> {
    let data = rest.get(..len.into()).filter(|data| data.len() <= max);
    let data = data.ok_or("its private data is shorter than it says, or too long")?.into();
    Ok(ConnectParams { probe: number(probe) as u32, data })
}

pub(crate) fn reject(rejection: &Rejection) -> Vec<u8> {
    let (kind, reason, data): (u8, _, &[u8]) = match rejection {
        Rejection::Refused(reason) => (0, *reason, &[]),
        Rejection::Rejected(data) => (1, RefuseReason::Full, data),
        Rejection::Challenge { ticket } => (2, RefuseReason::Full, &ticket.to_le_bytes()),
    };
    let mut bytes = Vec::with_capacity(size_of::<RejectBytes>());
    bytes.extend(MAGIC);
    bytes.extend([VERSION, kind, data.len() as u8, reason as u8, 0, 0]);
    bytes.extend(data);
    bytes
}

/// Reads a rejection by a peer's program; one that is not this library's is a refusal.
pub(crate) fn parse_reject(bytes: &[u8]) -> Rejection {
    let parse = || {
        let (head, rest) = bytes.split_at_checked(REJECT)?;
        if head[..2] != MAGIC || head[2] != VERSION {
            return None;
        }
        let data = rest.get(..head[4].into())?;
        match head[3] {
            0 => RefuseReason::of_byte(head[5]).map(Rejection::Refused),
            1 if data.len() <= MAX_REJECT_DATA => Some(Rejection::Rejected(data.into())),
            2 if data.len() == TICKET => Some(Rejection::Challenge { ticket: number(data) }),
            _ => None,
        }
    };
    parse().unwrap_or(Rejection::Refused(RefuseReason::Full))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exact_lengths_survive_padding(
            data in prop::collection::vec(any::<u8>(), 0..=MAX_CONNECT_DATA), probe in 0u32..1 << 24,
            ticket: u64, is_secured: bool, padding in 0usize..64,
        ) {
            let pad = |mut bytes: Vec<u8>| { bytes.resize(bytes.len() + padding, 0); bytes };
            let params = ConnectParams { probe, data: data.clone().into() };
            prop_assert_eq!(parse_accept(&pad(accept(probe, &data))).unwrap(), params.clone());
            let hello = Request::Hello { params, is_secured };
            prop_assert_eq!(parse_request(&pad(request(probe, &data, is_secured))).unwrap(), hello);
            let proof = pad(proof(ticket, &[7; SEAL]));
            prop_assert_eq!(parse_request(&proof).unwrap(), Request::Proof { ticket });
            let reasons = RefuseReason::ALL.map(Rejection::Refused);
            for no in [Rejection::Rejected(data.into()), Rejection::Challenge { ticket }].into_iter().chain(reasons) {
                prop_assert_eq!(parse_reject(&pad(reject(&no))), no);
            }
        }

        #[test]
        fn garbage_is_an_error_or_a_refusal(bytes in prop::collection::vec(any::<u8>(), 0..255)) {
            let _ = parse_request(&bytes);
            let _ = parse_accept(&bytes);
            let _ = parse_reject(&bytes);
        }
    }

    #[test]
    fn strangers_are_told_apart() {
        assert!(parse_request(&[0; 56]).unwrap_err().contains("no endpoint"));
        assert!(parse_request(b"fb\x02\0\0\0\0\0").unwrap_err().contains("version"));
        assert!(parse_request(b"fb").unwrap_err().contains("too short"));
        assert!(parse_request(b"fb\x01\x09\0\0\0\0").unwrap_err().contains("shorter"));
        assert!(parse_request(b"fb\x01\0\0\0\0\x02").unwrap_err().contains("too short"));
        assert!(parse_request(b"fb\x01\0\0\0\0\x03").unwrap_err().contains("kind"));
        let long = request(0, &[1; MAX_CONNECT_DATA + 1], false);
        assert!(parse_request(&long).is_err());
        let refused = Rejection::Refused(RefuseReason::Full);
        for other in [
            &b"fb\x02\x01\0\0\0\0"[..],
            b"fb\x01\0\0\xff\0\0",
            b"fb\x01\x03\0\0\0\0",
            b"fb\x01\x02\0\0\0\0",
        ] {
            assert_eq!(parse_reject(other), refused);
        }
    }
}
