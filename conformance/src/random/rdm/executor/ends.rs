//! The endpoints of a program: how they are made, come to know each other, and go.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabric::Access;
use fabric_rdm::{DeathCause, Endpoint, Peer, PeerEvent, RdmAttr};

use super::{Member, RdmExecutor, counter_at};
use crate::check::{Failed, Outcome};
use crate::guarded::Guarded;
use crate::random::rdm::program::{MAX_ENDS, RdmSettings};
use crate::random::testbed::Bench;

/// How long connecting to an endpoint takes that was dropped.
const TO_DROPPED: Duration = Duration::from_secs(1);
/// How long endpoints wait before they try again to connect, for an attempt of the other side, and for an answer: where each has
/// one connection, that is what programs wait for most.
const RETRY: Duration = Duration::from_millis(1);
const CROSSING: Duration = Duration::from_millis(100);
const ATTEMPT: Duration = Duration::from_millis(300);

fn attr(bench: &Bench, settings: &RdmSettings) -> RdmAttr {
    let mut attr = RdmAttr::default();
    attr.listen = Some((bench.ip, 0).into());
    let connect = if settings.drops { TO_DROPPED } else { attr.timeouts.connect };
    attr.timeouts.connect = bench.scaled(connect);
    attr.timeouts.attempt = bench.scaled(ATTEMPT);
    attr.timeouts.retry = RETRY;
    attr.timeouts.crossing = bench.scaled(CROSSING);
    attr.max_open = settings.max_open;
    attr.send_depth = settings.send_depth;
    attr.recv_depth = settings.recv_depth;
    attr.slots = settings.slots;
    attr.slot_len = settings.slot_len;
    attr.rendezvous = settings.rendezvous;
    attr.connection_depth = settings.connection_depth;
    attr.max_strangers = settings.max_strangers;
    attr.window.places.window = settings.window;
    attr.window.bytes.window = settings.bytes;
    attr.window.bytes.reserved = attr.window.bytes.reserved.min(settings.bytes);
    attr
}

