//! Entry points of the fuzzers in `fuzz/`: the decoders, and one link as the target of a peer's bytes.

use std::io;
use std::sync::Arc;

use crate::stats::Stats;
use fabric_core::{
    Access, EndpointId, RawCompletion, RecvWork, RegistrationOps, RemoteAddr, Segment, SendFlags,
    SendOp, SendWork, Side, Token,
};

use crate::completion_ring::CompletionRing;
use crate::region_table::{RegionTable, Registration};
use crate::stream::wire::{frame::Header, handshake::Handshake};
use crate::stream::{AckPolicy, End, IoVec, Link, LinkContext, READS, Transport};

/// Decodes bytes as both kinds of frame; what decodes must encode to the same bytes.
pub fn decode(bytes: &[u8]) {
    if let Ok(Some((header, len))) = Header::decode(bytes) {
        let mut again = Vec::new();
        header.encode(&mut again);
        assert_eq!(again, &bytes[..len]);
    }
    if let Ok(Some((frame, data, len))) = Handshake::decode(bytes) {
        assert_eq!(frame.encode(data), &bytes[..len]);
    }
}

/// Feeds bytes to a link that has receives, reads and sends in flight, in pieces that the first byte
/// chooses. Afterwards everything must have completed exactly once.
pub fn link(bytes: &[u8]) {
    let Some((&pieces, bytes)) = bytes.split_first() else { return };
    let stats = Arc::new(Stats::default());
    let table = Arc::new(RegionTable::default());
    let mut memory = vec![0u64; 1024];
    let addr = memory.as_mut_ptr().cast::<u8>();
    // SAFETY: the memory outlives the registration.
    let registered = unsafe { Registration::new("fuzz", &table, (addr, 4096), Access::ALL) };
    let Ok(registration) = registered else {
        return;
    };
    let (Ok(sends), Ok(recvs)) = (CompletionRing::new(&stats), CompletionRing::new(&stats)) else {
        return;
    };
    let mut link = Link::new(LinkContext {
        id: EndpointId(1),
        regions: table,
        send_ring: sends.clone(),
        receives: None,
        recv_ring: recvs.clone(),
        stats,
    });
    link.open(READS, 2);
    link.announce(&[]);
    link.take_events();
    link.reported();
    let segment = [Segment::new(addr.wrapping_add(4096), 64, 0)];
    for sequence in 0..4 {
        let token = Token::new(0, 0, Side::Recv, sequence);
        // SAFETY: the memory outlives the link.
        let _ = unsafe { link.post_recv(&[RecvWork::new(token, &segment)]) };
    }
    let from = RemoteAddr { key: 1, addr: 0 };
    let ops = [
        SendOp::Send { imm: None },
        SendOp::Read { from },
        SendOp::Write { to: from, imm: Some(1) },
    ];
    for (sequence, op) in ops.into_iter().enumerate() {
        let token = Token::new(0, 0, Side::Send, sequence as u32);
        let work = SendWork::new(token, op, &segment, SendFlags::SIGNALED);
        // SAFETY: as above.
        let _ = unsafe { link.post_send(&[work]) };
    }
    // The fuzzer cannot guess the key, so it writes a marker where the key belongs.
    let bytes = with_key(bytes, registration.remote_key());
    for piece in bytes.chunks(usize::from(pieces).max(1)) {
        link.consume(piece);
        link.encode(AckPolicy::Piggyback);
        let _ = link.send_to(&mut Sink);
        link.deliver();
    }
    link.end(End::Lost);
    for _ in link.take_events() {
        link.reported();
    }
    let mut out = [RawCompletion::default(); 16];
    assert_eq!(sends.take(&mut out), 3, "each operation completes once");
    assert_eq!(recvs.take(&mut out), 4, "each receive completes once");
    drop(registration);
}

/// Takes everything.
struct Sink;

impl Transport for Sink {
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        Ok(from.iter().map(|piece| piece.1).sum())
    }

    unsafe fn recv(&mut self, _to: &[IoVec]) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn shutdown_write(&mut self) {}

    fn has_unsent(&self) -> bool {
        false
    }
}

fn with_key(bytes: &[u8], key: u64) -> Vec<u8> {
    const MARK: &[u8; 8] = b"KEYKEYKE";
    let mut bytes = bytes.to_vec();
    let mut at = 0;
    while at + 8 <= bytes.len() {
        if &bytes[at..at + 8] == MARK {
            bytes[at..at + 8].copy_from_slice(&key.to_le_bytes());
        }
        at += 1;
    }
    bytes
}
