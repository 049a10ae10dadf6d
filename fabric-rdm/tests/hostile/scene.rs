//! The honest endpoints: `b`, which is attacked, and `c`, which goes on with it.

use std::cell::RefCell;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fabric::{Access, Domain, Region};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{
    Address, Completion, DeathCause, Endpoint, Peer, PeerEvent, RdmAttr, Recv, Send, Status,
};

use crate::attacker::{Attacker, LONG, domain, loopback};

/// Panics of threads that endpoints have.
static PANICS: AtomicU32 = AtomicU32::new(0);
static HOOK: Once = Once::new();

const C_TAG: u64 = u64::MAX;
const C_CONTEXT: u64 = 1 << 60;

pub(crate) struct Scene {
    pub(crate) b: Endpoint,
    pub(crate) c: Endpoint,
    pub(crate) to_b: Peer,
    pub(crate) to_c: Peer,
    /// For attackers.
    pub(crate) domain: Domain,
    pub(crate) inbox: Region,
    c_inbox: Region,
    pub(crate) done: RefCell<Vec<Completion>>,
}

impl Scene {
    pub(crate) fn new(settings: impl FnOnce(&mut RdmAttr)) -> Self {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                if std::thread::current().name() == Some("fabric-rdm") {
                    PANICS.fetch_add(1, Ordering::SeqCst);
                }
                before(info);
            }));
        });
        let mut attr = RdmAttr::default();
        attr.listen = Some(loopback());
        (attr.slots, attr.connection_depth) = (64, 16);
        let c = Endpoint::new(&domain(), &attr).unwrap();
        settings(&mut attr);
        let b = Endpoint::new(&domain(), &attr).unwrap();
        let (to_b, to_c) = (c.insert(b.address()).unwrap(), b.insert(c.address()).unwrap());
        let inbox = b.domain().alloc(1 << 20, Access::LOCAL_WRITE | Access::REMOTE_READ).unwrap();
        let c_inbox = c.domain().alloc(64, Access::LOCAL_WRITE).unwrap();
        let done = RefCell::default();
        let scene = Scene { b, c, to_b, to_c, domain: domain(), inbox, c_inbox, done };
        scene.check();
        scene
    }

    pub(crate) fn address(&self) -> &Address {
        self.b.address()
    }

    /// An attacker that `b` inserted.
    pub(crate) fn attacker(&self) -> (Attacker, Peer) {
        let attacker = Attacker::new(&self.domain);
        let peer = self.b.insert(&attacker.address()).unwrap();
        (attacker, peer)
    }

    /// The same, connected.
    pub(crate) fn connected(&self) -> (Attacker, Peer) {
        let (mut attacker, peer) = self.attacker();
        attacker.connect(self.address());
        (attacker, peer)
    }

    /// Both ways a message between `b` and `c`.
    pub(crate) fn check(&self) {
        let pattern = Pattern::tagged(C_TAG).from(self.to_c);
        let at_b = Recv::new(pattern, self.inbox.slice(..64)).context(C_CONTEXT);
        self.b.post_recv(&at_b).unwrap();
        let at_c = Recv::new(Pattern::tagged(C_TAG), &self.c_inbox).context(C_CONTEXT);
        self.c.post_recv(&at_c).unwrap();
        self.c.post_send(self.to_b, &Send::inject(b"c is well").tag(C_TAG).unsignaled()).unwrap();
        assert_eq!(self.done(C_CONTEXT).status, Status::Ok, "{}", self.b.dump());
        self.b.post_send(self.to_c, &Send::inject(b"b is well").tag(C_TAG).unsignaled()).unwrap();
        let done = self.c.wait_one(Some(LONG)).unwrap_or_else(|error| {
            panic!("c waits for b: {error}\n{}\n{}", self.b.dump(), self.c.dump())
        });
        assert_eq!((done.context, done.status), (C_CONTEXT, Status::Ok));
        assert_eq!(PANICS.load(Ordering::SeqCst), 0, "panics of endpoints' threads");
    }

    /// The end of a test: `c` goes on, nothing ends twice, and `b` can be dropped.
    pub(crate) fn end(self) {
        self.check();
        assert!(self.done.borrow().is_empty(), "more ended: {:?}", self.done.borrow());
        drop(self.b);
        assert_eq!(PANICS.load(Ordering::SeqCst), 0, "panics of endpoints' threads");
    }

    pub(crate) fn poll(&self) {
        while let Some(done) = self.b.poll_one().unwrap() {
            self.done.borrow_mut().push(done);
        }
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut look: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + LONG;
        loop {
            self.poll();
            if look(self) {
                return;
            }
            assert!(Instant::now() < until, "in vain: {what}\n{}", self.b.dump());
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// The completion with this context.
    #[track_caller]
    pub(crate) fn done(&self, context: u64) -> Completion {
        let mut found = None;
        self.until(&format!("the completion of {context}"), |scene| {
            let mut done = scene.done.borrow_mut();
            let at = done.iter().position(|done| done.context == context);
            found = at.map(|at| done.remove(at));
            found.is_some()
        });
        found.unwrap()
    }

    #[track_caller]
    pub(crate) fn down(&self, peer: Peer) -> DeathCause {
        self.until("a peer's death", |scene| scene.b.down(peer).unwrap().is_some());
        self.b.down(peer).unwrap().unwrap()
    }

    /// The attacker is found out, and its peer removed.
    #[track_caller]
    pub(crate) fn found_out(&self, mut attacker: Attacker, peer: Peer) {
        assert_eq!(self.down(peer), DeathCause::Protocol);
        attacker.ended();
        self.b.remove(peer).unwrap();
    }

    /// A message of the attacker comes after all that it sent before: so that was taken.
    #[track_caller]
    pub(crate) fn goes_on(&self, attacker: &mut Attacker, number: u64) {
        const CONTEXT: u64 = 1 << 59;
        let pattern = Pattern::tagged(CONTEXT);
        let recv = Recv::new(pattern, self.inbox.slice(64..128)).context(CONTEXT);
        self.b.post_recv(&recv).unwrap();
        assert!(attacker.send(&crate::attacker::whole(number, CONTEXT, b"on")));
        assert_eq!(self.done(CONTEXT).status, Status::Ok);
    }

    /// Strangers that were admitted, and were not taken before.
    pub(crate) fn admitted(&self) -> Vec<Peer> {
        let events = std::iter::from_fn(|| self.b.poll_event().unwrap());
        let admitted =
            |event| if let PeerEvent::Admitted(peer) = event { Some(peer) } else { None };
        events.filter_map(admitted).collect()
    }
}

/// Bytes of this process that are in memory.
pub(crate) fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}
