//! How a connection is established, and learns that it ends: the connection manager's events, and the timers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fabric_core::{DisconnectReason, Error, Event, Failure, Result};
use fabric_util::sync::MutexGuard;
use fabric_util::{log_line, route};

use crate::conn::{Conn, End, Stage, State};
use crate::ffi::{self, ibv_qp_attr_mask as mask, ibv_qp_state, rdma_cm_event_type as cm};
use crate::handle::{CmEvent, CmId, ConnParam, State as QpState};
use crate::header::{self, Greeting, No};
use crate::listener::{Offer, refuse};
use crate::manager::{After, Member, Timer};
use crate::{NAME, device};

/// Reads and atomics that one side holds for the other.
const READS: u32 = 16;
/// When to ask a peer again that still thinks of an earlier connection.
const STALE: Duration = Duration::from_millis(50);

impl Conn {
    /// The reads and atomics that this side holds, and the most that it keeps in flight.
    fn resources(&self) -> (u8, u8) {
        let attributes = &self.shared.attributes;
        let limit = |device: u32| device.min(READS) as u8;
        (limit(attributes.max_qp_rd_atom), limit(attributes.max_qp_init_rd_atom))
    }

    fn probe_number(&self) -> u32 {
        self.probe.as_ref().map_or(0, |probe| probe.number())
    }

    /// Starts to connect.
    pub(crate) fn connect(self: &Arc<Self>, to: SocketAddr, data: &[u8]) -> Result<()> {
        self.leads_out(to)?;
        let from = route::source_addr(&self.shared.info, to, self.attr.source)?;
        let mut state = self.lock();
        if state.stage != Stage::New {
            // It ended in between.
            return Err(Error::NotConnected);
        }
        state.greeting = header::request(self.probe_number(), data);
        state.peer = Some(to);
        state.stage = Stage::Connecting;
        let started = self.resolve(&mut state, SocketAddr::new(from, 0), to);
        started.map_err(|cause| {
            (state.stage, state.peer) = (Stage::New, None);
            unreachable(cause)
        })?;
        self.shared.deadline(self.attr.connect_timeout, self.name, Timer::Connect);
        Ok(())
    }

