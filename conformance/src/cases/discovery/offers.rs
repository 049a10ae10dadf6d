//! What a device says that it offers, and whether it is so.

use std::collections::HashSet;

use fabric::provider::AtomicCall;
use fabric::{
    AtomicScalar, Capabilities, Choice, EndpointAttr, Hints, Info, ListenerAttr, MIN_INJECT,
};

use crate::arithmetic::left_by;
use crate::check::check_says;
use crate::choose::anything;
use crate::element::{element, operation};
use crate::prelude::*;
use crate::sys;

pub(super) fn enum_all(rig: &Rig) -> Outcome {
    let catalog = rig.target().catalog();
    let all = catalog.discover_with(&Choice::Auto, &anything())?;
    for name in catalog.names() {
        check!(all.iter().any(|found| found.provider == name), "the provider {name} to be listed");
    }
    let mut seen = HashSet::new();
    for found in &all {
        let name = format!("{}:{}", found.provider, found.device);
        check!(seen.insert(name.clone()), "{name} to be listed once");
        let info = match &found.usable {
            Ok(info) => info,
            Err(reason) => {
                check!(!reason.trim().is_empty(), "a reason why {name} is unusable");
                continue;
            }
        };
        let named = (info.provider, &info.device);
        check_eq!(named, (found.provider, &found.device), "whose info it is");
        check!(!info.capabilities.is_empty(), "capabilities of {name}");
        check!(!info.version.is_empty(), "a version of {name}");
        check!(!info.addresses.is_empty(), "an address of {name}");
        let shares = info.capabilities.contains(Capabilities::SHARED_RECEIVES);
        for (limit, max) in info.limits.named() {
            let is_there = match limit {
                "shared_depth" => shares,
                "datagram" => info.capabilities.contains(Capabilities::DATAGRAMS),
                _ => true,
            };
            check_eq!(max > 0, is_there, "a limit {limit} of {name} above zero");
        }
        check!(info.limits.inject >= MIN_INJECT, "{name} to inject at least {MIN_INJECT} bytes");
    }
    let usable = all.iter().filter_map(|found| found.usable.as_ref().ok());
    let entries = usable.filter(|info| *info == rig.target().info()).count();
    check_eq!(entries, 1, "entries of the device under test");
    check_eq!(rig.domain_a().info(), rig.target().info(), "what a domain says of itself");
    Ok(())
}

type Ask = fn(&mut Hints, u64);
type Set = fn(&mut EndpointAttr, usize);

/// How an application asks for each limit.
const ASKED: [(&str, Ask); 14] = [
    ("message", |hints, value| hints.message = value),
    ("inject", |hints, value| hints.inject = value),
    ("datagram", |hints, value| hints.datagram = value),
    ("send_segments", |hints, value| hints.send_segments = value),
    ("recv_segments", |hints, value| hints.recv_segments = value),
    ("send_depth", |hints, value| hints.send_depth = value),
    ("recv_depth", |hints, value| hints.recv_depth = value),
    ("shared_depth", |hints, value| hints.shared_depth = value),
    ("cq_capacity", |hints, value| hints.cq_capacity = value),
    ("completion_queues", |hints, value| hints.completion_queues = value),
    ("endpoints", |hints, value| hints.endpoints = value),
    ("regions", |hints, value| hints.regions = value),
    ("region_len", |hints, value| hints.region_len = value),
    ("backlog", |hints, value| hints.backlog = value),
];

/// Those that are settings of an endpoint.
const SETTINGS: [(&str, Set); 5] = [
    ("inject", |attr, value| attr.inject = value),
    ("send_segments", |attr, value| attr.send_segments = value),
    ("recv_segments", |attr, value| attr.recv_segments = value),
    ("send_depth", |attr, value| attr.send_depth = value),
    ("recv_depth", |attr, value| attr.recv_depth = value),
];

/// The value of a limit.
fn limit(info: &Info, name: &str) -> u64 {
    info.limits.named().iter().find(|limit| limit.0 == name).map_or(0, |limit| limit.1)
}

/// Makes an endpoint with a setting of this value and the rest default, each side with a queue of its own size.
fn make_endpoint(rig: &Rig, set: Set, value: usize) -> Result<(), Error> {
    let mut attr = EndpointAttr::default();
    set(&mut attr, value);
    let max = rig.target().info().limits.cq_capacity;
    let sends = rig.domain_a().completion_queue(attr.send_depth.min(max))?;
    let recvs = rig.domain_a().completion_queue(attr.recv_depth.min(max))?;
    rig.domain_a().endpoint().attr(attr).build_with(&sends, &recvs).map(drop)
}

