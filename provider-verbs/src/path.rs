//! What an endpoint sets of its path ([`PathAttr`](fabric_core::attr::PathAttr)): checked when it is made, and put into
//! the queue pair's attributes when it connects.

use std::time::Duration;

use fabric_core::{EndpointAttr, Error, Failure, Result};

use crate::device::device_and_port;
use crate::error::NAME;
use crate::ffi::ibv_qp_attr;
use crate::open_device::OpenDevice;
use crate::quirks::Quirks;
use crate::sysfs::{Gid, Sysfs};

/// Of the receiver-not-ready timer: 0.96 ms (InfiniBand specification, table "RNR NAK timer"). librdmacm leaves 655 ms.
const RNR_TIMER: u8 = 13;
/// Tries of a probe.
const PROBE_TRIES: u32 = 6;

/// That the port has what the settings name.
pub(crate) fn check(device: &OpenDevice, attr: &EndpointAttr) -> Result<()> {
    const OP: &str = "make endpoint";
    let Some(index) = attr.path.gid_index else { return Ok(()) };
    let fail = |cause| Error::system(OP, NAME, cause);
    let (name, number) = device_and_port(&device.info.device);
    let port = device.pd.context.port(number).map_err(fail)?;
    if !port.ethernet {
        return Err(Error::unsupported(
            OP,
            NAME,
            "gid_index: on InfiniBand the subnet manager decides on the path",
        ));
    }
    let gids = Sysfs::at("/sys").gids(name, number, &port.gid_slots);
    check_gid(index.into(), &gids).map_err(|text| {
        Error::InvalidArgument(Failure::new(OP, format!("{}: {text}", device.info.device)).of(NAME))
    })
}

fn check_gid(index: u32, gids: &[Gid]) -> Result<(), String> {
    // Where sysfs has nothing, the device decides, when the endpoint connects.
    if gids.is_empty() || gids.iter().any(|gid| gid.index == index && gid.is_roce_v2()) {
        return Ok(());
    }
    let routable = gids.iter().filter(|gid| gid.is_roce_v2());
    let there: Vec<_> = routable.map(|gid| format!("{} is {}", gid.index, gid.id)).collect();
    Err(format!("gid_index {index} is no GID of RoCE v2 ({})", there.join(", ")))
}

/// Puts the settings into the attributes of a queue pair that goes to RTR.
pub(crate) fn set_path(path: &mut ibv_qp_attr, attr: &EndpointAttr) {
    if let Some(class) = attr.traffic_class {
        path.ah_attr.grh.traffic_class = class;
    }
    if let Some(index) = attr.path.gid_index {
        path.ah_attr.grh.sgid_index = index;
    }
}

/// The acknowledge time-out and the retries of a connection itself. `is_probed`: probes of their own find a lost peer.
pub(crate) fn retry_limits(attr: &EndpointAttr, quirks: Quirks, is_probed: bool) -> (u8, u8) {
    let (timeout, retries) = match (quirks.separate_probes, is_probed) {
        // Without limit: the probes notice a lost peer. 134 ms, so that a lost packet does not hold up for long.
        (true, true) => (15, 7),
        (true, false) => (exponent(attr, 7), 6),
        (false, _) => (exponent(attr, 8), 7),
    };
    let path = &attr.path;
    (path.ack_timeout.map_or(timeout, ack_code), path.retries.unwrap_or(retries))
}

/// The same of a probe.
pub(crate) fn probe_retry_limits(attr: &EndpointAttr) -> (u8, u8) {
    (exponent(attr, PROBE_TRIES), PROBE_TRIES as u8 - 1)
}

pub(crate) fn rnr_timer(attr: &EndpointAttr) -> u8 {
    attr.path.rnr_timer.map_or(RNR_TIMER, rnr_code)
}

/// The time-out, in the device's units, by which so many tries take no more than one liveness interval: with the time
/// until the next probe, two of three.
fn exponent(attr: &EndpointAttr, tries: u32) -> u8 {
    let interval = attr.liveness.unwrap_or(Duration::from_secs(30));
    // 4.096 us times 2 to the power of this (InfiniBand specification, "Local ACK Timeout").
    let units = ((interval / tries).as_nanos() / 4096).max(1);
    (units.ilog2() as u8).clamp(12, 21)
}

/// The code of an acknowledge time-out that is no shorter: 4.096 us times 2 to the power of it.
fn ack_code(timeout: Duration) -> u8 {
    let units = timeout.as_nanos().div_ceil(4096).max(1);
    // Zero would mean to wait for ever.
    (units.next_power_of_two().ilog2() as u8).clamp(1, 31)
}

/// The code of a receiver-not-ready timer that is no shorter (InfiniBand specification, table "RNR NAK timer").
/// Zero, which comes last in length, is left out.
fn rnr_code(timer: Duration) -> u8 {
    const STEPS_10_US: [u32; 31] = [
        1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
        2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    let wanted = timer.as_nanos().div_ceil(10_000);
    let step = STEPS_10_US.iter().position(|step| u128::from(*step) >= wanted);
    step.map_or(31, |step| step as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_index_is_one_of_the_table() {
        let gid = |index, kind: &str| Gid {
            index,
            id: "::ffff:10.0.0.1".parse().unwrap(),
            kind: kind.to_owned(),
            net: None,
        };
        let gids = [gid(2, "IB/RoCE v1"), gid(3, "RoCE v2")];
        assert!(check_gid(3, &gids).is_ok() && check_gid(9, &[]).is_ok());
        let text = "is no GID of RoCE v2 (3 is ::ffff:10.0.0.1)";
        for index in [2, 250] {
            assert_eq!(check_gid(index, &gids).unwrap_err(), format!("gid_index {index} {text}"));
        }
    }

    #[test]
    fn codes_are_never_shorter_than_asked() {
        let us = Duration::from_micros;
        assert_eq!(ack_code(Duration::from_nanos(1)), 1);
        assert_eq!((ack_code(us(67_000)), ack_code(us(67_108))), (14, 14));
        assert_eq!(ack_code(us(67_109)), 15);
        assert_eq!(ack_code(Duration::from_secs(8795)), 31);
        assert_eq!((rnr_code(us(1)), rnr_code(us(10)), rnr_code(us(11))), (1, 1, 2));
        assert_eq!((rnr_code(us(960)), rnr_code(us(961))), (RNR_TIMER, RNR_TIMER + 1));
        assert_eq!(rnr_code(fabric_core::attr::MAX_RNR_TIMER), 31);
    }
}
