//! A message from one link to another, without sockets: what a provider over a stream of bytes does for it, both ways.

use std::convert::Infallible;
use std::sync::Arc;

use fabric_core::{EndpointId, RawCompletion, RecvWork, Segment, SendFlags, SendOp, SendWork};
use fabric_core::{Side, Token};
use fabric_util::completion_ring::CompletionRing;
use fabric_util::stats::Stats;
use fabric_util::stream::{AckPolicy, IoVec, Link, READS, Surroundings};

const LEN: usize = 64;

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
        let mut link = Link::new(Surroundings {
            id: EndpointId(1),
            regions: Arc::default(),
            send_ring: sends.clone(),
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
    fn transmit(&mut self, wire: &mut Vec<u8>) {
        while self.link.has_output() {
            let write = |runs: &[IoVec]| {
                let before = wire.len();
                for &(addr, len) in runs {
                    // SAFETY: the link gives memory that is valid during the call.
                    wire.extend_from_slice(unsafe { std::slice::from_raw_parts(addr, len) });
                }
                Ok::<_, Infallible>(wire.len() - before)
            };
            let Ok(_) = self.link.transmit(write);
            self.link.encode(AckPolicy::Piggyback);
        }
        self.link.deliver();
    }

    /// As a step that finds `wire` in its socket.
    fn step(&mut self, wire: &mut Vec<u8>) {
        let mut read = 0;
        while read < wire.len() {
            let bytes = &wire[read..];
            let take = |runs: &[IoVec]| {
                let mut got = 0;
                for &(addr, len) in runs {
                    let part = len.min(bytes.len() - got);
                    // SAFETY: the link gives memory that is valid during the call.
                    unsafe { addr.copy_from_nonoverlapping(bytes[got..].as_ptr(), part) };
                    got += part;
                }
                Ok::<_, Infallible>(got)
            };
            let Ok((got, _)) = self.link.receive(&mut self.scratch, take);
            read += got;
        }
        wire.clear();
        self.link.encode(AckPolicy::Now);
        self.transmit(wire);
    }
}

/// `count` messages of 64 B, one after the other, each until both ends have their completion.
pub(super) fn messages(count: u64) {
    let (mut a, mut b, mut wire) = (Node::new(), Node::new(), Vec::with_capacity(4096));
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
