//! The options of `fabric perf`, and the plans that they stand for.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use clap::{ArgGroup, Args};

use super::plan::{ATOMIC_SIZE, Limit, Mode, Operation, Plan, Wait};
use super::problem::Outcome;

/// Where a server listens unless it says otherwise.
pub(crate) const PORT: u16 = 7472;

/// Measure latency, bandwidth or message rate between two processes.
///
/// One end serves (--serve), the other one connects to it (--connect) and says what is measured; --loopback does both,
/// in two processes. The provider is chosen as in every program: FABRIC_PROVIDER, on the device that has the address.
#[derive(Args)]
#[command(group = ArgGroup::new("end").required(true).args(["loopback", "serve", "connect"]))]
#[command(after_help = "\
Examples:
  fabric perf --loopback                               64 B, half a round trip
  fabric perf --loopback --op read --mode bandwidth --size 4K-4M
  fabric perf --loopback --op write --mode rate --batch 32 --threads 2
  fabric perf --loopback --op fetch-add --target sleep the target sleeps
  fabric perf --loopback --idle 1000                   beside 1000 idle ones
  fabric perf --loopback --mode idle --idle 1000       the cost of idle ones
  fabric perf --loopback --raw                         plain TCP sockets
  fabric perf --serve 0.0.0.0                          on one machine ...
  fabric perf --connect 10.0.0.2 --op write --json     ... on the other

The latency of send, write and write-imm is half a round trip, that of the others a whole one. The cost of reading \
the clock is measured and subtracted.

The server is open to all that reach it, unless FABRIC_SECRET_FILE names a secret at both ends. What the ends say \
beside the connections that are measured is not encrypted: use it on trusted networks only.

Exit codes: 0 measured, 1 it failed, 2 wrong usage.")]
pub(crate) struct PerfArgs {
    /// Run both ends here, in two processes.
    #[arg(long)]
    loopback: bool,
    /// Serve clients on this address, one after the other, until killed.
    #[arg(long, value_name = "ADDR[:PORT]")]
    serve: Option<String>,
    /// Measure with the server there.
    #[arg(long, value_name = "ADDR[:PORT]")]
    connect: Option<String>,
    /// With --serve: end with the first client.
    #[arg(long, conflicts_with_all = ["loopback", "connect"])]
    once: bool,
    #[command(flatten)]
    what: What,
}

#[derive(Args)]
struct What {
    /// The operation [default: send].
    #[arg(long, value_enum, conflicts_with = "serve", help_heading = "What")]
    op: Option<Operation>,
    /// The figure to measure [default: latency].
    #[arg(long, value_enum, conflicts_with = "serve", help_heading = "What")]
    mode: Option<Mode>,
    /// Bytes of an operation: 64, 4K, 1M; several (64,4K), or powers of two (1-64K) [default: 64, of bandwidth 64K; of
    /// atomics 8].
    #[arg(
        long,
        value_name = "N[,N...]",
        value_delimiter = ',',
        conflicts_with = "serve",
        help_heading = "What"
    )]
    size: Vec<String>,
    /// Operations in flight [default: 128; for latency 1].
    #[arg(long, value_name = "N", conflicts_with = "serve", help_heading = "What")]
    depth: Option<usize>,
    /// Operations per post [default: 1].
    #[arg(long, value_name = "N", conflicts_with = "serve", help_heading = "What")]
    batch: Option<usize>,
    /// Signal every Nth operation only; for latency, 0 signals none [default: 1].
    #[arg(long, value_name = "N", conflicts_with = "serve", help_heading = "What")]
    signal: Option<usize>,
    /// Post sends and writes as injects.
    #[arg(long, conflicts_with = "serve", help_heading = "What")]
    inject: bool,
    /// Connections that carry operations [default: as many as threads].
    #[arg(long, value_name = "N", conflicts_with = "serve", help_heading = "What")]
    endpoints: Option<usize>,
    /// Threads at each end, which share the connections [default: 1].
    #[arg(long, value_name = "N", conflicts_with = "serve", help_heading = "What")]
    threads: Option<usize>,
    /// Idle connections beside them [default: 0].
    #[arg(long, value_name = "N", conflicts_with = "serve", help_heading = "What")]
    idle: Option<usize>,
    /// How this end waits [default: poll].
    #[arg(long, value_enum, conflicts_with = "serve", help_heading = "How")]
    wait: Option<Wait>,
    /// How the other end waits; for reads, writes and atomics, sleep means that its application does nothing [default:
    /// poll].
    #[arg(long, value_enum, conflicts_with = "serve", help_heading = "How")]
    target: Option<Wait>,
    /// Check every byte; the figures then include the checks.
    #[arg(long, conflicts_with = "serve", help_heading = "How")]
    verify: bool,
    /// Operations of each endpoint to measure [default: as --seconds].
    #[arg(long, value_name = "N", conflicts_with_all = ["serve", "seconds"], help_heading = "How")]
    iterations: Option<u64>,
    /// How long to measure [default: 1].
    #[arg(long, value_name = "S", conflicts_with = "serve", help_heading = "How")]
    seconds: Option<f64>,
    /// Operations of each endpoint that come before [default: 1000; above 4 KiB 100].
    #[arg(long, value_name = "N", conflicts_with = "serve", help_heading = "How")]
    warmup: Option<u64>,
    /// Give up when nothing completes for so many seconds [default: 30].
    #[arg(long, value_name = "S", conflicts_with = "serve", help_heading = "How")]
    timeout: Option<u64>,
    /// Use plain TCP sockets instead of fabric: --op send only.
    #[arg(long, conflicts_with = "serve", help_heading = "How")]
    raw: bool,
    /// Write JSON: an array of results.
    #[arg(long, conflicts_with = "serve", help_heading = "How")]
    json: bool,
}