    /// That an address does not lead back into this host past the device. RXE finds no route for a packet to `::1`, whose
    /// sending then fails, and with it the queue pair of the kernel's own by which all its connections are made: no program
    /// on the host could connect for minutes. Other such packets get lost on their way.
    fn leads_out(&self, to: SocketAddr) -> Result<()> {
        let (info, ip) = (&self.shared.info, to.ip().to_canonical());
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

    fn resolve(
        self: &Arc<Self>,
        state: &mut State,
        from: SocketAddr,
        to: SocketAddr,
    ) -> io::Result<()> {
        let name = self.shared.fresh_name();
        let id = CmId::new(&self.shared.channel, name)?;
        if let Some(class) = self.attr.traffic_class {
            id.set_tos(class)?;
        }
        self.shared.add_id(name, Member::Conn(self.clone()));
        id.resolve_addr(from, to, self.attr.connect_timeout)
            .inspect_err(|_| self.shared.forget_id(name))?;
        if let Some((old, id)) = state.id.replace((name, id)) {
            self.shared.part(old, id, false);
        }
        Ok(())
    }

    /// Answers a request with this connection. A peer that is gone ends it.
    pub(crate) fn accept(self: &Arc<Self>, offer: Option<Offer>, data: &[u8]) {
        let mut state = self.lock();
        if state.stage != Stage::New {
            // It ended in between, and said so; the request goes with its identifier.
            return;
        }
        state.stage = Stage::Accepting;
        let Some(Offer { name, id, greeting, peer, local, resources }) = offer else {
            return self.end(&mut state, End::Gone(DisconnectReason::PeerLost));
        };
        (state.peer, state.local) = (Some(peer), local);
        self.shared.add_id(name, Member::Conn(self.clone()));
        let (hold, flight) = self.resources();
        let (responder_resources, initiator_depth) =
            (hold.min(resources.0), flight.min(resources.1));
        let bytes = header::accept(self.probe_number(), data);
        let param = ConnParam {
            data: &bytes,
            qp_num: self.qp.number(),
            responder_resources,
            initiator_depth,
        };
        let linked = self
            .link(&mut state, &id, greeting.probe, (responder_resources, initiator_depth))
            .and_then(|()| id.accept(&param))
            // The peer, if it is still there, is not to wait for its own time-out.
            .inspect_err(|_| refuse(&id));
        state.id = Some((name, id));
        if let Err(cause) = linked {
            // Whether the peer has gone or this side cannot, only the cause shows; the event is the same.
            if let Some(unsaid) = self.shared.stats.peer_lines.admit() {
                log_line!(Warn, "{}: accepting {peer} failed: {cause}{unsaid}", self.id);
            }
            return self.end(&mut state, End::Gone(DisconnectReason::PeerLost));
        }
        self.shared.deadline(self.attr.connect_timeout, self.name, Timer::Connect);
    }

    /// Takes the queue pair to where it can send.
    fn link(
        &self,
        state: &mut State,
        id: &CmId,
        peer_probe: u32,
        (responder, initiator): (u8, u8),
    ) -> io::Result<()> {
        let probe = self.probe.as_ref().filter(|_| peer_probe != 0);
        let (init, _) = id.path(ibv_qp_state::IBV_QPS_INIT)?;
        self.qp.init(init.pkey_index)?;
        let (mut attr, bits) = id.path(ibv_qp_state::IBV_QPS_RTR)?;
        self.set_path(&mut attr);
        attr.max_dest_rd_atomic = responder.max(1);
        attr.min_rnr_timer = self.rnr_timer();
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
        (attr.timeout, attr.retry_cnt) = self.patience(probe.is_some());
        let more = mask::IBV_QP_MAX_QP_RD_ATOMIC
            | mask::IBV_QP_RNR_RETRY
            | mask::IBV_QP_TIMEOUT
            | mask::IBV_QP_RETRY_CNT;
        self.qp.modify(&mut attr, bits | more.0 as i32)?;
        if let Some(probe) = probe {
            (attr.timeout, attr.retry_cnt) = self.probe_patience();
            attr.sq_psn = 0;
            probe.modify(&mut attr, bits | more.0 as i32)?;
        }
        state.probed = self.probe.is_none() || probe.is_some();
        Ok(())
    }

    /// Takes an event of the connection manager; on the domain's thread.
    pub(crate) fn cm_event(self: &Arc<Self>, event: CmEvent) {
        let mut state = self.lock();
        let is_current = state.id.as_ref().is_some_and(|(name, _)| *name == event.name);
        if !is_current {
            return;
        }
        match (state.stage, event.kind) {
            (Stage::Connecting, cm::RDMA_CM_EVENT_ADDR_RESOLVED) => self.address_found(&mut state),
            (Stage::Connecting, cm::RDMA_CM_EVENT_ROUTE_RESOLVED) => self.route_found(&mut state),
            (Stage::Connecting, cm::RDMA_CM_EVENT_CONNECT_RESPONSE) => {
                self.answered(&mut state, &event);
            }
            (Stage::Connecting, cm::RDMA_CM_EVENT_REJECTED) => self.rejected(&mut state, &event),
            (
                Stage::Connecting,
                cm::RDMA_CM_EVENT_ADDR_ERROR
                | cm::RDMA_CM_EVENT_ROUTE_ERROR
                | cm::RDMA_CM_EVENT_UNREACHABLE
                | cm::RDMA_CM_EVENT_CONNECT_ERROR
                | cm::RDMA_CM_EVENT_DISCONNECTED,
            ) => {
                let code = event.status.checked_abs().filter(|code| *code != 0);
                let code = code.unwrap_or(libc::EHOSTUNREACH);
                let error = unreachable(io::Error::from_raw_os_error(code));
                self.end(&mut state, End::Failed(error));
            }
            (Stage::Accepting, cm::RDMA_CM_EVENT_ESTABLISHED) => {
                self.linked(&mut state, Box::default(), After::Nothing);
            }
            (
                Stage::Accepting,
                cm::RDMA_CM_EVENT_REJECTED
                | cm::RDMA_CM_EVENT_UNREACHABLE
                | cm::RDMA_CM_EVENT_CONNECT_ERROR
                | cm::RDMA_CM_EVENT_DISCONNECTED,
            ) => self.end(&mut state, End::Gone(DisconnectReason::PeerLost)),
            (Stage::Linked, cm::RDMA_CM_EVENT_DISCONNECTED) => {
                drop(state);
                self.peer_left();
            }
            _ => {}
        }
    }

    fn address_found(&self, state: &mut State) {
        let Some((_, id)) = &state.id else { return };
        let (wanted, port) = device::device_and_port(&self.shared.info.device);
        let found = id.device();
        if found.as_ref().is_none_or(|(name, number)| name != wanted || *number != port) {
            let text = match found {
                Some((name, number)) => {
                    format!("the way there is by {name}, port {number}, not by {wanted}")
                }
                None => format!("the way there is not by {wanted}"),
            };
            let error = Error::Unreachable(Failure::new("connect", text).of(NAME));
            return self.end(state, End::Failed(error));
        }
        state.local = id.local_addr();
        if let Err(cause) = id.resolve_route(self.attr.connect_timeout) {
            self.end(state, End::Failed(unreachable(cause)));
        }
    }

    fn route_found(&self, state: &mut State) {
        let Some((_, id)) = &state.id else { return };
        let (responder_resources, initiator_depth) = self.resources();
        let param = ConnParam {
            data: &state.greeting,
            qp_num: self.qp.number(),
            responder_resources,
            initiator_depth,
        };
        if let Err(cause) = id.connect(&param) {
            self.end(state, End::Failed(unreachable(cause)));
        }
    }

    fn answered(&self, state: &mut State, event: &CmEvent) {
        let Some((name, id)) = state.id.take() else { return };
        let (hold, flight) = self.resources();
        let resources = (hold.min(event.responder_resources), flight.min(event.initiator_depth));
        let linked = match header::parse_accept(&event.data) {
            Ok(Greeting { probe, data }) => self
                .link(state, &id, probe, resources)
                .map(|()| data)
                .map_err(|cause| Error::system("connect", NAME, cause)),
            Err(why) => {
                self.shared.stats.protocol_errors.add(1);
                let text = format!("the peer's answer makes no sense: {why}");
                Err(Error::Internal(Failure::new("connect", text).of(NAME)))
            }
        };
        state.id = Some((name, id));
        match linked {
            // The owner hears of it first: the peer may send as soon as it knows.
            Ok(data) => self.linked(state, data, After::Establish(self.name)),
            Err(error) => self.end(state, End::Failed(error)),
        }
    }

    /// The owner knows of the connection: notifies the peer.
    pub(crate) fn establish(&self) {
        let mut state = self.lock();
        let Some((_, id)) = state.id.as_ref().filter(|_| state.stage == Stage::Linked) else {
            return;
        };
        if let Err(cause) = id.establish() {
            log_line!(Debug, "{}: the peer waits no more: {cause}", self.id);
            self.end(&mut state, End::Gone(DisconnectReason::PeerLost));
        }
    }

    fn linked(&self, state: &mut State, data: Box<[u8]>, then: After) {
        state.stage = Stage::Linked;
        self.shared.report(Event::Connected { endpoint: self.id, data }, then);
        if let Some(interval) = self.attr.liveness {
            self.shared.deadline(interval, self.name, Timer::Liveness);
        }
    }

    fn rejected(&self, state: &mut State, event: &CmEvent) {
        let error = match event.status {
            ffi::REJ_CONSUMER_DEFINED => match header::parse_reject(&event.data) {
                No::Rejected(data) => Error::Rejected(Box::new(data)),
                No::Refused => Error::Refused(None),
            },
            ffi::REJ_STALE_CONN => {
                return self.shared.deadline(STALE, self.name, Timer::Retry);
            }
            ffi::REJ_INVALID_SERVICE_ID => Error::Refused(None),
            reason => {
                log_line!(Debug, "{}: rejected with reason {reason}", self.id);
                Error::Refused(None)
            }
        };
        self.end(state, End::Failed(error));
    }

    fn peer_left(&self) {
        // A completion that was not polled yet may have the cause, and ends the connection then.
        self.send_queue.take_all();
        self.recv_queue.take_all();
        let mut state = self.lock();
        // A queue pair that is in error before it was flushed refused something.
        let refused = matches!(self.qp.state(), Ok(QpState::Error));
        let reason =
            if refused { DisconnectReason::OperationFailed } else { DisconnectReason::Remote };
        self.end(&mut state, End::Gone(reason));
    }

    /// The first message came before the peer's last word of the connection, which may be lost.
    pub(crate) fn established_early(&self) {
        let state = self.lock();
        if state.stage == Stage::Accepting
            && let Some((_, id)) = &state.id
            && let Err(error) = id.notify_established()
        {
            log_line!(Debug, "{}: {error}", self.id);
        }
    }

    /// A timer of this connection is due; on the domain's thread.
    pub(crate) fn expired(self: &Arc<Self>, timer: Timer) {
        let mut state = self.lock();
        match (timer, state.stage) {
            (Timer::Connect, Stage::Connecting) => {
                self.end(&mut state, End::Failed(Error::TimedOut(None)));
            }
            (Timer::Connect, Stage::Accepting) => {
                self.end(&mut state, End::Gone(DisconnectReason::PeerLost));
            }
            (Timer::Retry, Stage::Connecting) => {
                let (Some(from), Some(to)) = (state.local, state.peer) else { return };
                let from = SocketAddr::new(from.ip(), 0);
                if let Err(cause) = self.resolve(&mut state, from, to) {
                    self.end(&mut state, End::Failed(unreachable(cause)));
                }
            }
            (Timer::Liveness, Stage::Linked) => self.probe_now(state),
            (Timer::Mark, Stage::Ended) => self.mark_the_end(&mut state),
            _ => {}
        }
    }

    fn probe_now(&self, mut state: MutexGuard<'_, State>) {
        let unanswered = state.probing;
        if state.probed && !unanswered && self.shared.may_probe() {
            match self.post_nothing() {
                Ok(()) => state.probing = true,
                Err(error) => {
                    self.shared.probe_over();
                    log_line!(Warn, "{}: cannot ask whether the peer lives: {error}", self.id);
                }
            }
        }
        drop(state);
        if unanswered && self.probe.is_none() {
            // Its end is among the application's completions, which no thread may be polling.
            self.send_queue.take_all();
        }
        if self.shared.quirks.silent_refusals {
            self.look();
        }
        if let Some(interval) = self.attr.liveness {
            self.shared.deadline(interval, self.name, Timer::Liveness);
        }
    }
}

/// A connection attempt that found no way.
fn unreachable(cause: io::Error) -> Error {
    match Error::system("connect", NAME, cause) {
        Error::Internal(failure) => Error::Unreachable(failure),
        Error::TimedOut(_) => {
            Error::Unreachable(Failure::new("connect", "no host answers at the address").of(NAME))
        }
        other => other,
    }
}
