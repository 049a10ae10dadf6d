//! What a domain has of the two providers, and the end of both.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use fabric_core::provider::RequestId;
use fabric_core::{
    DisconnectReason, DynDomain, EndpointAttr, EndpointOps, Error, Event, EventSink, Info, Path,
    Result,
};
use fabric_util::log_line;
use fabric_util::sync::Mutex;
use provider_shm::near::{self, NotNear};
use provider_shm::{ShmDomain, ShmEndpoint, ShmTransport};

/// Requests of the near domain; those of the other have small numbers.
const NEAR: u64 = 1 << 63;

/// The two domains.
pub(crate) struct Ways {
    pub(crate) near: ShmDomain,
    pub(crate) far: Box<dyn DynDomain>,
    pub(crate) near_info: Info,
    pub(crate) far_info: Info,
    pub(crate) ends: Arc<NearEnds>,
}

impl Ways {
    /// Whether the device has the address: its own, and where that has loopback, all of loopback.
    fn check_address(&self, ip: IpAddr) -> Result<(), String> {
        let ip = ip.to_canonical();
        let has = &self.far_info.addresses;
        let is_loopback = ip.is_loopback() && has.iter().any(IpAddr::is_loopback);
        if is_loopback || has.contains(&ip) {
            return Ok(());
        }
        Err(format!("{} does not have {ip}", self.far_name()))
    }

    /// What `there` finds at the peer's address by shared memory, if that is one of the device; else why it is not near.
    fn look<T>(
        &self,
        to: SocketAddr,
        there: impl FnOnce() -> Result<T, NotNear>,
    ) -> Result<Result<T, String>> {
        if let Err(why) = self.check_address(to.ip()) {
            return Ok(Err(why));
        }
        match there() {
            Ok(found) => Ok(Ok(found)),
            // Another time it may be near, and that it was not would be found out by chance only.
            Err(NotNear::Failed(cause)) => {
                Err(Error::system("connect", provider_shm::NAME, cause).at(to))
            }
            Err(why) => Ok(Err(why.to_string())),
        }
    }

    /// Connects by shared memory if the peer is near; else says why it is not.
    pub(crate) fn connect_near(
        &self,
        to: SocketAddr,
        attr: &EndpointAttr,
    ) -> Result<Result<(ShmTransport, SocketAddr), String>> {
        self.look(to, || near::connect(to, attr, self.near.shared()))
    }

    /// Which way a connection would go.
    pub(crate) fn path_to(&self, to: SocketAddr) -> Result<Path> {
        self.look(to, || near::look(to)).map(|found| self.path_of(&found))
    }

    /// The way of a connection to a peer that was looked for by shared memory.
    pub(crate) fn path_of<T>(&self, found: &Result<T, String>) -> Path {
        match found {
            Ok(_) => self.near_path("shared memory is there"),
            Err(why) => self.far_path(why),
        }
    }

    pub(crate) fn near_path(&self, why: impl fmt::Display) -> Path {
        Path::new(&self.near_info).and_not(&self.far_name(), why)
    }

    pub(crate) fn far_path(&self, why: impl fmt::Display) -> Path {
        Path::new(&self.far_info).and_not(provider_shm::NAME, why)
    }

    fn far_name(&self) -> String {
        format!("{}:{}", self.far_info.provider, self.far_info.device)
    }
}

/// A request of the near domain, as the application names it.
pub(crate) fn near_request(id: RequestId) -> RequestId {
    RequestId(id.0 | NEAR)
}

/// Whose a request is, and what that calls it.
pub(crate) fn split(request: RequestId) -> (Side, RequestId) {
    let side = if request.0 & NEAR != 0 { Side::Near } else { Side::Far };
    (side, RequestId(request.0 & !NEAR))
}

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Near,
    Far,
}

/// The connections by shared memory, which end with the device.
#[derive(Default)]
pub(crate) struct NearEnds {
    lost: AtomicBool,
    endpoints: Mutex<Vec<Weak<ShmEndpoint>>>,
}

impl NearEnds {
    /// One more.
    pub(crate) fn add(&self, endpoint: &Arc<ShmEndpoint>) {
        {
            let mut endpoints = self.endpoints.lock();
            // Those that are gone, when as many may be gone as are there.
            if endpoints.len() == endpoints.capacity() {
                endpoints.retain(|endpoint| endpoint.strong_count() > 0);
            }
            endpoints.push(Arc::downgrade(endpoint));
        }
        // The device may have gone meanwhile, and `lose` not have seen this one.
        if self.lost.load(Ordering::SeqCst) {
            endpoint.disconnect();
        }
    }

    fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
        let all = std::mem::take(&mut *self.endpoints.lock());
        all.iter().filter_map(Weak::upgrade).for_each(|endpoint| endpoint.disconnect());
    }
}

/// Where the events of the far domain go.
pub(crate) struct FarEvents {
    pub(crate) events: Arc<dyn EventSink>,
    pub(crate) ends: Arc<NearEnds>,
}

impl EventSink for FarEvents {
    fn event(&self, event: Event) {
        let is_lost = matches!(event, Event::DeviceLost);
        self.events.event(event);
        if is_lost {
            log_line!(Warn, "the device is gone: connections by shared memory end, too");
            self.ends.lose();
        }
    }
}

/// Where those of the near domain go.
pub(crate) struct NearEvents {
    pub(crate) events: Arc<dyn EventSink>,
    pub(crate) ends: Arc<NearEnds>,
}

impl EventSink for NearEvents {
    fn event(&self, event: Event) {
        let is_lost = || self.ends.lost.load(Ordering::SeqCst);
        let event = match event {
            Event::Disconnected { endpoint, reason: DisconnectReason::Local } if is_lost() => {
                Event::Disconnected { endpoint, reason: DisconnectReason::DeviceLost }
            }
            Event::ConnectFailed { endpoint, error: Error::Canceled } if is_lost() => {
                Event::ConnectFailed { endpoint, error: Error::DeviceLost }
            }
            event => event,
        };
        self.events.event(event);
    }
}
