//! Settings of endpoints and listeners, and their checks.

use std::net::IpAddr;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::info::{Info, MAX_ACCEPT_DATA, MAX_CONNECT_DATA, MAX_REJECT_DATA};

/// How an endpoint is made. `Default` is a good start for most.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointAttr {
    /// Operations the send queue holds; completions not yet taken count.
    pub send_depth: usize,
    /// Receives the receive queue holds; completions not yet taken count.
    pub recv_depth: usize,
    /// Most segments of one send-queue operation.
    pub send_segments: usize,
    /// Most segments of one receive.
    pub recv_segments: usize,
    /// Most bytes of one inject.
    pub inject: usize,
    /// How long `connect` and `accept` may take until the connection stands.
    pub connect_timeout: Duration,
    /// A dead peer host ends the endpoint within three of these; at least 1 s, `None` turns it off.
    pub liveness: Option<Duration>,
    /// The local address to connect from.
    pub source: Option<IpAddr>,
    /// The traffic class (the IPv4 TOS or IPv6 traffic class byte: DSCP and ECN bits).
    pub traffic_class: Option<u8>,
}

impl Default for EndpointAttr {
    fn default() -> Self {
        EndpointAttr {
            send_depth: 128,
            recv_depth: 128,
            send_segments: 4,
            recv_segments: 4,
            inject: 128,
            connect_timeout: Duration::from_secs(5),
            liveness: Some(Duration::from_secs(10)),
            source: None,
            traffic_class: None,
        }
    }
}

impl EndpointAttr {
    /// Checks every setting against the device's limits.
    ///
    /// # Errors
    /// `InvalidArgument` that names the setting and the limit.
    pub fn check(&self, info: &Info) -> Result<()> {
        let limits = &info.limits;
        within("send_depth", self.send_depth, 1, limits.send_depth)?;
        within("recv_depth", self.recv_depth, 1, limits.recv_depth)?;
        within("send_segments", self.send_segments, 1, limits.send_segments)?;
        within("recv_segments", self.recv_segments, 1, limits.recv_segments)?;
        within("inject", self.inject, 0, limits.inject)?;
        if self.connect_timeout.is_zero() || self.connect_timeout > Duration::from_secs(3600) {
            let given = self.connect_timeout;
            return Err(Error::invalid(
                OP,
                format!("connect_timeout {given:?} is not in 1ns..=1h"),
            ));
        }
        if let Some(interval) = self.liveness
            && (interval < Duration::from_secs(1) || interval > Duration::from_secs(3600))
        {
            return Err(Error::invalid(OP, format!("liveness {interval:?} is not in 1s..=1h")));
        }
        if let Some(source) = self.source.filter(|ip| !info.addresses.contains(ip)) {
            let has = &info.addresses;
            return Err(Error::invalid(
                OP,
                format!("source {source} is no address of {}: it has {has:?}", info.device),
            ));
        }
        Ok(())
    }
}

const OP: &str = "make endpoint";

fn within(what: &str, value: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(OP, format!("{what} {value} is not in {least}..={most}")))
}

/// How a listener is made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenerAttr {
    /// Requests that may wait for the application; one more is refused.
    pub backlog: usize,
}

impl Default for ListenerAttr {
    fn default() -> Self {
        ListenerAttr { backlog: 128 }
    }
}

impl ListenerAttr {
    /// Checks the backlog against the device's limit.
    ///
    /// # Errors
    /// `InvalidArgument` that names the limit.
    pub fn check(&self, info: &Info) -> Result<()> {
        let (backlog, most) = (self.backlog, info.limits.backlog);
        if (1..=most).contains(&backlog) {
            return Ok(());
        }
        Err(Error::invalid("listen", format!("backlog {backlog} is not in 1..={most}")))
    }
}

/// Checks the length of private data; `operation` is `connect`, `accept` or `reject`.
///
/// # Errors
/// `InvalidArgument` that names both lengths.
pub fn check_private_data(operation: &'static str, data: &[u8]) -> Result<()> {
    let most = match operation {
        "connect" => MAX_CONNECT_DATA,
        "accept" => MAX_ACCEPT_DATA,
        _ => MAX_REJECT_DATA,
    };
    if data.len() <= most {
        return Ok(());
    }
    let len = data.len();
    Err(Error::invalid(
        operation,
        format!("{len} bytes of private data; it carries at most {most}"),
    ))
}
