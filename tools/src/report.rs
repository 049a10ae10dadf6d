//! The survey as text for people.

use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use fabric::{AtomicOp, AtomicScope, AtomicType, Capabilities, Info, Security};

use crate::survey::{Entry, Status, Survey};
use crate::table::{self, Cell};

pub(crate) const HEAD: Style = Style::new().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();
const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const WARN: Style = AnsiColor::Yellow.on_default();
const BAD: Style = AnsiColor::Red.on_default();

/// The list of devices, and what they offer.
pub(crate) fn survey(survey: &Survey, brief: bool, width: usize) -> String {
    let mut out = String::new();
    let mut rows = vec![head(["STATUS", "PROVIDER", "DEVICE", "ADDRESSES, OR WHY NOT"])];
    rows.extend(survey.entries.iter().map(device));
    table::rows(&mut out, 0, width, &rows);
    if brief {
        return out;
    }
    for group in groups(&survey.entries) {
        let info = group[0];
        let devices: Vec<_> = group.iter().map(|info| info.device.as_str()).collect();
        let title = format!("{} {} offers on {}:", info.provider, info.version, devices.join(", "));
        out.push('\n');
        table::rows(&mut out, 0, width, &[vec![Cell::styled(title, HEAD)]]);
        for info in group.iter().filter(|info| !info.details.is_empty()) {
            details(&mut out, info, width);
        }
        offer(&mut out, info, width);
    }
    out
}

fn head<const N: usize>(names: [&str; N]) -> Vec<Cell> {
    names.map(|name| Cell::styled(name, HEAD)).into()
}

fn device(entry: &Entry) -> Vec<Cell> {
    let style = match entry.status {
        Status::Chosen => GOOD.bold(),
        Status::Usable => GOOD,
        Status::Excluded => WARN,
        Status::Unusable => BAD,
    };
    let name = if entry.device.is_empty() { "-" } else { &entry.device };
    let last = match (&entry.reason, &entry.info) {
        (Some(reason), _) => reason.clone(),
        (None, Some(info)) => addresses(info).join(", "),
        (None, None) => String::new(),
    };
    vec![Cell::styled(entry.status.name(), style), entry.provider.into(), name.into(), last.into()]
}

pub(crate) fn addresses(info: &Info) -> Vec<String> {
    info.addresses.iter().map(ToString::to_string).collect()
}

/// Devices that offer the same, together.
fn groups(entries: &[Entry]) -> Vec<Vec<&Info>> {
    let same = |a: &Info, b: &Info| {
        (a.provider, &a.version, a.capabilities, &a.limits, a.atomic_scope, a.security)
            == (b.provider, &b.version, b.capabilities, &b.limits, b.atomic_scope, b.security)
    };
    let mut groups: Vec<Vec<&Info>> = Vec::new();
    for info in entries.iter().filter_map(|entry| entry.info.as_ref()) {
        match groups.iter_mut().find(|group| same(group[0], info)) {
            Some(group) => group.push(info),
            None => groups.push(vec![info]),
        }
    }
    groups
}

/// A device in words, and what only people care for.
fn details(out: &mut String, info: &Info, width: usize) {
    table::rows(
        out,
        2,
        width,
        &[vec![info.device.as_str().into(), info.description.as_str().into()]],
    );
    let row = |(name, value): &(String, String)| {
        let warns = name == "warning";
        let value = if warns { Cell::styled(value, WARN) } else { value.as_str().into() };
        vec![Cell::styled(name, FAINT), value]
    };
    let rows: Vec<_> = info.details.iter().map(row).collect();
    table::rows(out, 4, width, &rows);
    out.push('\n');
}

fn offer(out: &mut String, info: &Info, width: usize) {
    let mut rows = vec![head(["CAPABILITY", "HAS", "MEANING"])];
    for flag in Capabilities::all().iter() {
        let has = info.capabilities.contains(flag);
        rows.push(vec![flag.names().into(), yes(has), meaning(flag).into()]);
    }
    for level in Security::ALL.into_iter().filter(|level| *level > Security::Open) {
        let has = yes(info.security >= level);
        let meaning = match level {
            Security::Encrypted => {
                "both ends prove that, or who they are by certificates, and encrypt"
            }
            _ => "both ends prove that they have the same secret",
        };
        rows.push(vec![level.to_string().into(), has, meaning.into()]);
    }
    table::rows(out, 2, width, &rows);

    out.push('\n');
    let mut rows = vec![head(["LIMIT", "MAXIMUM", "OF"])];
    for (name, value) in info.limits.named() {
        let (bytes, of) = unit(name);
        let value = if bytes { bytes_text(value) } else { value.to_string() };
        rows.push(vec![name.into(), value.into(), of.into()]);
    }
    table::rows(out, 2, width, &rows);

    out.push('\n');
    let types = AtomicType::ALL.map(|ty| Cell::styled(ty.name(), HEAD));
    let mut rows = vec![vec![Cell::styled("ATOMIC", HEAD)]];
    rows[0].extend(types);
    for op in AtomicOp::ALL {
        let mut row = vec![Cell::from(op.name())];
        row.extend(AtomicType::ALL.map(|ty| yes(info.supports_atomic(op, ty))));
        rows.push(row);
    }
    table::rows(out, 2, width, &rows);
    if info.capabilities.contains(Capabilities::ATOMIC) {
        let with = match info.atomic_scope {
            AtomicScope::Cpu => "Each comes plain and fetching; atomic with the target's CPU too.",
            _ => "Each comes plain and fetching; not atomic with the target's CPU.",
        };
        let _ = writeln!(out, "  {FAINT}{with}{FAINT:#}");
    }
}

