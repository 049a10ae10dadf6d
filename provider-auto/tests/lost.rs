//! The end of the device: connections by shared memory end with it.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests too

mod side;

use std::sync::{Arc, Mutex};

use fabric::provider::{Device, DomainAttr, Event, EventSink, Info, Provider};
use fabric::{Catalog, DisconnectReason, Error, Hints, Result, Slices, Status};
use provider_auto::AutoProvider;
use provider_tcp::{TcpDomain, TcpProvider};
use side::{SOON, Side, way};

/// TCP, whose device can be lost.
#[derive(Default)]
struct Fragile {
    tcp: TcpProvider,
    events: Arc<Mutex<Option<Arc<dyn EventSink>>>>,
}

impl Provider for Fragile {
    type Domain = TcpDomain;

    fn name(&self) -> &'static str {
        "fragile"
    }

    fn devices(&self) -> Vec<Device> {
        Provider::devices(&self.tcp)
    }

    fn open(
        &self,
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> Result<TcpDomain> {
        *self.events.lock().unwrap() = Some(events.clone());
        Provider::open(&self.tcp, info, attr, events)
    }
}

/// A side, and what loses its device.
fn fragile() -> (Side, impl FnOnce()) {
    let fragile = Fragile::default();
    let events = fragile.events.clone();
    let auto = AutoProvider::new(provider_shm::ShmProvider::new(), Arc::new(fragile));
    let side = Side::of(&Catalog::empty().add(auto).unwrap(), "auto", &Hints::default());
    (side, move || events.lock().unwrap().take().unwrap().event(Event::DeviceLost))
}

#[test]
fn one_that_still_connects_hears_of_the_end_of_the_device() {
    let ((all, lose), peer) = (fragile(), Side::new("shm"));
    let (listener, end) = (peer.listen(), all.endpoint());
    end.connect(listener.local_addr(), &[]).unwrap();
    assert_eq!(way(&end), "shm");
    let _request = listener.accept(Some(SOON)).unwrap();
    lose();
    let error = end.wait_connected(Some(SOON)).unwrap_err();
    assert!(matches!(error, Error::DeviceLost), "{error}");
}

#[test]
fn connections_by_shared_memory_end_with_the_device() {
    let (all, lose) = fragile();
    let peer = Side::new("shm");
    let listener = all.listen();
    let (theirs, own) = peer.connect(&all, &listener);
    assert_eq!(way(&own), "shm");
    own.recv(Slices::none(), 1).unwrap();
    lose();
    assert_eq!(own.wait_disconnected(Some(SOON)).unwrap(), DisconnectReason::DeviceLost);
    let ended = all.queue.wait_one(Some(SOON)).unwrap();
    assert_eq!((ended.context, ended.status), (1, Status::Canceled));
    theirs.wait_disconnected(Some(SOON)).unwrap();
    assert!(matches!(own.inject(&[], 2), Err(Error::NotConnected | Error::DeviceLost)));
    assert!(matches!(all.domain.endpoint().build(&all.queue), Err(Error::DeviceLost)));
}
