//! `fabric perf`: how fast it is.
//!
//! `args` are the options; each size makes a `plan`. The `client` sends the `server` the plan over `control`, both make
//! a `side`, and of each side's `threads` every one has a `Worker` (`worker`). The `initiator` has the measured loops,
//! `raw` those of plain sockets, both by `turns`, `verified` those that look at each byte. A `tally` is what a thread measured, and
//! `results` show it. What goes wrong is a `problem`.

mod args;
mod client;
mod control;
mod initiator;
mod pattern;
mod plan;
mod problem;
mod process;
mod progress;
mod raw;
mod results;
mod server;
mod side;
mod tally;
mod threads;
mod turns;
mod verified;
mod waiter;
mod worker;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use args::Role;
use client::Client;
use problem::{Outcome, Problem, describe};

use crate::failure::Failure;

pub(crate) use args::PerfArgs;

/// Runs it; the exit code says whether the options are to blame.
pub(crate) fn run(args: &PerfArgs) -> Result<(), Failure> {
    let with = |code| move |problem: Problem| Failure { text: describe(&problem), code };
    let role = args.role().map_err(with(2))?;
    if let Role::Serve { address, once } = role {
        return server::serve(address, once).map_err(with(1));
    }
    let plans = args.plans().map_err(with(2))?;
    let lines = match role {
        Role::Connect(address) => measure(address, &plans),
        _ => in_two_processes(&plans),
    };
    let lines = lines.map_err(with(1))?;
    let text = if args.json() { results::json(&lines) } else { results::text(&lines) };
    match anstream::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(with(1)(error.into())),
        _ => Ok(()),
    }
}

fn measure(address: SocketAddr, plans: &[plan::Plan]) -> Outcome<Vec<results::Line>> {
    let mut client = Client::connect(address)?;
    plans.iter().map(|plan| Ok(client.measure(plan)?.line())).collect()
}

fn in_two_processes(plans: &[plan::Plan]) -> Outcome<Vec<results::Line>> {
    let first = plans.first().ok_or("nothing to measure")?;
    let mut other = OtherEnd::start(first)?;
    let lines = measure(other.address, plans)?;
    other.finish()?;
    Ok(lines)
}

/// The other end of `--loopback`.
struct OtherEnd {
    child: Child,
    address: SocketAddr,
}

/// How long it may take to end when it has nothing more to do.
const LEAVE: Duration = Duration::from_secs(10);

impl OtherEnd {
    fn start(plan: &plan::Plan) -> Outcome<Self> {
        let ip = if plan.raw { [127, 0, 0, 1].into() } else { own_address(plan)? };
        let mut child = Command::new(std::env::current_exe()?)
            .args(["perf", "--once", "--serve", &SocketAddr::new(ip, 0).to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()) // what went wrong there comes over the control connection
            .spawn()?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line)?;
        }
        let mut other = OtherEnd { child, address: SocketAddr::new(ip, 0) };
        let address = line.trim().rsplit(' ').next().and_then(|text| text.parse().ok());
        other.address = address.ok_or("the other process did not start")?;
        Ok(other)
    }

    fn finish(&mut self) -> Outcome {
        let start = Instant::now();
        while start.elapsed() < LEAVE {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("the other process: {status}").into()),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        Err("the other process does not end".into())
    }
}

impl Drop for OtherEnd {
    fn drop(&mut self) {
        // It ended, or it will not.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address of the device that would be chosen: a loopback one if it has one.
fn own_address(plan: &plan::Plan) -> Outcome<std::net::IpAddr> {
    let domain = side::open(Some(plan), None)?;
    let own = &domain.info().addresses;
    let near = own.iter().find(|ip| ip.is_loopback()).or(own.iter().find(|ip| ip.is_ipv4()));
    let near = near.or(own.first()).copied();
    Ok(near.ok_or_else(|| format!("{} has no address", domain.device()))?)
}