impl RdmExecutor<'_> {
    /// Makes one more endpoint, which knows no other one and listens there, or anywhere.
    pub(super) fn add_member(&mut self, listen: Option<SocketAddr>) -> Outcome {
        let at = self.members.len();
        let domain = self.domain(at);
        let mut attr = attr(self.bench, &self.program.settings);
        attr.listen = listen.or(attr.listen);
        let endpoint = Endpoint::new(domain, &attr)?;
        self.members.iter_mut().for_each(|member| {
            member.peers.push(None);
            member.pokes.push(Vec::new());
        });
        self.members.push(Member {
            address: endpoint.address().clone(),
            endpoint: Some(Arc::new(endpoint)),
            memory: Guarded::new(domain, counter_at(MAX_ENDS), Access::ALL)?,
            peers: vec![None; at + 1],
            handles: HashMap::new(),
            posted: Vec::new(),
            received: (0, 0),
            pokes: vec![Vec::new(); at + 1],
        });
        Ok(())
    }

    /// Drops an endpoint, and makes another one at its address: a new incarnation.
    pub(super) fn restart(&mut self, at: usize) -> Outcome {
        let new = self.members.len();
        if new == MAX_ENDS || self.endpoint(at).is_none() {
            return Ok(());
        }
        self.drop_endpoint(at);
        let listen = self.members[at].address.rails().next();
        self.add_member(listen)?;
        self.model.joins();
        for one in 0..=new {
            if self.endpoint(one).is_some() {
                self.members[one].peers[new] = Some(self.insert_peer(one, new)?);
            }
            // Of one that was dropped too.
            if one < new {
                self.members[new].peers[one] = Some(self.insert_peer(new, one)?);
            }
        }
        Ok(())
    }

    /// Which endpoint a handle is of. One of a stranger is known by an event.
    pub(super) fn whose(&mut self, at: usize, peer: Peer) -> Result<Option<usize>, Failed> {
        if !self.members[at].handles.contains_key(&peer) {
            self.events(at)?;
        }
        Ok(self.members[at].handles.get(&peer).copied())
    }

    /// Takes what happened to peers.
    pub(super) fn events(&mut self, at: usize) -> Outcome {
        let Some(endpoint) = self.endpoint(at) else { return Ok(()) };
        while let Some(event) = endpoint.poll_event()? {
            match event {
                PeerEvent::Admitted(peer) => self.admitted(at, &endpoint, peer)?,
                PeerEvent::Down(peer, cause) => self.fell(at, peer, cause)?,
                _ => return Err(Failed::new("an event that is known", format!("{event:?}"))),
            }
        }
        Ok(())
    }

    fn fell(&mut self, at: usize, peer: Peer, cause: DeathCause) -> Outcome {
        let member = &self.members[at];
        let of = member.handles.get(&peer).copied();
        match of.filter(|of| member.peers[*of] == Some(peer)) {
            Some(of) => {
                self.note(format!("e{at}: e{of} is down: {cause}"));
                self.model.fell_by(at, of, cause)?;
                self.model.event(at, of).map_err(|failed| failed.of(cause))
            }
            None => Err(Failed::new("an event of a peer", format!("e{at}: {peer} is down"))),
        }
    }

    fn admitted(&mut self, at: usize, endpoint: &Endpoint, peer: Peer) -> Outcome {
        let identity = endpoint.address_of(peer)?.identity();
        let is_it = |member: &Member| member.address.identity() == identity;
        let Some(of) = self.members.iter().position(is_it) else {
            return Err(Failed::new("a stranger of the program", identity.to_string()));
        };
        self.note(format!("e{at}: e{of} is admitted"));
        self.members[at].handles.insert(peer, of);
        self.members[at].peers[of] = Some(peer);
        self.model.admitted(at, of)
    }

    pub(super) fn insert_peer(&mut self, at: usize, of: usize) -> Result<Peer, Failed> {
        let Some(endpoint) = self.endpoint(at) else {
            return Err(Failed::new("an endpoint", "it was dropped"));
        };
        let peer = endpoint.insert(&self.members[of].address)?;
        match self.members[at].handles.insert(peer, of) {
            Some(other) => {
                let expected = format!("e{at}: a handle of its own for e{of}");
                Err(Failed::new(expected, format!("{peer}, which was of e{other}")))
            }
            None => Ok(peer),
        }
    }

    pub(super) fn remove(&mut self, at: usize, peer: usize) -> Outcome {
        let Some(endpoint) = self.endpoint(at) else { return Ok(()) };
        if self.model.is_present(at, peer) && at != peer {
            self.look_down(at, peer)?;
            self.model.removed(at, peer);
            self.members[at].peers[peer].map_or(Ok(()), |peer| endpoint.remove(peer))?;
        }
        Ok(())
    }

    pub(super) fn insert(&mut self, at: usize, peer: usize) -> Outcome {
        let (Some(endpoint), Some(other)) = (self.endpoint(at), self.endpoint(peer)) else {
            return Ok(());
        };
        // It may have been admitted.
        self.events(at)?;
        if self.model.is_present(at, peer) {
            let again = endpoint.insert(other.address())?;
            if Some(again) != self.members[at].peers[peer] {
                let expected = format!("e{at}: the handle that e{peer} has");
                return Err(Failed::new(expected, format!("{again}")));
            }
            return Ok(());
        }
        self.members[at].peers[peer] = Some(self.insert_peer(at, peer)?);
        self.model.inserted(at, peer);
        Ok(())
    }

    pub(super) fn revive(&mut self, at: usize, peer: usize) -> Outcome {
        let Some(endpoint) = self.endpoint(at) else { return Ok(()) };
        if self.look_down(at, peer)? {
            self.members[at].peers[peer].map_or(Ok(()), |peer| endpoint.revive(peer))?;
            self.model.revived(at, peer);
            self.note(format!("e{at}: e{peer} is revived"));
        }
        Ok(())
    }

    /// Whether a peer is down.
    pub(super) fn look_down(&mut self, at: usize, of: usize) -> Result<bool, Failed> {
        let Some(endpoint) = self.endpoint(at) else { return Ok(false) };
        let Some(peer) = self.members[at].peers[of].filter(|_| self.model.is_present(at, of))
        else {
            return Ok(false);
        };
        match endpoint.down(peer)? {
            Some(cause) => {
                self.model.fell_by(at, of, cause)?;
                self.model.fell(at, of).map_err(|failed| failed.of(cause))?;
                Ok(true)
            }
            None => self.model.stands(at, of).map(|()| false),
        }
    }

    pub(super) fn drop_endpoint(&mut self, at: usize) {
        self.kept.retain(|kept| kept.at != at);
        if self.members[at].endpoint.take().is_some() {
            self.model.drops(at);
        }
    }
}
