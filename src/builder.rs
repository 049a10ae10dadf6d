//! Making endpoints.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use fabric_core::{EndpointAttr, Error, Result};

use crate::cq::CompletionQueue;
use crate::domain::DomainInner;
use crate::endpoint::{Endpoint, Receives};
use crate::eq::EventQueue;
use crate::shared_receives::SharedReceiveQueue;

/// Makes an [`Endpoint`]. Every setting has a default that suits most.
///
/// ```no_run
/// # use fabric::Domain;
/// # fn f(domain: &Domain) -> fabric::Result<()> {
/// let queue = domain.completion_queue(1024)?;
/// let endpoint = domain.endpoint().send_depth(512).recv_depth(512).build(&queue)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is made until `build`"]
pub struct EndpointBuilder<'a> {
    domain: &'a Arc<DomainInner>,
    attr: EndpointAttr,
    receives: Option<&'a SharedReceiveQueue>,
    events: Option<&'a EventQueue>,
}

impl<'a> EndpointBuilder<'a> {
    pub(crate) fn new(domain: &'a Arc<DomainInner>) -> Self {
        EndpointBuilder { domain, attr: domain.defaults.clone(), receives: None, events: None }
    }

    /// All settings at once, also in place of what the environment sets (`FABRIC_CONNECT_TIMEOUT_MS`, `FABRIC_LIVENESS_S`,
    /// `FABRIC_STALL_S`): to keep that, begin with a clone of [`as_attr`](EndpointBuilder::as_attr).
    pub fn attr(mut self, attr: EndpointAttr) -> Self {
        self.attr = attr;
        self
    }

    /// Operations the send queue holds, 1 to [`Limits::send_depth`](fabric_core::Limits::send_depth); default 128.
    pub fn send_depth(mut self, operations: usize) -> Self {
        self.attr.send_depth = operations;
        self
    }

    /// Receives the receive queue holds, 1 to [`Limits::recv_depth`](fabric_core::Limits::recv_depth); default 128.
    pub fn recv_depth(mut self, receives: usize) -> Self {
        self.attr.recv_depth = receives;
        self
    }

    /// Takes receives from a shared queue instead of one of its own; their completions go to the completion queue of that.
    /// The depth and segments of a receive queue mean nothing then.
    pub fn shared_receives(mut self, queue: &'a SharedReceiveQueue) -> Self {
        self.receives = Some(queue);
        self
    }

    /// Has its events go to a queue of the application's ([`Domain::event_queue`](crate::Domain::event_queue)) instead of the
    /// domain's own.
    pub fn events(mut self, queue: &'a EventQueue) -> Self {
        self.events = Some(queue);
        self
    }

    /// Most segments of one send-queue operation; default 4.
    pub fn send_segments(mut self, segments: usize) -> Self {
        self.attr.send_segments = segments;
        self
    }

    /// Most segments of one receive; default 4.
    pub fn recv_segments(mut self, segments: usize) -> Self {
        self.attr.recv_segments = segments;
        self
    }

    /// Most bytes of one inject; default 128, which every provider takes.
    pub fn inject(mut self, bytes: usize) -> Self {
        self.attr.inject = bytes;
        self
    }

    /// The settings so far.
    pub fn as_attr(&self) -> &EndpointAttr {
        &self.attr
    }

