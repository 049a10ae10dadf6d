//! One side of a duel: a connection, the application above it, and the provider around it.

use std::sync::Arc;

use fabric_core::{
    Access, EndpointAttr, EndpointId, Event, RawCompletion, RecvWork, SendOp, SendWork, Token,
};

use super::books::{Books, FRESH, Landing, Order, Parcel};
use super::memory::{Area, Guarded};
use super::wire::DuelWire;
use crate::completion_ring::{CompletionRing, Outbox};
use crate::fault::MaybeFaulty;
use crate::progress::Progress;
use crate::region_table::RegionTable;
use crate::stats::Stats;
use crate::stream::testing::HostLog;
use crate::stream::{AckPolicy, Conn, End, Greeting, LinkContext, Locked, Phase, SharedReceives};

/// The regions of a side: how long they are, and what its peer may do.
pub(super) const AREAS: [(usize, Access); 3] = [
    (8192, Access::ALL),
    (130_000, Access::REMOTE_READ.union(Access::LOCAL_WRITE)),
    (130_000, Access::REMOTE_WRITE.union(Access::LOCAL_WRITE)),
];

/// The numbers from which a side counts its requests and its receives. They wrap around.
#[derive(Clone, Copy)]
pub(super) struct Firsts {
    pub(super) sends: u32,
    pub(super) receives: u32,
}

pub(super) type Wire = MaybeFaulty<DuelWire>;

pub(super) struct DuelSide {
    conn: Conn<Wire>,
    pub(super) host: HostLog,
    pub(super) id: EndpointId,
    pub(super) table: Arc<RegionTable>,
    pub(super) areas: Vec<Area>,
    pub(super) shared: Option<Arc<SharedReceives>>,
    pub(super) sends: Arc<CompletionRing>,
    pub(super) receives: Arc<CompletionRing>,
    pub(super) books: Books,
    firsts: Firsts,
    scratch: Vec<u8>,
    /// The application hears no events for now.
    pub(super) is_deaf: bool,
    /// Its endpoint is gone: nothing more is completed.
    pub(super) is_gone: bool,
    connected: usize,
    pub(super) disconnected: usize,
}

impl DuelSide {
    pub(super) fn new(id: u64, shares: bool) -> Option<Self> {
        let (id, stats) = (EndpointId(id), Arc::new(Stats::default()));
        let table = Arc::<RegionTable>::default();
        let sends = CompletionRing::new(&stats).ok()?;
        let receives = CompletionRing::new(&stats).ok()?;
        let shared = shares.then(|| Arc::new(SharedReceives::default()));
        let context = LinkContext {
            id,
            regions: table.clone(),
            send_ring: sends.clone(),
            recv_ring: receives.clone(),
            receives: shared.clone(),
            stats,
        };
        let mut attr = EndpointAttr::default();
        attr.liveness = None;
        let areas = AREAS.map(|(len, access)| Area::new(&table, len, access));
        Some(DuelSide {
            conn: Conn::new("fuzz", &attr, context),
            host: HostLog::default(),
            id,
            table,
            areas: areas.into_iter().collect::<Option<_>>()?,
            shared,
            sends,
            receives,
            books: Books::default(),
            firsts: Firsts { sends: 0, receives: 0 },
            scratch: vec![0; 64 << 10],
            is_deaf: false,
            is_gone: false,
            connected: 0,
            disconnected: 0,
        })
    }

    /// Before the connection is made: what each side counts from.
    pub(super) fn count_from(&mut self, own: Firsts, peers: Firsts) {
        self.firsts = own;
        let (sends, receives) = ((own.sends, peers.receives), (own.receives, peers.sends));
        self.lock().link.count_from(sends, receives);
    }

