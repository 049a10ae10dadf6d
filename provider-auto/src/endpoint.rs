//! Endpoints: each is one of the two, from the moment on when it is known which.
//!
//! Before that, receives wait here. A connection attempt that fails at once leaves the endpoint as it was, so that it can be tried
//! again, the other way too.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use fabric_core::provider::RequestId;
use fabric_core::{
    DomainOps, EndpointAttr, EndpointId, EndpointOps, Error, Path, Posted, RecvWork, Result,
    Segment, SendWork, Token,
};
use fabric_util::log_line;
use fabric_util::sync::{Condvar, Mutex, MutexGuard};
use provider_shm::ShmEndpoint;

use crate::cq::Queues;
use crate::shared_receives::Pool;
use crate::ways::{Side, Ways, split};

/// An endpoint.
pub struct AutoEndpoint {
    id: EndpointId,
    attr: EndpointAttr,
    ways: Arc<Ways>,
    send_cq: Arc<Queues>,
    receives: Receives,
    chosen: OnceLock<Chosen>,
    open: Mutex<Open>,
    is_settled: Condvar,
}

/// Where its receives come from.
pub(crate) enum Receives {
    /// From itself; where their completions go.
    Own(Arc<Queues>),
    /// From a shared queue.
    Pool(Arc<Pool>),
}

/// Which of the two it is, and why; nothing if it has ended before it was connected.
struct Chosen {
    way: Way,
    path: Option<Path>,
}

enum Way {
    Near(Arc<ShmEndpoint>),
    Far(Box<dyn EndpointOps>),
}

/// What there is until it is known.
#[derive(Default)]
struct Open {
    /// A way is being tried. No lock is held meanwhile: events come from there.
    tries: bool,
    receives: Vec<Waiting>,
}

/// A receive.
#[derive(Clone)]
struct Waiting {
    token: Token,
    segments: Box<[Segment]>,
}

impl Way {
    #[inline]
    fn ops(&self) -> &dyn EndpointOps {
        match self {
            Way::Near(near) => &**near,
            Way::Far(far) => &**far,
        }
    }

    /// # Safety
    /// As [`EndpointOps::post_send`].
    #[inline]
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Way::Near(near) => near.post_send(work),
                Way::Far(far) => far.post_send(work),
            }
        }
    }

    /// # Safety
    /// As [`EndpointOps::post_recv`].
    #[inline]
    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Way::Near(near) => near.post_recv(work),
                Way::Far(far) => far.post_recv(work),
            }
        }
    }
}

impl AutoEndpoint {
    pub(crate) fn new(
        id: EndpointId,
        attr: &EndpointAttr,
        ways: &Arc<Ways>,
        send_cq: &Arc<Queues>,
        receives: Receives,
    ) -> Self {
        AutoEndpoint {
            id,
            attr: attr.clone(),
            ways: ways.clone(),
            send_cq: send_cq.clone(),
            receives,
            chosen: OnceLock::new(),
            open: Mutex::default(),
            is_settled: Condvar::new(),
        }
    }

    #[inline]
    fn way(&self) -> Option<&Way> {
        self.chosen.get().map(|chosen| &chosen.way)
    }

    /// Behind a way that is being tried, which is a matter of some system calls.
    fn settled(&self) -> MutexGuard<'_, Open> {
        let mut open = self.open.lock();
        while open.tries {
            open = self.is_settled.wait(open);
        }
        open
    }

    /// The way, behind one that is being tried: an event can be ahead of the call that it is of.
    #[inline]
    fn settled_way(&self) -> Option<&Way> {
        self.way().or_else(|| {
            drop(self.settled());
            self.way()
        })
    }

    /// A new one that goes the near way.
    fn near(&self) -> Result<Arc<ShmEndpoint>> {
        let (domain, send_cq) = (&self.ways.near, &self.send_cq.near);
        let near = Arc::new(match &self.receives {
            Receives::Own(cq) => domain.endpoint(self.id, &self.attr, send_cq, &cq.near),
            Receives::Pool(pool) => {
                domain.endpoint_sharing(self.id, &self.attr, send_cq, &pool.near)
            }
        }?);
        self.ways.ends.add(&near);
        Ok(near)
    }

    /// A new one that goes the far way.
    fn far(&self) -> Result<Way> {
        let (domain, send_cq) = (&self.ways.far, &self.send_cq);
        send_cq.use_far();
        let far = match &self.receives {
            Receives::Own(cq) => {
                cq.use_far();
                domain.endpoint(self.id, &self.attr, &*send_cq.far, &*cq.far)
            }
            Receives::Pool(pool) => {
                pool.cq.use_far();
                domain.endpoint_sharing(self.id, &self.attr, &*send_cq.far, &*pool.far)
            }
        };
        Ok(Way::Far(far?))
    }

    /// Goes a way, for good unless that fails at once: has it the receives that wait, and then has it `begin`.
    fn go(
        &self,
        way: Way,
        path: Option<Path>,
        begin: impl FnOnce(&dyn EndpointOps) -> Result<()>,
    ) -> Result<()> {
        let receives = {
            let mut open = self.settled();
            if self.chosen.get().is_some() {
                return Err(Error::state("connect", "the endpoint was connected before"));
            }
            open.tries = true;
            open.receives.clone()
        };
        let begun = post_all(&way, &receives).and_then(|()| begin(way.ops()));
        // What does not let go of the receives must be asked for that until it does.
        let is_chosen = begun.is_ok() || way.ops().quiesce().is_err();
        let mut open = self.open.lock();
        if is_chosen {
            let _ = self.chosen.set(Chosen { way, path });
            open.receives = Vec::new();
        }
        open.tries = false;
        drop(open);
        self.is_settled.notify_all();
        begun
    }
}

