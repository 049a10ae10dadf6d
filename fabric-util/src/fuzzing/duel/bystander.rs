//! Another connection of a domain whose first one is in a duel: nothing that happens there concerns it.

use std::sync::Arc;

use fabric_core::{
    Access, EndpointId, RawCompletion, RemoteAddr, Segment, SendFlags, SendOp, SendWork, Side,
    Status, Token,
};

use super::memory::{Area, Guarded};
use super::side::DuelSide;
use crate::completion_ring::CompletionRing;
use crate::stats::Stats;
use crate::stream::testing::Stream;
use crate::stream::{AckPolicy, Link, LinkContext, READS};

const ID: EndpointId = EndpointId(2);
const LEN: usize = 64;

/// The connection, and its peer, which has a grant.
pub(super) struct Bystander {
    link: Link,
    peer: Link,
    peers_sends: Arc<CompletionRing>,
    area: Area,
}

impl Bystander {
    /// A connection of the domain of this side.
    pub(super) fn new(side: &DuelSide) -> Option<Self> {
        let stats = Arc::new(Stats::default());
        let mut link = Link::new(LinkContext {
            id: ID,
            regions: side.table.clone(),
            send_ring: side.sends.clone(),
            recv_ring: side.receives.clone(),
            receives: side.shared.clone(),
            stats: stats.clone(),
        });
        let peers_sends = CompletionRing::new(&stats).ok()?;
        let mut peer = Link::new(LinkContext {
            id: ID,
            regions: Arc::default(),
            send_ring: peers_sends.clone(),
            recv_ring: peers_sends.clone(),
            receives: None,
            stats,
        });
        let credit = link.credit();
        for (link, credit) in [(&mut link, 0), (&mut peer, credit)] {
            link.open(READS, credit);
            link.announce(&[]);
            link.take_events().iter().for_each(|_| link.reported());
        }
        let mut area = Area::new(&side.table, LEN, Access::ALL)?;
        area.grant(ID, 0, LEN, Access::REMOTE);
        Some(Bystander { link, peer, peers_sends, area })
    }

    /// Its peer writes by the grant, and reads by the region's key.
    pub(super) fn check(&mut self) {
        let [region, grant] = self.area.spots()[..] else { panic!("a grant has ended") };
        let mut source = Guarded::new(LEN, 0x33);
        let mut into = Guarded::new(LEN, 0);
        let place = |key| RemoteAddr { key, addr: 0 };
        let write = SendOp::Write { to: place(grant.key), imm: None };
        post(&mut self.peer, 0, write, source.segment());
        post(&mut self.peer, 1, SendOp::Read { from: place(region.key) }, into.segment());
        carry(&mut self.peer, &mut self.link);
        carry(&mut self.link, &mut self.peer);
        let mut done = [RawCompletion::default(); 3];
        let taken = self.peers_sends.take(&mut done);
        let is_good = done[..taken].iter().all(|one| one.status == Status::Ok);
        assert!(taken == 2 && is_good, "another connection of the domain is harmed");
        assert!(into.bytes() == source.bytes() && self.area.memory.bytes() == source.bytes());
    }
}

fn post(link: &mut Link, sequence: u32, op: SendOp, segment: Segment) {
    let token = Token::new(0, 0, Side::Send, sequence);
    let segments = [segment];
    let work = SendWork::new(token, op, &segments, SendFlags::SIGNALED);
    // SAFETY: the memory is there until both are completed.
    assert!(unsafe { link.post_send(&[work]) }.is_ok(), "another connection has ended");
}

/// What one has to say to the other.
fn carry(from: &mut Link, to: &mut Link) {
    let mut stream = Stream::default();
    from.encode(AckPolicy::Now);
    while from.has_output() {
        assert!(from.send_to(&mut stream).is_ok());
    }
    to.consume(0, &stream.said);
    to.deliver();
}
