//! How a connection is established.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fabric_core::{DisconnectReason, Error, Event, Failure, Result};
use fabric_util::log_limiter::PeerEvent;
use fabric_util::refusal::{Declined, RefuseReason};
use fabric_util::{log_line, route};

use crate::conn::{CloseReason, Conn, ConnState, State};
use crate::device::device_and_port;
use crate::domain::state::{AfterReport, CmIdOwner};
use crate::domain::timers::Timer;
use crate::error::NAME;
use crate::ffi::{self, ibv_qp_attr_mask as mask, ibv_qp_state};
use crate::handle::{CmEvent, CmId, ConnParam};
use crate::handshake::{Ends, Initiator};
use crate::header::ConnectParams;
use crate::path;
use crate::request::{ConnectOffer, refuse};

/// Reads and atomics that one side serves at a time for the other.
const READS: u32 = 16;
/// When to ask again a peer that has not forgotten an earlier connection.
const STALE: Duration = Duration::from_millis(50);

impl Conn {
    /// The reads and atomics that this side serves, and the maximum that it keeps in flight.
    fn resources(&self) -> (u8, u8) {
        let attributes = &self.domain.device.attributes;
        let limit = |device: u32| device.min(READS) as u8;
        (limit(attributes.max_qp_rd_atom), limit(attributes.max_qp_init_rd_atom))
    }

    fn probe_number(&self) -> u32 {
        self.probe.as_ref().map_or(0, |probe| probe.number())
    }

    /// Starts to connect.
    pub(crate) fn connect(self: &Arc<Self>, to: SocketAddr, data: &[u8]) -> Result<()> {
        self.check_leads_out(to)?;
        let from = route::source_addr(&self.domain.device.info, to, self.attr.source)?;
        let mut state = self.lock();
        if state.conn_state != ConnState::Idle {
            // It was closed in between.
            return Err(Error::NotConnected);
        }
        let challenges = self.domain.challenges.lock();
        let ends = Ends::new(from, to.ip(), self.qp.number());
        (state.initiator, state.connect_data) =
            Initiator::new(challenges.keys(), ends, (self.probe_number(), data));
        drop(challenges);
        state.peer = Some(to);
        state.conn_state = ConnState::Connecting;
        let started = self.resolve(&mut state, from, to);
        started.map_err(|cause| {
            (state.conn_state, state.peer) = (ConnState::Idle, None);
            unreachable(cause)
        })?;
        self.domain.deadline(self.attr.connect_timeout, self.number, Timer::Connect);
        Ok(())
    }

    /// That an address does not lead back into this host past the device. RXE finds no route for a packet to `::1`, whose
    /// sending then fails, and with it the queue pair of the kernel's own by which all its connections are made: no program
    /// on the host could connect for minutes. Other such packets get lost on their way.
    fn check_leads_out(&self, to: SocketAddr) -> Result<()> {
        let (info, ip) = (&self.domain.device.info, to.ip().to_canonical());
        let inward = ip.is_loopback() || ip.is_unspecified();
        if !inward || info.addresses.contains(&ip) {
            return Ok(());
        }
        let text = format!(
            "{to} does not lead to {}; from this host, too, it is reached by its own addresses, {:?}",
            info.device, info.addresses
        );
        Err(Error::Unreachable(Failure::new("connect", text).of(NAME)))
    }

    pub(crate) fn resolve(
        self: &Arc<Self>,
        state: &mut State,
        from: IpAddr,
        to: SocketAddr,
    ) -> io::Result<()> {
        let port = self.attr.source_port;
        let context = self.domain.next_number();
        let id = CmId::new(&self.domain.channel, context)?;
        if let Some(class) = self.attr.traffic_class {
            id.set_tos(class)?;
        }
        if port != 0 {
            id.share_port()?;
        }
        self.domain.add_id(context, CmIdOwner::Conn(self.clone()));
        id.resolve_addr(SocketAddr::new(from, port), to, self.attr.connect_timeout)
            .inspect_err(|_| self.domain.forget_id(context))?;
        if let Some((old, id)) = state.id.replace((context, id)) {
            drop(id);
            self.domain.forget_id(old);
        }
        Ok(())
    }

