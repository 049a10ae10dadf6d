//! The decoders, and one link as the target of a peer's bytes.

use std::io;
use std::sync::Arc;

use crate::stats::Stats;
use fabric_core::{
    Access, AtomicCall, AtomicOp, AtomicType, EndpointId, RawCompletion, RecvWork, RegistrationOps,
    RemoteAddr, Segment, SendFlags, SendOp, SendWork, Side, Status, Token,
};

use crate::completion_ring::CompletionRing;
use crate::region_table::{RegionTable, Registration};
use crate::stream::wire::frame::{Header, Kind};
use crate::stream::wire::handshake::{Handshake, HandshakeKind};
use crate::stream::{AckPolicy, End, IoVec, Link, LinkContext, READS, SharedReceives, Transport};

/// Decodes bytes as both kinds of frame; what decodes must encode to the same bytes.
pub fn decode(bytes: &[u8]) {
    if let Ok(Some((header, len))) = Header::decode(bytes) {
        let mut again = Vec::new();
        header.encode(&mut again);
        assert_eq!(again, &bytes[..len]);
    }
    if let Ok(Some(decoded)) = Handshake::decode(bytes) {
        let mut again = decoded.frame.encode(decoded.data);
        assert_eq!(again.len(), decoded.unsealed());
        again.extend(decoded.seal.into_iter().flatten());
        assert_eq!(again, &bytes[..decoded.len]);
    }
}

/// A frame of each kind, with as much payload as it says.
pub fn decode_seeds() -> Vec<Vec<u8>> {
    let place = RemoteAddr { key: u64::from_le_bytes(*MARK), addr: 0 };
    let call = AtomicCall { op: AtomicOp::Add, ty: AtomicType::U64, operand: 1, compare: 0 };
    let frames = [
        (Kind::Send { total: 8, imm: Some(1) }, 8),
        (Kind::Write { total: 8, imm: None, to: place }, 8),
        (Kind::Write { total: 8, imm: Some(1), to: place }, 4),
        (Kind::Data { more: false }, 4),
        (Kind::Read { from: place }, 8),
        (Kind::Atomic { at: place, call, fetch: true }, 0),
        (Kind::ReadData { last: true }, 64),
        (Kind::OldValue, 8),
        (Kind::Ack, 0),
        (Kind::Nak { status: Status::RemoteAccess }, 0),
        (Kind::NotReady, 0),
        (Kind::Resume, 0),
        (Kind::Ready, 0),
        (Kind::Lent { from: place, more: false }, 4),
        (Kind::Bye, 0),
    ];
    let frame = |(kind, len): (Kind, u32)| {
        let mut bytes = Vec::new();
        Header { kind, ask: false, len, ack: 0, credit: 0, seq: 0 }.encode(&mut bytes);
        let elsewhere = matches!(kind, Kind::Read { .. } | Kind::Lent { .. });
        let payload = if elsewhere { 0 } else { len as usize };
        bytes.resize(bytes.len() + payload, 1);
        bytes
    };
    let hello = Handshake::new(HandshakeKind::Hello, READS, 1).encode(b"data");
    frames.into_iter().map(frame).chain([hello]).collect()
}

/// Each of these frames to each kind of link, and one behind another.
pub fn link_seeds() -> Vec<Vec<u8>> {
    let frames = decode_seeds();
    let modes = [PIECES, SHARES | PIECES, PEER_SHARES | 7];
    let lone =
        modes.iter().flat_map(|mode| frames.iter().map(|frame| [&[*mode], &frame[..]].concat()));
    let fragments = [&[PIECES], &frames[2][..], &frames[3]].concat();
    lone.chain([fragments]).collect()
}

/// In the first byte: the link's receives are shared; the peer's are; and how long the pieces are.
const SHARES: u8 = 0x80;
const PEER_SHARES: u8 = 0x40;
const PIECES: u8 = 0x3f;

/// Feeds bytes to a link that has receives, reads and sends in flight, as the first byte says. Afterwards everything must
/// have completed exactly once.
pub fn link(bytes: &[u8]) {
    let Some((&mode, bytes)) = bytes.split_first() else { return };
    let shared = (mode & SHARES != 0).then(|| Arc::new(SharedReceives::default()));
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
        receives: shared.clone(),
        recv_ring: recvs.clone(),
        stats,
    });
    link.open(READS, if mode & PEER_SHARES != 0 { u32::MAX } else { 2 });
    link.announce(&[]);
    link.take_events();
    link.reported();
    let segment = [Segment::new(addr.wrapping_add(4096), 64, 0)];
    let mut receives = 0;
    let mut receive = |link: &mut Link| {
        let work = [RecvWork::new(Token::new(0, 0, Side::Recv, receives), &segment)];
        receives += 1;
        match &shared {
            // SAFETY: the memory outlives the link, and the queue.
            Some(shared) => {
                unsafe { shared.push(&work) }.iter().for_each(|_| link.receives_posted())
            }
            // SAFETY: as above.
            None => drop(unsafe { link.post_recv(&work) }),
        }
    };
    if shared.is_none() {
        (0..4).for_each(|_| receive(&mut link));
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
    for (at, piece) in bytes.chunks(usize::from(mode & PIECES).max(1)).enumerate() {
        link.consume(0, piece);
        if shared.is_some() && at < 4 {
            receive(&mut link); // late
        }
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
    let ended = recvs.take(&mut out);
    // What no message took is in the queue still.
    let left = shared.map_or(0, |shared| shared.len());
    assert_eq!(ended + left, receives as usize, "each receive completes once");
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
}

/// Stands for the key of the region.
const MARK: &[u8; 8] = b"KEYKEYKE";

fn with_key(bytes: &[u8], key: u64) -> Vec<u8> {
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
