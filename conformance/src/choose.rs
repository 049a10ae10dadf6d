//! Choosing a device among those that discovery finds.

use std::net::IpAddr;

use fabric::{Capabilities, Discovered, Hints, Info};

/// Hints that every device satisfies: what is missing is for each case to see.
pub(crate) fn anything() -> Hints {
    Hints { capabilities: Capabilities::empty(), ..Hints::default() }
}

/// The device named, or the best one, those with the address `ip` before the others.
pub(crate) fn device(
    mut devices: Vec<Discovered>,
    wanted: Option<&str>,
    ip: Option<IpAddr>,
) -> Result<Info, String> {
    if let Some(wanted) = wanted {
        let names: Vec<_> = devices.iter().map(|found| found.device.clone()).collect();
        devices.retain(|found| found.device == wanted || found.device.is_empty());
        if devices.is_empty() {
            return Err(format!("it has no device {wanted:?} (it has: {})", names.join(", ")));
        }
    }
    if let Some(ip) = ip {
        let has_it =
            |found: &Discovered| matches!(&found.usable, Ok(i) if i.addresses.contains(&ip));
        devices.sort_by_key(|found| !has_it(found));
    }
    best(devices)
}

/// The first usable one of a provider's devices, or why there is none.
pub(crate) fn best(devices: Vec<Discovered>) -> Result<Info, String> {
    if devices.is_empty() {
        return Err("it has no devices".to_owned());
    }
    // By reason, since all devices of a provider often have the same one.
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for Discovered { device, usable, .. } in devices {
        let reason = match usable {
            Ok(info) => return Ok(info),
            Err(reason) => reason,
        };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, devices)) => devices.push(device),
            None => reasons.push((reason, vec![device])),
        }
    }
    let text = |(reason, devices): &(String, Vec<String>)| match devices.join(", ").as_str() {
        "" => reason.clone(),
        devices => format!("{devices}: {reason}"),
    };
    Err(reasons.iter().map(text).collect::<Vec<_>>().join("; "))
}