/// Posts receives that have waited.
fn post_all(way: &Way, receives: &[Waiting]) -> Result<()> {
    let work: Vec<_> =
        receives.iter().map(|receive| RecvWork::new(receive.token, &receive.segments)).collect();
    if work.is_empty() {
        return Ok(());
    }
    // SAFETY: those that posted them promised it for this endpoint.
    unsafe { way.post_recv(&work) }.refusal.map_or(Ok(()), Err)
}

// SAFETY: each of the two keeps the contract for what it is given. What it is not given yet stays here, where segments are reached by
// none; a way that fails at once has let go of them (`go`).
unsafe impl EndpointOps for AutoEndpoint {
    #[inline]
    unsafe fn post_send(&self, work: &[SendWork<'_>]) -> Posted {
        match self.settled_way() {
            // SAFETY: the caller's promise.
            Some(way) => unsafe { way.post_send(work) },
            None => Posted::until(0, Error::NotConnected),
        }
    }

    #[inline]
    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        let way = self.way().or_else(|| {
            let mut open = self.settled();
            if self.way().is_none() {
                open.receives.extend(work.iter().map(|receive| Waiting {
                    token: receive.token,
                    segments: receive.segments.into(),
                }));
            }
            self.way()
        });
        match way {
            // SAFETY: the caller's promise.
            Some(way) => unsafe { way.post_recv(work) },
            None => Posted::all(work.len()),
        }
    }

    fn connect(&self, to: SocketAddr, data: &[u8]) -> Result<()> {
        let found = self.ways.connect_near(to, &self.attr)?;
        let path = self.ways.path_of(&found);
        log_line!(Debug, "{} to {to}: {path}", self.id);
        match found {
            Ok((transport, local)) => {
                let near = self.near()?;
                let begin = |_: &_| near.connect_by((transport, Some(local)), to, data);
                self.go(Way::Near(near.clone()), Some(path), begin)
            }
            Err(_) => self.go(self.far()?, Some(path), |far| far.connect(to, data)),
        }
    }

    fn accept(&self, request: RequestId, data: &[u8]) -> Result<()> {
        let (side, request) = split(request);
        let (way, path) = match side {
            Side::Near => {
                (Way::Near(self.near()?), self.ways.near_path("the peer came by shared memory"))
            }
            Side::Far => (self.far()?, self.ways.far_path("the peer did not come by it")),
        };
        log_line!(Debug, "{}: {path}", self.id);
        self.go(way, Some(path), |ops| ops.accept(request, data))
    }

    fn disconnect(&self) {
        if self.settled_way().is_none()
            && let Ok(near) = self.near()
        {
            // Either does it; the receives get their completions there.
            let _ = self.go(Way::Near(near), None, |_| Ok(()));
        }
        if let Some(way) = self.way() {
            way.ops().disconnect();
        }
    }

    fn quiesce(&self) -> Result<()> {
        match self.way() {
            Some(way) => way.ops().quiesce(),
            None => {
                self.open.lock().receives = Vec::new();
                Ok(())
            }
        }
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.settled_way()?.ops().local_addr()
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.settled_way()?.ops().peer_addr()
    }

    fn peer_identity(&self) -> Option<Arc<str>> {
        self.settled_way()?.ops().peer_identity()
    }

    fn path(&self) -> Option<Path> {
        self.settled_way()?;
        self.chosen.get()?.path.clone()
    }

    fn dump(&self) -> String {
        let Some(chosen) = self.chosen.get() else {
            return "no way has been chosen".to_owned();
        };
        let path = chosen.path.as_ref().map_or(String::new(), |path| format!("{path}\n"));
        path + &chosen.way.ops().dump()
    }
}
