//! Endpoints at the far end that goes, and what travels there.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fabric::{Access, Catalog};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Kind, Recv, Send};
use provider_mem::MemProvider;

use super::calls::{RdmRecv, RdmSend};
use crate::check::Failed;
use crate::rdm::RdmPair;
use crate::remote::{Peer, Server};
use crate::rig::Rig;
use crate::setup::Setup;
use crate::target::Target;

fn catalog() -> Arc<Catalog> {
    Arc::new(Catalog::empty().add(MemProvider::new()).unwrap())
}

/// The way to a server, which can be cut.
struct Way {
    addr: SocketAddr,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Way {
    fn to(server: SocketAddr) -> Way {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (addr, streams) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let kept = streams.clone();
        thread::spawn(move || {
            for near in listener.incoming() {
                let (near, far) = (near.unwrap(), TcpStream::connect(server).unwrap());
                for (from, to) in [(&near, &far), (&far, &near)] {
                    to.set_nodelay(true).unwrap();
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                kept.lock().unwrap().extend([near, far]);
            }
        });
        Way { addr, streams }
    }

    /// As when the server's host dies.
    fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn rig() -> (Rig, Way) {
    let catalog = catalog();
    let server = Server::bind((Ipv4Addr::LOCALHOST, 0).into(), &catalog).unwrap();
    let way = Way::to(server.local_addr().unwrap());
    thread::spawn(move || server.run());
    let peer = Arc::new(Peer::reach(way.addr).unwrap());
    let target = Target::find(&catalog, "mem", None).unwrap().with_peer(&peer, None).unwrap();
    let setup = Setup {
        target,
        watch: Arc::default(),
        recorder: Arc::default(),
        id: "rdm.test".to_owned(),
        seed: 1,
        factor: 1.0,
        soak: false,
        connect_timeout: None,
        lossy: false,
        program: None,
        link: None,
        start: None,
    };
    (Rig::new(setup).unwrap(), way)
}

/// Small ones: a test beside measures memory.
fn pair(rig: &Rig) -> RdmPair<'_> {
    RdmPair::with(rig, |attr| (attr.slots, attr.max_open, attr.connection_depth) = (16, 4, 16))
        .unwrap()
}

const SOON: Duration = Duration::from_secs(30);

#[track_caller]
fn says_so<T>(outcome: Result<T, Failed>, begun: Instant) {
    let Err(failed) = outcome else { panic!("it succeeds without the other host") };
    assert!(failed.to_string().contains("the other host answers no more"), "{failed}");
    assert!(begun.elapsed() < SOON, "after {:?}", begun.elapsed());
}

#[test]
fn every_wait_ends_when_the_far_end_goes() {
    let (rig, way) = rig();
    let pair = pair(&rig);
    pair.greet().unwrap();
    let b = &pair.b;
    let inbox = b.buffer(8).unwrap();
    let begun = Instant::now();
    thread::scope(|scope| {
        let waits = [
            scope.spawn(|| b.next().map(drop)),
            scope.spawn(|| b.until("it", |_| false)),
            scope.spawn(|| Ok(b.counter(Kind::Send).wait_for(9, 0, Some(2 * SOON))?)),
        ];
        thread::sleep(Duration::from_millis(50));
        way.cut();
        waits.into_iter().for_each(|wait| says_so(wait.join().unwrap(), begun));
    });
    says_so(b.when_room(|| b.post_send(pair.to_a, &Send::inject(b"x"))), begun);
    says_so(b.when_room(|| b.post_recv(&Recv::new(Pattern::untagged(), &inbox))), begun);
    says_so(b.down(pair.to_a).map_err(Failed::from), begun);
    assert!(b.dump().contains("the other host answers no more"));
    // And everything can be dropped.
    drop((inbox, pair));
    drop(rig);
    assert!(begun.elapsed() < 2 * SOON, "after {:?}", begun.elapsed());
}

#[test]
fn a_region_that_is_used_there_is_busy() {
    let (rig, _way) = rig();
    let pair = pair(&rig);
    let inbox = pair.b.buffer(8).unwrap();
    let id = pair.b.post_recv(&Recv::new(Pattern::untagged(), &inbox)).unwrap();
    assert!(matches!(inbox.close(), Err(fabric::Error::Busy)));
    assert!(pair.b.cancel(id).unwrap());
    pair.b.next().unwrap();
    inbox.close().unwrap();
    let posted = pair.b.post_recv(&Recv::new(Pattern::untagged(), &inbox));
    assert!(posted.is_err());
}

#[test]
fn messages_and_receives_are_the_same_at_the_other_end() {
    let catalog = catalog();
    let domain = Target::find(&catalog, "mem", None).unwrap().open().unwrap();
    let region = domain.alloc(64, Access::ALL).unwrap();
    let slice = region.slice(8..24);
    for send in [
        Send::inject(b"bytes"),
        Send::new(slice).tag(1),
        Send::new(slice).immediate(2).matched(),
        Send::inject(b"").context(3).unsignaled(),
    ] {
        let again = RdmSend::from(&send);
        assert_eq!(format!("{:?}", again.of(send.payload())), format!("{send:?}"));
    }
    let pattern = Pattern::tagged(4).ignoring(8);
    for recv in [
        Recv::new(pattern, slice).context(5),
        Recv::new(Pattern::untagged(), slice).of_many(6).unsignaled(),
    ] {
        assert_eq!(format!("{:?}", RdmRecv::from(&recv).of(slice)), format!("{recv:?}"));
    }
}