    pub(super) fn lock(&self) -> Locked<'_, Wire, &HostLog> {
        self.conn.lock(&self.host)
    }

    pub(super) fn connect(&self, wire: Wire) {
        self.lock().connect(wire, b"hello", None);
    }

    /// Lets the peer in, whose hello is whole.
    pub(super) fn accept(&self, wire: Wire, greeting: &Greeting) {
        self.lock().accept(wire, greeting, b"welcome");
    }

    /// Has a turn, with so much scratch memory.
    pub(super) fn turn(&mut self, scratch: usize) -> Progress {
        let found =
            self.conn.lock(&self.host).turn(&mut self.scratch[..scratch], &mut Outbox::none());
        if !self.is_deaf {
            self.hear();
        }
        found
    }

    /// The application hears what happened.
    fn hear(&mut self) {
        for event in self.host.events.take() {
            match event {
                Event::Connected { .. } => self.connected += 1,
                Event::Disconnected { .. } | Event::ConnectFailed { .. } => self.disconnected += 1,
                other => panic!("an event that is not expected: {other:?}"),
            }
            self.conn.reported();
        }
        assert!(self.connected <= 1 && self.disconnected <= 1, "an event came twice");
    }

    /// The application takes what was completed. `parcels`: what the peer sent, if that came as it was sent. `is_clean`: what
    /// this side asked came as well.
    pub(super) fn take_completions(&mut self, parcels: Option<&[Parcel]>, is_clean: bool) {
        let mut out = [RawCompletion::default(); 64];
        loop {
            let receives = self.receives.take(&mut out);
            for done in &out[..receives] {
                assert!(self.shared.is_none() || done.endpoint == Some(self.id));
                self.books.end_landing(done, self.firsts.receives, parcels);
            }
            let sends = self.sends.take(&mut out);
            for done in &out[..sends] {
                self.books.end_order(done, self.firsts.sends, is_clean);
            }
            if receives + sends == 0 {
                return;
            }
        }
    }

    /// Posts an operation; gives it back if the connection has ended, or is not made.
    pub(super) fn post(&mut self, op: SendOp, mut order: Order) -> bool {
        let sequence = self.firsts.sends.wrapping_add(self.books.orders.len() as u32);
        let token = Token::new(0, 0, fabric_core::Side::Send, sequence);
        let full = order.memory.iter_mut().filter(|one| one.len() > 0);
        let segments: Vec<_> = full.map(Guarded::segment).collect();
        let work = SendWork::new(token, op, &segments, order.flags);
        // SAFETY: the books keep the memory.
        if unsafe { self.lock().link.post_send(&[work]) }.is_err() {
            return false;
        }
        if matches!(order.expected, super::books::Expected::Injected) {
            order.memory.iter_mut().for_each(Guarded::scribble);
        }
        self.books.orders.push(order);
        true
    }

    /// Writes what was posted, as a provider does after a post.
    pub(super) fn flush(&mut self) {
        let mut conn = self.lock();
        conn.flush(AckPolicy::Piggyback);
        conn.follow_up();
    }

    /// Posts a receive of these segments.
    pub(super) fn receive(&mut self, lens: &[usize]) {
        let mut memory: Vec<_> = lens.iter().map(|len| Guarded::new(*len, FRESH)).collect();
        let sequence = self.firsts.receives.wrapping_add(self.books.landings.len() as u32);
        let token = Token::new(0, 0, fabric_core::Side::Recv, sequence);
        let full = memory.iter_mut().filter(|one| one.len() > 0);
        let segments: Vec<_> = full.map(Guarded::segment).collect();
        let work = [RecvWork::new(token, &segments)];
        let is_posted = match self.shared.clone() {
            Some(shared) => {
                // SAFETY: the books keep the memory.
                let waiting = unsafe { shared.push(&work) };
                for waiting in waiting {
                    assert_eq!(waiting, self.id);
                    self.lock().link.receives_posted();
                }
                true
            }
            // SAFETY: as above.
            None => unsafe { self.lock().link.post_recv(&work) }.is_ok(),
        };
        if is_posted {
            let len = lens.iter().sum();
            self.books.landings.push(Landing { memory, len, status: None });
        }
    }

    /// The connection ends from this side, in one of the ways in which it can.
    pub(super) fn end(&mut self, how: usize) {
        match how {
            1 if self.lock().link.phase() == Phase::Open => self.lock().lose(),
            0 | 1 => _ = self.lock().end(End::Local),
            2 => self.lock().fail(),
            3 => {
                self.lock().end(End::Quiet);
                self.let_go();
            }
            _ => {
                drop(self.conn.abandon());
                self.let_go();
            }
        }
    }

    /// The endpoint is gone, and what was not completed is the application's.
    fn let_go(&mut self) {
        self.is_gone = true;
        self.host.events.take();
        self.take_completions(None, false);
        self.books.abandon(self.shared.is_none());
    }

    /// The time of everything is over.
    pub(super) fn expire(&mut self) {
        for timer in self.host.deadlines.take() {
            self.lock().expired(timer);
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().transport().is_none()
    }

    pub(super) fn dump(&self) -> String {
        self.conn.try_dump()
    }

    /// After the end: everything that was posted is accounted for.
    pub(super) fn check_end(&self) {
        assert!(self.is_closed(), "it does not close: {}", self.dump());
        self.books.check_memory();
        let left = self.shared.as_ref().map_or(0, |shared| shared.len());
        if self.is_gone {
            return;
        }
        assert_eq!(self.disconnected, 1, "the end is no event");
        assert!(self.books.is_idle(), "an operation was not completed");
        assert_eq!(self.books.landings_left(), left, "a receive was not completed");
    }
}
