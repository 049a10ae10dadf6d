//! A message from one link to another, without sockets: what a provider over a stream of bytes does for it, both ways.

use std::io;
use std::sync::Arc;

use fabric_core::{EndpointId, RawCompletion, RecvWork, Segment, SendFlags, SendOp, SendWork};
use fabric_core::{Side, Token};
use fabric_util::completion_ring::CompletionRing;
use fabric_util::stats::Stats;
use fabric_util::stream::{AckPolicy, IoVec, Link, LinkContext, READS, Transport};

const LEN: usize = 64;

/// Bytes on their way.
struct Wire {
    bytes: Vec<u8>,
    /// So many of them have arrived.
    read: usize,
}

impl Transport for Wire {
    unsafe fn send(&mut self, from: &[IoVec]) -> io::Result<usize> {
        let before = self.bytes.len();
        for &(addr, len) in from {
            // SAFETY: the caller's promise.
            self.bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(addr, len) });
        }
        Ok(self.bytes.len() - before)
    }

    unsafe fn recv(&mut self, to: &[IoVec]) -> io::Result<usize> {
        let bytes = &self.bytes[self.read..];
        let mut got = 0;
        for &(addr, len) in to {
            let part = len.min(bytes.len() - got);
            // SAFETY: the caller's promise.
            unsafe { addr.copy_from_nonoverlapping(bytes[got..].as_ptr(), part) };
            got += part;
        }
        self.read += got;
        Ok(got)
    }

    fn shutdown_write(&mut self) {}

    fn unsent(&self) -> usize {
        self.bytes.len() - self.read
    }
}

struct Node {
    link: Link,
    memory: Vec<u64>,
    sends: Arc<CompletionRing>,
    recvs: Arc<CompletionRing>,
    scratch: Vec<u8>,
    number: u32,
}

impl Node {
    fn new() -> Self {
        let stats = Arc::new(Stats::default());
        let ring = || CompletionRing::new(&stats).unwrap();
        let (sends, recvs) = (ring(), ring());
        let mut link = Link::new(LinkContext {
            id: EndpointId(1),
            regions: Arc::default(),
            send_ring: sends.clone(),
            receives: None,
            recv_ring: recvs.clone(),
            stats: stats.clone(),
        });
        link.open(READS, 0);
        link.announce(&[]);
        link.take_events();
        link.reported();
        let (memory, scratch) = (vec![7; LEN / 8], vec![0; 1 << 16]);
        Node { link, memory, sends, recvs, scratch, number: 0 }
    }

    fn segment(&mut self) -> [Segment; 1] {
        [Segment::new(self.memory.as_mut_ptr().cast(), LEN, 0)]
    }

    fn token(&mut self, side: Side) -> Token {
        self.number += 1;
        Token::new(1, 1, side, self.number)
    }

    fn post_send(&mut self) {
        let (token, segments) = (self.token(Side::Send), self.segment());
        let (op, flags) = (SendOp::Send { imm: None }, SendFlags::SIGNALED);
        // SAFETY: the node keeps its memory as long as its link.
        unsafe { self.link.post_send(&[SendWork::new(token, op, &segments, flags)]) }.unwrap();
    }

    fn post_recv(&mut self) {
        let (token, segments) = (self.token(Side::Recv), self.segment());
        // SAFETY: the node keeps its memory as long as its link.
        unsafe { self.link.post_recv(&[RecvWork::new(token, &segments)]) }.unwrap();
    }

    /// Writes what is due to `wire`.
    fn transmit(&mut self, wire: &mut Wire) {
        while self.link.has_output() {
            self.link.send_to(wire).unwrap();
            self.link.encode(AckPolicy::Piggyback);
        }
        self.link.deliver();
    }

    /// As a step that finds `wire` in its socket.
    fn step(&mut self, wire: &mut Wire) {
        while wire.unsent() > 0 {
            self.link.recv_from(&mut self.scratch, wire).unwrap();
            self.link.complete_finished();
        }
        wire.bytes.clear();
        wire.read = 0;
        self.link.encode(AckPolicy::Now);
        self.transmit(wire);
    }
}

/// `count` messages of 64 B, one after the other, each until both ends have their completion.
pub(super) fn messages(count: u64) {
    let (mut a, mut b) = (Node::new(), Node::new());
    let mut wire = Wire { bytes: Vec::with_capacity(4096), read: 0 };
    let mut out = [RawCompletion::default(); 4];
    for _ in 0..count {
        b.post_recv();
        b.link.encode(AckPolicy::Due);
        b.transmit(&mut wire);
        a.step(&mut wire);
        a.post_send();
        a.transmit(&mut wire);
        b.step(&mut wire);
        a.step(&mut wire);
        assert_eq!((a.sends.take(&mut out), b.recvs.take(&mut out)), (1, 1));
    }
}