fn listen(rig: &Rig, backlog: usize) -> Result<(), Error> {
    let mut attr = ListenerAttr::default();
    attr.backlog = backlog;
    rig.domain_a().listen_with(rig.addr(rig.domain_a()), &attr).map(drop)
}

pub(super) fn limits_exact(rig: &Rig) -> Outcome {
    let info = rig.target().info();
    for (name, ask) in ASKED {
        let mut hints = anything();
        ask(&mut hints, limit(info, name));
        rig.target().catalog().open_with(&rig.target().choice(), &hints)?;
    }
    // How many endpoints and regions, and how large a region, depends on this machine's memory too.
    for (name, set) in SETTINGS {
        make_endpoint(rig, set, limit(info, name) as usize)?;
    }
    rig.domain_a().completion_queue(info.limits.cq_capacity)?;
    listen(rig, info.limits.backlog)?;
    Ok(())
}

pub(super) fn limits_plus1(rig: &Rig) -> Outcome {
    let info = rig.target().info();
    let names_both = |error: Error, name: &str, max: u64| {
        check_says(&error.to_string(), &[name, &max.to_string()], name)
    };
    for (name, ask) in ASKED {
        let max = limit(info, name);
        // A device without a limit declares the largest number there is.
        let Some(more) = max.checked_add(1) else { continue };
        let mut hints = anything();
        ask(&mut hints, more);
        let opened = rig.target().catalog().open_with(&rig.target().choice(), &hints);
        let error = check_err!(opened, Error::NoProvider(_), "asking for {name} {more}");
        names_both(error, name, max)?;
    }
    for (name, set) in SETTINGS {
        let max = limit(info, name);
        let made = make_endpoint(rig, set, max as usize + 1);
        names_both(check_err!(made, Error::InvalidArgument(_), "{name} {}", max + 1), name, max)?;
    }
    let max = info.limits.cq_capacity;
    let made = rig.domain_a().completion_queue(max + 1);
    let error = check_err!(made, Error::InvalidArgument(_), "a queue for {}", max + 1);
    names_both(error, "capacity", max as u64)?;

    let max = info.limits.backlog;
    let made = listen(rig, max + 1);
    let error = check_err!(made, Error::InvalidArgument(_), "backlog {}", max + 1);
    names_both(error, "backlog", max as u64)?;

    // Longer than the limit, and than what an address space holds where that is less.
    let max = info.limits.region_len.min(isize::MAX as u64);
    let made = sys::register_nowhere(rig.domain_a(), 8192, max as usize + 1, Access::LOCAL_WRITE);
    check_err!(made, Error::InvalidArgument(_), "a region of {} bytes", max + 1);

    rig.end(rig.domain_a())?;
    Ok(())
}

pub(super) fn atomic_query(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let old = a.buffer(8)?;
    let cell = b.buffer(8)?;
    for ty in AtomicType::ALL {
        for op in AtomicOp::ALL {
            let offered = rig.target().info().supports_atomic(op, ty);
            let hints = Hints { atomics: vec![(op, ty)], ..anything() };
            let found = hints.unmet(rig.target().info()).is_empty();
            check_eq!(found, offered, "whether hints find {op} on {ty}");
            for fetch in [false, true] {
                let what = format!("{op} on {ty}{}", if fetch { ", fetching" } else { "" });
                // Three and two, as numbers of the type; a compare-and-swap hits.
                let (before, operand) = (number(ty, 3), number(ty, 2));
                let call = AtomicCall { op, ty, operand, compare: before };
                let size = ty.size();
                cell.put(0, &element(ty, before))?;
                old.fill(0)?;
                let result = fetch.then(|| old.slice(..size));
                let posted = a.post(&operation(&call, result, cell.at(0)).context(1));
                let after = if offered {
                    posted?;
                    a.expect_ok(1)?;
                    left_by(&call, before)
                } else {
                    check_err!(posted, Error::Unsupported(_), "{what}, which is not offered");
                    before
                };
                a.settle(&b)?;
                check_bytes!(cell.bytes(..size)?, element(ty, after), "memory after {what}");
                let fetched = if offered && fetch { before } else { 0 };
                check_bytes!(old.bytes(..size)?, element(ty, fetched), "result of {what}");
            }
        }
    }
    Ok(())
}

/// A small number, as bits of the type.
fn number(ty: AtomicType, value: u8) -> u64 {
    match ty {
        AtomicType::F32 => f32::from(value).to_bits64(),
        AtomicType::F64 => f64::from(value).to_bits64(),
        _ => value.into(),
    }
}
