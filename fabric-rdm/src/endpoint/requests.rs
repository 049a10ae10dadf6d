//! Requests of peers and strangers for a connection.

use std::time::Duration;

use fabric::ConnectRequest;
use fabric_core::{Result, likely};
use fabric_util::log_line;

use super::core::Core;
use super::held::HeldRequest;
use super::hello_data::{Known, asking, decode_hello, encode_acceptance, encode_refusal, is_for};
use super::shared::{PeerEvent, Shared};
use super::shortage;
use crate::address::Address;
use crate::connection::{Answer, PeerConnection, Phase, Refusal};
use crate::identity::{EndpointIdentity, HostIdentity};
use crate::peers::Peer;

/// Requests that are answered in one turn.
const REQUESTS: usize = 64;
fn refuse(request: &mut ConnectRequest, refusal: Refusal) -> Result<()> {
    request.reject(&encode_refusal(refusal))
}

impl Core {
    pub(super) fn on_requests(&mut self) {
        self.more_requests = false;
        self.on_held();
        for turn in 0.. {
            if turn == REQUESTS {
                self.more_requests = true;
                return;
            }
            let Some(request) = self.listener.poll() else { return };
            self.answer(request);
        }
    }

    /// Answers requests that waited, as long as there is room, and makes an attempt that waited behind each: so a crowd that asks
    /// keeps no answer from going out.
    fn on_held(&mut self) {
        while !self.is_full() {
            self.is_own_turn = !self.is_own_turn;
            if self.is_own_turn
                && let Some(peer) = self.hurry_waiting()
            {
                self.act(peer);
                self.note_active(peer);
                continue;
            }
            let Some(held) = self.held.pop() else { return self.call_waiting() };
            let waited_since = held.until.saturating_sub(self.shared.attr.timeouts.attempt / 2);
            self.appointments.on_served(self.shared.now(), waited_since);
            self.answer(held.request);
        }
    }

    /// Refuses requests that have waited for too long.
    pub(super) fn refuse_late(&mut self) {
        let now = if likely(self.held.is_empty()) { return } else { self.shared.now() };
        while let Some(mut held) = self.held.pop_late(now) {
            self.refuse_busy(&mut held.request);
        }
    }

    /// Refuses a request for which there is no room, and says when to come again.
    fn refuse_busy(&mut self, request: &mut ConnectRequest) {
        let wait = self.appointments.next(self.shared.now(), self.held.len());
        let _ = refuse(request, Refusal::Busy(wait)); // it may be over
    }

    /// Answers a request, or has it wait for room.
    fn answer(&mut self, mut request: ConnectRequest) {
        self.take_queued();
        match self.on_request(&mut request) {
            Ok(None) => {}
            Ok(Some(from)) => {
                // Half of the time that the peer waits is left for the way.
                let until = self.shared.now() + self.shared.attr.timeouts.attempt / 2;
                if let Some(mut refused) = self.held.hold(HeldRequest { from, request, until }) {
                    self.refuse_busy(&mut refused);
                }
                self.make_room();
            }
            Err(error) => log_line!(Warn, "a request of {}: {error}", request.peer_addr()),
        }
    }

    /// Answers a request. Whose it is, if there is no room.
    fn on_request(&mut self, request: &mut ConnectRequest) -> Result<Option<EndpointIdentity>> {
        let Some(from) = asking(request.private_data()) else {
            // Of another program, or another version: it is sent away without data.
            return request.reject(&[]).map(|()| None);
        };
        let refuse = |request, refusal| refuse(request, refusal).map(|()| None);
        let peer = match self.peers.find(from) {
            // At the address of an earlier incarnation is this one, which may know itself as a peer.
            _ if from == self.shared.me => return self.answer_own(request).map(|()| None),
            Some(peer) => peer,
            // It is for an earlier incarnation, which is gone: also if this one does not know the peer.
            None if !is_for(self.shared.me, request.private_data()) => {
                return refuse(request, Refusal::Gone);
            }
            None if self.shared.strangers >= self.shared.attr.max_strangers => {
                return refuse(request, Refusal::Stranger);
            }
            None => {
                let known = Known { me: self.shared.me, attempts: 0, sent: 0, received: 0 };
                let Some(hello) = decode_hello(request.private_data(), &known) else {
                    return request.reject(&[]).map(|()| None);
                };
                // As a peer of its own would answer, which is made only if it is accepted.
                let Shared { me, attr, .. } = &self.shared;
                let mut trial = PeerConnection::new(*me, from, attr.timeouts);
                if let Answer::Refuse(refusal) = trial.on_request(self.shared.now(), &hello) {
                    return refuse(request, refusal);
                }
                if self.is_full() && !self.give_way_to_request() {
                    return Ok(Some(from));
                }
                self.admit(from, request)?
            }
        };
        let (link, shared) = self.link(peer)?;
        let Some(hello) = decode_hello(request.private_data(), &link.known(shared)) else {
            return request.reject(&[]).map(|()| None);
        };
        let needs_room = link.connection.phase() != Phase::Dead && link.conns.is_empty();
        if needs_room && !self.has_place(peer) && !self.give_way_to_request() {
            return Ok(Some(from));
        }
        let (link, shared) = self.link(peer)?;
        let answer = link.connection.on_request(shared.now(), &hello);
        // What it closes goes first: it has the room that the new one needs.
        self.act(peer);
        let (link, shared) = self.link(peer)?;
        let answered = match answer {
            Answer::Refuse(refusal) => request.reject(&encode_refusal(refusal)),
            Answer::Accept(id, hello) => {
                let data = encode_acceptance(&hello, shared.own_windows());
                let accepted = link.open(shared).and_then(|endpoint| {
                    request.accept(&endpoint, &data)?;
                    Ok(endpoint)
                });
                match accepted {
                    Ok(endpoint) => {
                        link.keep(shared, id, endpoint);
                        link.phase_since = shared.now();
                        Ok(())
                    }
                    Err(error) => {
                        link.lose(shared, id);
                        if shortage::is_of_process(&error) {
                            // The peer may try again, and does not take it for a loss.
                            let _ = request.reject(&encode_refusal(Refusal::Busy(Duration::ZERO)));
                            self.on_shortage(&error);
                        }
                        Err(error)
                    }
                }
            }
        };
        if let Some((link, shared)) = self.find_link(peer) {
            link.mark(shared);
        }
        // It counts from here on: the next request may be one too many.
        self.note_active(peer);
        answered.map(|()| None)
    }

    /// A stranger becomes a peer. Its own address comes with its confirmation.
    fn admit(&mut self, from: EndpointIdentity, request: &ConnectRequest) -> Result<Peer> {
        let host = HostIdentity::from_bytes([0; 16]);
        let address = Address::new(from, host, &[request.peer_addr()])?;
        let peer = self.peers.insert(&address)?;
        match self.link(peer) {
            Ok((link, _)) => link.is_stranger = true,
            Err(error) => {
                let _ = self.peers.remove(peer);
                return Err(error);
            }
        }
        self.shared.strangers += 1;
        self.shared.peer_events.push_back(PeerEvent::Admitted(peer));
        Ok(peer)
    }
}