    /// Answers a request with this connection. A peer that is gone ends it.
    pub(crate) fn accept(self: &Arc<Self>, offer: Option<ConnectOffer>, data: &[u8]) {
        let mut state = self.lock();
        if state.conn_state != ConnState::Idle {
            // It was closed in between, and that was reported; dropping the identifier drops the request.
            return;
        }
        state.conn_state = ConnState::Accepting;
        let Some(offer) = offer else {
            return self.close(&mut state, CloseReason::Disconnected(DisconnectReason::PeerLost));
        };
        let ConnectOffer { context, id, params, acceptance, peer, local, resources } = offer;
        (state.peer, state.local) = (Some(peer), Some(local));
        self.domain.add_id(context, CmIdOwner::Conn(self.clone()));
        let (hold, flight) = self.resources();
        let (responder_resources, initiator_depth) =
            (hold.min(resources.0), flight.min(resources.1));
        let bytes = acceptance.accept(self.qp.number(), (self.probe_number(), data));
        let param = ConnParam {
            data: &bytes,
            qp_num: self.qp.number(),
            shares: self.shared.is_some(),
            responder_resources,
            initiator_depth,
        };
        let linked = self
            .make_ready(&mut state, &id, params.probe, (responder_resources, initiator_depth))
            .and_then(|()| id.accept(&param))
            // A peer that is still there need not wait for its own time-out.
            .inspect_err(|_| refuse(&id, RefuseReason::Full));
        state.id = Some((context, id));
        if let Err(cause) = linked {
            // The peer has gone, or this side cannot: only the cause shows which, and the event is the same.
            let log = &self.domain.device.stats.peer_log;
            if let Some(suppressed) = log.check(PeerEvent::Admission, Some(peer)) {
                log_line!(Warn, "{}: accepting {peer} failed: {cause}{suppressed}", self.id);
            }
            return self.close(&mut state, CloseReason::Disconnected(DisconnectReason::PeerLost));
        }
        self.domain.deadline(self.attr.connect_timeout, self.number, Timer::Connect);
    }

    /// Moves the queue pair to RTS.
    fn make_ready(
        &self,
        state: &mut State,
        id: &CmId,
        peer_probe: u32,
        (responder, initiator): (u8, u8),
    ) -> io::Result<()> {
        let probe = self.probe.as_ref().filter(|_| peer_probe != 0);
        let (init, _) = id.path(ibv_qp_state::IBV_QPS_INIT)?;
        self.qp.init(init.pkey_index)?;
        state.was_ready = true;
        let (mut attr, bits) = id.path(ibv_qp_state::IBV_QPS_RTR)?;
        state.first_psn = attr.rq_psn;
        path::set_path(&mut attr, &self.attr);
        attr.max_dest_rd_atomic = responder.max(1);
        attr.min_rnr_timer = path::rnr_timer(&self.attr);
        let bits = bits | (mask::IBV_QP_MAX_DEST_RD_ATOMIC | mask::IBV_QP_MIN_RNR_TIMER).0 as i32;
        self.qp.modify(&mut attr, bits)?;
        if let Some(probe) = probe {
            probe.init(init.pkey_index)?;
            (attr.dest_qp_num, attr.rq_psn) = (peer_probe, 0);
            probe.modify(&mut attr, bits)?;
        }
        let (mut attr, bits) = id.path(ibv_qp_state::IBV_QPS_RTS)?;
        attr.max_rd_atomic = initiator.max(1);
        attr.rnr_retry = 7;
        (attr.timeout, attr.retry_cnt) =
            path::retry_limits(&self.attr, self.domain.device.quirks, probe.is_some());
        let more = mask::IBV_QP_MAX_QP_RD_ATOMIC
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT;
        self.qp.modify(&mut attr, bits | more.0 as i32)?;
        if let Some(probe) = probe {
            (attr.timeout, attr.retry_cnt) = path::probe_retry_limits(&self.attr);
            attr.sq_psn = 0;
            probe.modify(&mut attr, bits | more.0 as i32)?;
        }
        state.peer_answers_probes = self.probe.is_none() || probe.is_some();
        Ok(())
    }

    pub(crate) fn on_address_resolved(&self, state: &mut State) {
        let Some((_, id)) = &state.id else { return };
        let (wanted, port) = device_and_port(&self.domain.device.info.device);
        let found = id.device();
        if found.as_ref().is_none_or(|(name, number)| name != wanted || *number != port) {
            let text = match found {
                Some((name, number)) => {
                    format!("the way there is by {name}, port {number}, not by {wanted}")
                }
                None => format!("the way there is not by {wanted}"),
            };
            let error = Error::Unreachable(Failure::new("connect", text).of(NAME));
            return self.close(state, CloseReason::ConnectFailed(error));
        }
        state.local = id.local_addr();
        if let Err(cause) = id.resolve_route(self.attr.connect_timeout) {
            self.close(state, CloseReason::ConnectFailed(unreachable(cause)));
        }
    }