    /// How long connecting or accepting may take: more than 0, at most 1 h; default 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.attr.connect_timeout = timeout;
        self
    }

    /// A dead peer host, or a cut link, ends the endpoint within three of these; default 10 s, 1 s to 1 h,
    /// `None` turns it off. A live peer that is slow or stopped never does.
    pub fn liveness(mut self, interval: Option<Duration>) -> Self {
        self.attr.liveness = interval;
        self
    }

    /// While something is under way at this end, and nothing of it got on for this long, 1 s to 1 h, the connection ends with
    /// `Disconnected(Stalled)`: the peer lives, and takes nothing. It has to be longer than any single operation takes;
    /// default `None`, never. See [`EndpointAttr::stall`].
    pub fn stall(mut self, limit: Option<Duration>) -> Self {
        self.attr.stall = limit;
        self
    }

    /// The local address to connect from.
    pub fn source(mut self, address: IpAddr) -> Self {
        self.attr.source = Some(address);
        self
    }

    /// The local port to connect from; 0, the default, is any that is free. [`connect`](Endpoint::connect) is `AddrInUse` while
    /// a listener has the port, and may be while another connection does, or has just ended.
    pub fn source_port(mut self, port: u16) -> Self {
        self.attr.source_port = port;
        self
    }

    /// The traffic class byte of its packets (DSCP and ECN bits).
    pub fn traffic_class(mut self, class: u8) -> Self {
        self.attr.traffic_class = Some(class);
        self
    }

    /// The entry of the port's GID table to send from. Like the three that follow, this is for RDMA devices; see
    /// [`PathAttr`](fabric_core::PathAttr).
    pub fn gid_index(mut self, index: u8) -> Self {
        self.attr.path.gid_index = Some(index);
        self
    }

    /// How long to wait for an acknowledgement before a packet is repeated.
    pub fn ack_timeout(mut self, timeout: Duration) -> Self {
        self.attr.path.ack_timeout = Some(timeout);
        self
    }

    /// Maximum number of retransmissions: 0 to 7.
    pub fn retries(mut self, retries: u8) -> Self {
        self.attr.path.retries = Some(retries);
        self
    }

    /// How long a peer waits before it repeats a message for which no receive was posted here.
    pub fn rnr_timer(mut self, timer: Duration) -> Self {
        self.attr.path.rnr_timer = Some(timer);
        self
    }

    /// The room it reserves of a completion queue that serves both sides: send depth plus receive depth, or the send depth
    /// alone if its receives are shared.
    pub fn room(&self) -> usize {
        let receives = if self.receives.is_some() { 0 } else { self.attr.recv_depth };
        self.attr.send_depth.saturating_add(receives)
    }

    /// Checks every setting against the device's limits, as [`build`](EndpointBuilder::build) does.
    ///
    /// # Errors
    /// `InvalidArgument` that names the setting and the limit; `Unsupported` for a setting that the device does not take.
    pub fn check(&self) -> Result<()> {
        self.attr.check(&self.domain.info)
    }

    /// Makes the endpoint, with one queue for both sides' completions, or for those of the send queue if its receives are
    /// shared.
    ///
    /// # Errors
    /// `InvalidArgument` if a setting is beyond the device's limits, or if the queue has not as much room
    /// left as send depth plus receive depth (both numbers are named), or is of another domain; `Unsupported` for a setting that
    /// the device does not take; `NoMemory`; `DeviceLost`; `InvalidState` in a forked child.
    pub fn build(self, queue: &CompletionQueue) -> Result<Endpoint> {
        self.make(queue, queue)
    }

    /// Makes the endpoint, with a queue for each side.
    ///
    /// # Errors
    /// As [`build`](EndpointBuilder::build); `InvalidArgument` if its receives are shared and `recv` is not the queue of those.
    pub fn build_with(self, send: &CompletionQueue, recv: &CompletionQueue) -> Result<Endpoint> {
        if self.receives.is_some_and(|receives| !Arc::ptr_eq(&receives.inner.cq, &recv.inner)) {
            return Err(Error::invalid(
                "make endpoint",
                "the completions of shared receives go to the queue given with those",
            ));
        }
        self.make(send, recv)
    }

    fn make(self, send: &CompletionQueue, recv: &CompletionQueue) -> Result<Endpoint> {
        let receives = self.receives.map_or(Receives::Own(recv), Receives::Shared);
        Endpoint::new(self.domain, self.attr, send, receives, self.events)
    }
}