/// Which end, or ends, to be.
pub(crate) enum Role {
    Serve { address: SocketAddr, once: bool },
    Connect(SocketAddr),
    Loopback,
}

impl PerfArgs {
    pub(crate) fn role(&self) -> Outcome<Role> {
        Ok(match (&self.serve, &self.connect) {
            (Some(at), _) => Role::Serve { address: address("--serve", at)?, once: self.once },
            (_, Some(to)) => Role::Connect(address("--connect", to)?),
            _ => Role::Loopback,
        })
    }

    pub(crate) fn json(&self) -> bool {
        self.what.json
    }

    /// One plan for each size; all of them are sound.
    pub(crate) fn plans(&self) -> Outcome<Vec<Plan>> {
        let what = &self.what;
        let mode = what.mode.unwrap_or(Mode::Latency);
        let op = what.op.unwrap_or(Operation::Send);
        let mut sizes = Vec::new();
        for text in &what.size {
            sizes.extend(parse_sizes(text)?);
        }
        if sizes.is_empty() {
            let usual = if mode == Mode::Bandwidth { 64 << 10 } else { 64 };
            sizes.push(if op.is_atomic() { ATOMIC_SIZE } else { usual });
        }
        let plans: Vec<Plan> = sizes.into_iter().map(|size| self.plan(op, mode, size)).collect();
        plans.iter().try_for_each(Plan::check)?;
        Ok(plans)
    }

    fn plan(&self, op: Operation, mode: Mode, size: usize) -> Plan {
        let what = &self.what;
        let threads = what.threads.unwrap_or(1);
        let usual = if mode == Mode::Latency { 1 } else { 128 };
        Plan {
            raw: what.raw,
            op,
            mode,
            size,
            depth: what.depth.unwrap_or(usual),
            batch: what.batch.unwrap_or(1),
            signal: what.signal.unwrap_or(1),
            inject: what.inject,
            endpoints: what.endpoints.unwrap_or(threads),
            threads,
            idle: what.idle.unwrap_or(0),
            wait: what.wait.unwrap_or(Wait::Poll),
            target: what.target.unwrap_or(Wait::Poll),
            verify: what.verify,
            limit: match (what.iterations, what.seconds) {
                (Some(count), _) => Limit::Iterations(count),
                (None, seconds) => Limit::Seconds(seconds.unwrap_or(1.0)),
            },
            warmup: what.warmup.unwrap_or(if size > 4096 { 100 } else { 1000 }),
            timeout_s: what.timeout.unwrap_or(30),
        }
    }
}

/// `64`, `4K`, or `1-64K`: the first, and its doubles up to the last.
fn parse_sizes(text: &str) -> Outcome<Vec<usize>> {
    let bad = || {
        format!("--size {text}: expected bytes, such as 64, 4K or 1M, or a range, such as 8-64K")
    };
    let Some((from, to)) = text.split_once('-') else {
        return Ok(vec![parse_size(text).ok_or_else(bad)?]);
    };
    let (from, to) = (parse_size(from).ok_or_else(bad)?, parse_size(to).ok_or_else(bad)?);
    if from == 0 || from > to {
        return Err(
            format!("{}; a range begins with 1 or more, and with the smaller one", bad()).into()
        );
    }
    Ok(std::iter::successors(Some(from), |size| size.checked_mul(2))
        .take_while(|size| *size <= to)
        .collect())
}

fn parse_size(text: &str) -> Option<usize> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &text[digits.len()..].to_ascii_lowercase()[..] {
        "" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(1 << shift)
}

fn address(option: &str, text: &str) -> Outcome<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(SocketAddr::new(ip, PORT));
    }
    let found =
        if text.contains(':') { text.to_socket_addrs() } else { (text, PORT).to_socket_addrs() };
    let found = found.map_err(|error| format!("{option} {text}: {error}"))?.next();
    Ok(found.ok_or_else(|| format!("{option} {text}: this name has no address"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let is = |text: &str, sizes: &[usize]| assert_eq!(parse_sizes(text).unwrap(), sizes);
        is("0", &[0]);
        is("64", &[64]);
        is("4k", &[4096]);
        is("2MiB", &[2 << 20]);
        is("8-64", &[8, 16, 32, 64]);
        is("3-10", &[3, 6]);
        for bad in ["", "x", "4T", "-1", "0-8", "8-4", "1.5K", "99999999999G"] {
            let text = parse_sizes(bad).unwrap_err().to_string();
            assert!(text.contains(&format!("--size {bad}")), "{text}");
        }
    }

    #[test]
    fn addresses() {
        let is = |text: &str, right: &str| {
            assert_eq!(address("--serve", text).unwrap(), right.parse().unwrap());
        };
        is("127.0.0.1:9", "127.0.0.1:9");
        is("127.0.0.1", "127.0.0.1:7472");
        is("[::1]", "[::1]:7472");
        is("::1", "[::1]:7472");
        assert!(address("--serve", "127.0.0.1:x").unwrap_err().to_string().contains("--serve"));
    }
}