    pub(crate) fn on_route_resolved(&self, state: &mut State) {
        let Some((_, id)) = &state.id else { return };
        let (responder_resources, initiator_depth) = self.resources();
        let param = ConnParam {
            data: &state.connect_data,
            qp_num: self.qp.number(),
            shares: self.shared.is_some(),
            responder_resources,
            initiator_depth,
        };
        if let Err(cause) = id.connect(&param) {
            self.close(state, CloseReason::ConnectFailed(unreachable(cause)));
        }
    }

    pub(crate) fn on_connect_response(&self, state: &mut State, event: &CmEvent) {
        let Some((context, id)) = state.id.take() else { return };
        let (hold, flight) = self.resources();
        let resources = (hold.min(event.responder_resources), flight.min(event.initiator_depth));
        let linked = match state.initiator.on_accept(event.queue_pair, &event.data) {
            Ok(ConnectParams { probe, data }) => self
                .make_ready(state, &id, probe, resources)
                .map(|()| data)
                .map_err(|cause| Error::system("connect", NAME, cause)),
            Err(declined) => Err(self.declined(declined, state.peer)),
        };
        state.id = Some((context, id));
        match linked {
            // The owner is notified first: the peer may send as soon as it is.
            Ok(data) => {
                (state.owes_confirmation, state.initiator) = (true, Initiator::default());
                self.set_established(state, data, AfterReport::Establish(self.number));
            }
            Err(error) => self.close(state, CloseReason::ConnectFailed(error)),
        }
    }

    pub(crate) fn set_established(&self, state: &mut State, data: Box<[u8]>, then: AfterReport) {
        state.conn_state = ConnState::Established;
        self.domain.report(Event::Connected { endpoint: self.id, data }, then);
        if let Some(interval) = self.attr.liveness {
            self.domain.deadline(interval, self.number, Timer::Liveness);
        }
        self.watch_for_stalls();
    }

    /// The peer's confirmation does not come. It may be lost, which does not matter where the peer has begun to send: it does
    /// so only after it has confirmed.
    pub(crate) fn unconfirmed(&self, state: &mut State) {
        if !matches!(self.qp.next_psn(), Ok(Some(next)) if next != state.first_psn) {
            return self.close(state, CloseReason::Disconnected(DisconnectReason::PeerLost));
        }
        self.notify_established(state);
        self.set_established(state, Box::default(), AfterReport::Nothing);
    }

    /// Has the connection manager know that the connection is there: it waits for the confirmation no more, and reports the
    /// connection unless it has.
    pub(crate) fn notify_established(&self, state: &State) {
        if let Some((_, id)) = &state.id
            && let Err(error) = id.notify_established()
        {
            // The confirmation has come meanwhile.
            log_line!(Debug, "{}: {error}", self.id);
        }
    }

    pub(crate) fn on_rejected(self: &Arc<Self>, state: &mut State, event: &CmEvent) {
        let error = match event.status {
            ffi::REJ_CONSUMER_DEFINED => match state.initiator.on_reject(&event.data) {
                Ok(request) => {
                    state.connect_data = request;
                    return self.connect_again(state);
                }
                Err(declined) => self.declined(declined, state.peer),
            },
            ffi::REJ_STALE_CONN => {
                return self.domain.deadline(STALE, self.number, Timer::Retry);
            }
            ffi::REJ_INVALID_SERVICE_ID => Error::Refused(None),
            reason => {
                log_line!(Debug, "{}: rejected with reason {reason}", self.id);
                Error::Refused(None)
            }
        };
        self.close(state, CloseReason::ConnectFailed(error));
    }

    fn declined(&self, declined: Declined, peer: Option<SocketAddr>) -> Error {
        if let Declined::Malformed(text) = &declined {
            let stats = &self.domain.device.stats;
            stats.protocol_errors.add(1);
            if let Some(suppressed) = stats.peer_log.check(PeerEvent::Protocol, peer) {
                log_line!(Warn, "{}: {peer:?}: {text}{suppressed}", self.id);
            }
        }
        declined.into_error(NAME)
    }

    /// Makes the request at hand, by a new identifier: one has one request.
    pub(crate) fn connect_again(self: &Arc<Self>, state: &mut State) {
        let (Some(from), Some(to)) = (state.local, state.peer) else { return };
        if let Err(cause) = self.resolve(state, from.ip(), to) {
            self.close(state, CloseReason::ConnectFailed(unreachable(cause)));
        }
    }
}

/// A connection attempt that found no way.
pub(crate) fn unreachable(cause: io::Error) -> Error {
    match Error::system("connect", NAME, cause) {
        Error::Internal(failure) => Error::Unreachable(failure),
        Error::TimedOut(_) => {
            Error::Unreachable(Failure::new("connect", "no host answers at the address").of(NAME))
        }
        other => other,
    }
}
