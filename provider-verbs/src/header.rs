//! What goes before the application's bytes in a connection's private data.
//!
//! librdmacm pads private data with zeroes, so the true length travels in front; and any program may connect, so a
//! request and a refusal begin with a magic. Sizes: 56 bytes on a request (8 are ours), 196 on an accept (4),
//! 148 on a reject (8); multi-byte numbers are little-endian.
//!
//! | message | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
//! |---|---|---|---|---|---|---|---|---|
//! | request | `f` | `b` | version | length | probe queue pair, 3 bytes ||| 0 |
//! | accept | length | probe queue pair, 3 bytes ||| data ... ||||
//! | reject | `f` | `b` | version | kind | length | 0 | 0 | 0 |
//!
//! An accept has no version: it answers in that of the request. The probe queue pair is zero for a device that
//! needs none (`quirks.rs`).

use fabric_core::info::{MAX_ACCEPT_DATA, MAX_CONNECT_DATA, MAX_REJECT_DATA};

const MAGIC: [u8; 2] = *b"fb";
const VERSION: u8 = 1;
const REQUEST: usize = 8;
const ACCEPT: usize = 4;
const REJECT: usize = 8;

const _: () = assert!(REQUEST + MAX_CONNECT_DATA <= 56);
const _: () = assert!(ACCEPT + MAX_ACCEPT_DATA <= 196);
const _: () = assert!(REJECT + MAX_REJECT_DATA <= 148);

/// What a request or an accept carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectParams {
    /// The number of the queue pair that answers probes; zero if there is none.
    pub(crate) probe: u32,
    pub(crate) data: Box<[u8]>,
}

/// Why a peer rejected a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// The library: the backlog is full, the listener closed, the request made no sense.
    Refused,
    /// The application, with its data.
    Rejected(Box<[u8]>),
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

pub(crate) fn request(probe: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(REQUEST + data.len());
    bytes.extend(MAGIC);
    bytes.extend([VERSION, data.len() as u8]);
    bytes.extend(&probe.to_le_bytes()[..3]);
    bytes.push(0);
    bytes.extend(data);
    bytes
}

/// Reads a request; the error says what is wrong with it.
pub(crate) fn parse_request(bytes: &[u8]) -> Result<ConnectParams, &'static str> {
    let (head, rest) = bytes.split_at_checked(REQUEST).ok_or("its private data is too short")?;
    if head[..2] != MAGIC {
        return Err("it is no endpoint of this library");
    }
    if head[2] != VERSION {
        return Err("it speaks another version");
    }
    params(head[3], MAX_CONNECT_DATA, &head[4..7], rest)
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
    Ok(ConnectParams { probe: number(probe), data })
}

pub(crate) fn reject(rejection: &Rejection) -> Vec<u8> {
    let (kind, data): (u8, &[u8]) = match rejection {
        Rejection::Refused => (0, &[]),
        Rejection::Rejected(data) => (1, data),
    };
    let mut bytes = Vec::with_capacity(REJECT + data.len());
    bytes.extend(MAGIC);
    bytes.extend([VERSION, kind, data.len() as u8, 0, 0, 0]);
    bytes.extend(data);
    bytes
}

/// Reads a rejection by a peer's program; one that is not this library's is a refusal.
pub(crate) fn parse_reject(bytes: &[u8]) -> Rejection {
    let parse = || {
        let (head, rest) = bytes.split_at_checked(REJECT)?;
        let ours = head[..2] == MAGIC && head[2] == VERSION && head[3] == 1;
        let data = rest.get(..head[4].into()).filter(|data| data.len() <= MAX_REJECT_DATA)?;
        ours.then(|| Rejection::Rejected(data.into()))
    };
    parse().unwrap_or(Rejection::Refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exact_lengths_survive_padding(
            data in prop::collection::vec(any::<u8>(), 0..=MAX_CONNECT_DATA), probe in 0u32..1 << 24,
            padding in 0usize..64,
        ) {
            let pad = |mut bytes: Vec<u8>| { bytes.resize(bytes.len() + padding, 0); bytes };
            let params = ConnectParams { probe, data: data.clone().into() };
            prop_assert_eq!(parse_request(&pad(request(probe, &data))).unwrap(), params.clone());
            prop_assert_eq!(parse_accept(&pad(accept(probe, &data))).unwrap(), params);
            let no = Rejection::Rejected(data.into());
            prop_assert_eq!(parse_reject(&pad(reject(&no))), no);
            prop_assert_eq!(parse_reject(&pad(reject(&Rejection::Refused))), Rejection::Refused);
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
        let long = request(0, &[1; MAX_CONNECT_DATA + 1]);
        assert!(parse_request(&long).is_err());
    }
}
