//! Every bit of every header, flipped: whatever the peer then says, what it may not touch stays as it was, and
//! everything completes once.

use super::*;

/// A receive of the target, the memory of its read and the old value of its atomic, all in its own half.
const RECEIVE: usize = 64;
const READ: usize = 64;
const OLD: usize = 128;
const OWN: usize = 192;
/// Small, because there are some thousand of them.
const HALF: usize = 4096;

/// A link in the middle of a conversation: a receive is posted, a read and a fetching atomic are under way.
fn target() -> Node {
    let mut node = Node::with_half(HALF);
    node.link.open(READS, 0);
    node.link.announce(&[]);
    node.receive(0, RECEIVE);
    let from = RemoteAddr { key: 1, addr: 0 };
    node.post(SendOp::Read { from }, READ, 64, SendFlags::empty());
    let call = AtomicCall { op: AtomicOp::Add, ty: AtomicType::U64, operand: 1, compare: 0 };
    node.post(SendOp::Atomic { at: from, call, fetch: true }, OLD, 8, SendFlags::empty());
    assert!(node.link.send_to(&mut Taker::new(usize::MAX)).unwrap() > 0);
    node
}

/// One frame of each kind, as a peer of [`target`] may send it, the first of them behind those it depends on.
fn frames(key: u64) -> Vec<(&'static str, Vec<u8>, Header)> {
    let head = |kind, len, ack, seq| Header { kind, ask: false, len, ack, credit: 0, seq };
    let with = |header: Header| {
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        bytes.resize(bytes.len() + header.payload() as usize, 1);
        bytes
    };
    let to = RemoteAddr { key, addr: 8 };
    let call = AtomicCall { op: AtomicOp::Max, ty: AtomicType::I32, operand: 9, compare: 0 };
    let whole = head(Kind::Send { total: 48, imm: None }, 16, 0, 0);
    let chunk = head(Kind::ReadData { last: true }, 64, 1, 0);
    let kinds = [
        ("send", None, head(Kind::Send { total: 16, imm: Some(5) }, 16, 0, 0)),
        ("write", None, head(Kind::Write { total: 16, imm: None, to }, 16, 0, 0)),
        ("read", None, head(Kind::Read { from: to }, 16, 0, 0)),
        ("atomic", None, head(Kind::Atomic { at: to, call, fetch: true }, 0, 0, 0)),
        ("fragment", Some(whole), head(Kind::Data { more: false }, 32, 0, 0)),
        ("read's answer", None, chunk),
        ("atomic's answer", Some(chunk), head(Kind::OldValue, 8, 2, 1)),
        ("ack", Some(chunk), head(Kind::Ack, 0, 1, 0)),
        ("refusal", None, head(Kind::Nak { status: Status::RemoteAccess }, 0, 0, 0)),
        ("bye", None, head(Kind::Bye, 0, 0, 0)),
    ];
    let frame = |(name, before, header): (_, Option<Header>, Header)| {
        (name, before.map_or_else(Vec::new, with), header)
    };
    kinds.into_iter().map(frame).collect()
}

/// The bytes of the header that hold a key.
fn key_of(header: &Header) -> std::ops::Range<usize> {
    match header.kind {
        Kind::Write { .. } => 32..40,
        Kind::Read { .. } | Kind::Atomic { .. } => 24..32,
        _ => 0..0,
    }
}

#[test]
fn as_they_are_they_are_no_breach() {
    for at in 0..10 {
        let mut node = target();
        let (name, before, header) = frames(node.key()).swap_remove(at);
        let mut bytes = before;
        header.encode(&mut bytes);
        bytes.resize(bytes.len() + header.payload() as usize, 1);
        node.feed(&bytes);
        assert_eq!(node.stats.protocol_errors.get(), 0, "{name}: {}", node.link.dump());
    }
}

#[test]
fn any_flipped_bit_harms_nobody_else() {
    let untouched = vec![0u64; HALF / 8];
    for at in 0..10 {
        let size = {
            let mut bytes = Vec::new();
            frames(1)[at].2.encode(&mut bytes);
            bytes.len()
        };
        for bit in 0..8 * size {
            let mut node = target();
            let (name, before, header) = frames(node.key()).swap_remove(at);
            let mut bytes = Vec::new();
            header.encode(&mut bytes);
            bytes[bit / 8] ^= 1 << (bit % 8);
            // More than the frame can need, if it is taken for a longer one.
            bytes.resize(bytes.len() + 64, 1);
            node.feed(&before);
            node.feed(&bytes);
            let end = node.link.dump();

            node.link.end(End::Lost);
            node.link.deliver();
            let what = format!("{name}, bit {bit}: {end}");
            assert_eq!(node.take_sends().len(), 2, "each operation completes once: {what}");
            assert_eq!(node.take_recvs().len(), 1, "the receive completes once: {what}");
            assert!(node.memory[OWN / 8..HALF / 8] == untouched[OWN / 8..], "own memory: {what}");
            let reasons = node.reasons();
            let shared = &node.memory[HALF / 8..];
            if key_of(&header).contains(&(bit / 8)) {
                assert!(shared == untouched, "another key opened the region: {what}");
                assert_eq!(reasons, [DisconnectReason::OperationFailed], "{what}");
            }
            let changed = shared.iter().filter(|word| **word != 0).count();
            assert!(changed <= 12, "{changed} words of the region changed: {what}");
        }
    }
}
