//! Sends in one frame that came whole.

use super::frame::{ASK, BASE, IMMEDIATE, MAX_PAYLOAD, SEND, SEND_HEADER};
use super::malformed::{u32_at, u64_at};
use fabric_core::{cold_path, unlikely};

/// A send in one frame, with its payload: what mostly comes.
#[derive(Debug)]
pub(crate) struct WholeSend<'a> {
    /// As of any [`Header`].
    pub(crate) imm: Option<u32>,
    /// As there.
    pub(crate) ask: bool,
    /// As there.
    pub(crate) ack: u32,
    /// As there.
    pub(crate) credit: u32,
    /// As there.
    pub(crate) seq: u32,
    /// The message.
    pub(crate) payload: &'a [u8],
    /// What is behind it.
    pub(crate) rest: &'a [u8],
}

impl<'a> WholeSend<'a> {
    /// Reads one from the start of `bytes`, in fewer steps than [`Header::decode`], which says what else it may be.
    #[inline]
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        const IMM: u32 = (IMMEDIATE as u32) << 8;
        const ASKS: u32 = (ASK as u32) << 8;
        let Some((header, behind)) = bytes.split_first_chunk::<SEND_HEADER>() else {
            cold_path();
            return None;
        };
        let word = |at| u32_at(header, at);
        let (first, len, immediate) = (word(0), word(4), word(20));
        let has_imm = first & IMM != 0;
        let is_one = (first & !(IMM | ASKS) == u32::from(SEND))
            & (u64_at(header, BASE) == u64::from(len))
            & (len <= MAX_PAYLOAD)
            & (has_imm | (immediate == 0));
        if unlikely(!is_one | (behind.len() < len as usize)) {
            return None;
        }
        let imm = has_imm.then_some(immediate);
        let (payload, rest) = behind.split_at(len as usize);
        let (ack, credit, seq) = (word(8), word(12), word(16));
        Some(WholeSend { imm, ask: first & ASKS != 0, ack, credit, seq, payload, rest })
    }
}

// Without unsafe code there is nothing here for Miri.
#[cfg(not(miri))]
#[cfg(test)]
mod tests {
    use super::super::frame::{Header, Kind};
    use super::*;
    use proptest::prelude::*;

    /// The same by the header.
    fn by_header(bytes: &[u8]) -> Option<(Header, &[u8], &[u8])> {
        let (header, size) = Header::decode(bytes).ok()??;
        let is_whole = matches!(header.kind, Kind::Send { total, .. } if total == header.len);
        let (payload, rest) = bytes[size..].split_at_checked(header.len as usize)?;
        is_whole.then_some((header, payload, rest))
    }

    proptest! {
        #[test]
        fn is_what_the_header_says(
            (len, imm, ask, counts) in (0..40u32, any::<Option<u32>>(), any::<bool>(), any::<[u32; 3]>()),
            (at, to) in prop::option::of((0..SEND_HEADER, 0..40u8)).prop_map(|change| change.unwrap_or((0, SEND))),
            cut in 0..200usize,
        ) {
            let (kind, [ack, credit, seq]) = (Kind::Send { total: len, imm }, counts);
            let mut bytes = Vec::new();
            Header { kind, ask, len, ack, credit, seq }.encode(&mut bytes);
            bytes[at] = to;
            bytes.extend(0..100);
            bytes.truncate(cut);
            let read = WholeSend::read(&bytes).map(|send| {
                let WholeSend { imm, ask, ack, credit, seq, payload, rest } = send;
                let len = payload.len() as u32;
                (Header { kind: Kind::Send { total: len, imm }, ask, len, ack, credit, seq }, payload, rest)
            });
            prop_assert_eq!(read, by_header(&bytes));
        }
    }
}