fn yes(has: bool) -> Cell {
    if has { Cell::styled("yes", GOOD) } else { Cell::styled("-", FAINT) }
}

fn meaning(flag: Capabilities) -> &'static str {
    match flag {
        Capabilities::SEND => "send and receive, inject, immediate data",
        Capabilities::RMA => "one-sided write and read, write with immediate",
        Capabilities::ATOMIC => "one-sided atomic operations, as below",
        Capabilities::LIVENESS => "a dead peer host is noticed",
        Capabilities::PROGRESS_WHILE_STOPPED => "works while the target process is stopped",
        Capabilities::UNIQUE_KEYS => "the key of a closed region never comes back",
        Capabilities::SECRET_KEYS => "a peer cannot guess the keys of regions",
        Capabilities::LOCKS_MEMORY => "registered memory counts against `ulimit -l`",
        Capabilities::PATH_SETTINGS => "GID, time-outs, retries and interrupts can be chosen",
        Capabilities::GRANTS => "part of a region can be opened to one connection alone",
        Capabilities::PORT_EVENTS => "programs hear of links that go down and up",
        Capabilities::PROCESSES => "peers may be in other processes",
        Capabilities::SHARED_RECEIVES => "endpoints can share a receive queue",
        Capabilities::DATAGRAMS => "unreliable datagrams, without connections",
        Capabilities::REQUEST_CANCEL => {
            "a request whose peer leaves gives up its place at the listener"
        }
        _ => "",
    }
}

/// Whether a limit counts bytes, and of what it is one.
fn unit(limit: &str) -> (bool, &'static str) {
    match limit {
        "message" => (true, "one send, write or read"),
        "inject" => (true, "one inject"),
        "datagram" => (true, "one datagram"),
        "send_segments" => (false, "segments of one send-queue operation"),
        "recv_segments" => (false, "segments of one receive"),
        "send_depth" => (false, "operations in a send queue"),
        "recv_depth" => (false, "receives in a receive queue"),
        "shared_depth" => (false, "receives in a shared receive queue"),
        "cq_capacity" => (false, "completions in a completion queue"),
        "completion_queues" => (false, "completion queues of a domain"),
        "endpoints" => (false, "endpoints of a domain"),
        "regions" => (false, "regions of a domain"),
        "region_len" => (true, "one region"),
        "backlog" => (false, "connection requests that wait at a listener"),
        _ => (false, ""),
    }
}

fn bytes_text(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let (mut value, mut unit) = (bytes, 0);
    while value != 0 && value % 1024 == 0 && unit + 1 < units.len() {
        (value, unit) = (value / 1024, unit + 1);
    }
    format!("{value} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_exact() {
        let is = |bytes, text: &str| assert_eq!(bytes_text(bytes), text);
        is(0, "0 B");
        is(256, "256 B");
        is(1 << 30, "1 GiB");
        is((8 << 20) - 1, "8388607 B");
        is(1536, "1536 B");
        is(u64::MAX, "18446744073709551615 B");
    }

    #[test]
    fn each_device_has_its_details() {
        let port = |name: &str, gid: &str| {
            let mut info = Info::new("verbs", name);
            info.description = format!("RoCE v2 of {name}");
            info.details = vec![("port".into(), "1 of 2".into()), ("GID 1".into(), gid.into())];
            info
        };
        let entry = |info: Info| Entry {
            provider: info.provider,
            device: info.device.clone(),
            info: Some(info),
            status: Status::Usable,
            reason: None,
        };
        let entries = [port("rxe0", "fd00::1"), port("rxe1", "fd00::2")].map(entry).into();
        let all = Survey { choice: fabric::Choice::Auto, chosen: None, entries };
        let text = anstream::adapter::strip_str(&survey(&all, false, usize::MAX)).to_string();
        let lines = "\
 offers on rxe0, rxe1:
  rxe0  RoCE v2 of rxe0
    port   1 of 2
    GID 1  fd00::1

  rxe1  RoCE v2 of rxe1
    port   1 of 2
    GID 1  fd00::2

  CAPABILITY ";
        assert!(text.contains(lines), "{text}");
        assert!(!survey(&all, true, usize::MAX).contains("GID"));
    }

    #[test]
    fn everything_has_a_meaning() {
        for flag in Capabilities::all().iter() {
            assert_ne!(meaning(flag), "", "{flag:?}");
        }
        for (name, _) in Info::new("tcp", "lo").limits.named() {
            assert_ne!(unit(name).1, "", "{name}");
        }
    }
}
