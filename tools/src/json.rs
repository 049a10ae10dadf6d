//! The survey as JSON. Fields may be added; those that are there keep their meaning.

use std::borrow::Cow;
use std::collections::BTreeMap;

use fabric::{AtomicOp, AtomicScope, AtomicType, Capabilities, Info};
use serde::Serialize;

use crate::report::addresses;
use crate::survey::{Entry, Survey};
use crate::variables;

#[derive(Serialize)]
struct Report<'a> {
    /// The version of this program and its library.
    version: &'a str,
    /// The value of `FABRIC_PROVIDER`, or `auto`.
    choice: String,
    chosen: Option<Chosen<'a>>,
    devices: Vec<Device<'a>>,
}

#[derive(Serialize)]
struct Chosen<'a> {
    provider: &'a str,
    device: &'a str,
}

#[derive(Serialize)]
struct Device<'a> {
    provider: &'a str,
    /// `none` if the provider found none; null for a provider that is not built in.
    device: Option<&'a str>,
    /// `chosen`, `usable`, `excluded` or `unusable`.
    status: &'a str,
    /// Why it is not usable and what helps.
    reason: Option<&'a str>,
    /// Null where it is not known.
    offers: Option<Offer<'a>>,
}

#[derive(Serialize)]
struct Offer<'a> {
    version: &'a str,
    description: &'a str,
    addresses: Vec<String>,
    capabilities: BTreeMap<String, bool>,
    limits: BTreeMap<&'a str, u64>,
    /// `fabric`: atomic with other fabric atomics; `cpu`: with the target's CPU as well.
    atomic_scope: &'a str,
    /// The most that connections can be protected: `open`, `authenticated`, `encrypted`.
    security: String,
    /// The types of each operation.
    atomics: BTreeMap<&'a str, Vec<&'a str>>,
    /// For people: names and values may change.
    details: Vec<Detail<'a>>,
}

#[derive(Serialize)]
struct Detail<'a> {
    name: &'a str,
    value: &'a str,
}

#[derive(Serialize)]
struct Variable {
    name: Cow<'static, str>,
    meaning: &'static str,
    default: &'static str,
    value: Option<String>,
}

pub(crate) fn survey(survey: &Survey) -> String {
    text(&Report {
        version: env!("CARGO_PKG_VERSION"),
        choice: survey.choice.to_string(),
        chosen: survey.chosen.as_ref().map(|(provider, device)| Chosen { provider, device }),
        devices: survey.entries.iter().map(device).collect(),
    })
}

fn device(entry: &Entry) -> Device<'_> {
    Device {
        provider: entry.provider,
        device: (!entry.device.is_empty()).then_some(&entry.device),
        status: entry.status.name(),
        reason: entry.reason.as_deref(),
        offers: entry.info.as_ref().map(offer),
    }
}

fn offer(info: &Info) -> Offer<'_> {
    let types = |op| {
        let types = AtomicType::ALL.into_iter().filter(move |ty| info.supports_atomic(op, *ty));
        (op.name(), types.map(AtomicType::name).collect())
    };
    Offer {
        version: &info.version,
        description: &info.description,
        addresses: addresses(info),
        capabilities: capabilities(info.capabilities),
        limits: info.limits.named().into(),
        atomic_scope: if info.atomic_scope == AtomicScope::Cpu { "cpu" } else { "fabric" },
        security: info.security.to_string(),
        atomics: AtomicOp::ALL.into_iter().map(types).collect(),
        details: info.details.iter().map(|(name, value)| Detail { name, value }).collect(),
    }
}

pub(crate) fn variables() -> String {
    let variable = |variable: fabric::Variable| Variable {
        value: variables::value(&variable.name),
        name: variable.name,
        meaning: variable.meaning,
        default: variable.default,
    };
    text(&variables::all().map(variable).collect::<Vec<_>>())
}

/// Every capability, and whether it is one of these.
pub(crate) fn capabilities(these: Capabilities) -> BTreeMap<String, bool> {
    Capabilities::all().iter().map(|flag| (flag.names(), these.contains(flag))).collect()
}

/// The form of all of these.
pub(crate) fn text(value: &impl Serialize) -> String {
    // Maps with text keys and plain values always serialize.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}
