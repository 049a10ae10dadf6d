//! One run of one program, and the figure that it gives.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use crate::outcome::Outcome;

/// What is the same for every run.
pub(crate) struct Setup {
    /// The program `fabric`.
    pub(crate) fabric: PathBuf,
    pub(crate) provider: String,
    /// Of each run of ours; others are given as many operations as take about as long.
    pub(crate) seconds: f64,
    /// Runs for one latency; the best counts.
    pub(crate) tries: u16,
    pub(crate) address: String,
    /// The transports that UCX is to use.
    pub(crate) ucx_tls: &'static str,
    /// The RDMA device, where there is one.
    pub(crate) device: String,
    /// A peer that takes longer is left out: on a loaded machine some of them nearly stop.
    pub(crate) patience: Duration,
    /// From then on curves are measured without the peers, so that the whole ends in time.
    pub(crate) hurry: Instant,
}

/// What a program is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) enum Figure {
    /// Latency, in microseconds.
    Us,
    BytesPerS,
    RatePerS,
    /// Of an idle connection, or of a peer.
    IdleBytes,
    Wakeups,
}

impl Figure {
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Figure::Us => format!("{value:.2} us"),
            Figure::BytesPerS => format!("{:.3} GB/s", value / 1e9),
            Figure::RatePerS => format!("{:.3} M/s", value / 1e6),
            Figure::IdleBytes => format!("{value:.0} B"),
            Figure::Wakeups => format!("{value:.0}"),
        }
    }
}

/// The programs that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub(crate) enum Program {
    Fabric,
    FabricTcp,
    Raw,
    Ring,
    Tagged,
    Libfabric,
    Ucx,
    Perftest,
}

impl Program {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Program::Fabric => "fabric",
            Program::FabricTcp => "fabric over TCP",
            Program::Raw => "plain sockets",
            Program::Ring => "plain shared memory",
            Program::Tagged => "fabric tagged",
            Program::Libfabric => "libfabric",
            Program::Ucx => "UCX",
            Program::Perftest => "perftest",
        }
    }
}

/// A program with its options, in one line.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) program: Program,
    pub(crate) args: String,
    pub(crate) figure: Figure,
    /// A variable of the environment that it runs in.
    pub(crate) variable: Option<(&'static str, &'static str)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) value: f64,
    /// All that `fabric perf` reported.
    pub(crate) all: Value,
}

impl Case {
    pub(crate) fn new(program: Program, figure: Figure, args: &str) -> Self {
        Case { program, args: args.to_owned(), figure, variable: None }
    }

    pub(crate) fn with(self, name: &'static str, value: &'static str) -> Self {
        Case { variable: Some((name, value)), ..self }
    }

    /// The figure of one run, or of the best of some; none if the program is not there, or did not come to an end.
    pub(crate) fn best(&self, setup: &Setup) -> Outcome<Option<Sample>> {
        let tries = if self.figure == Figure::Us { setup.tries } else { 1 };
        let samples: Vec<_> = (0..tries).map(|_| self.run(setup)).collect::<Outcome<_>>()?;
        Ok(samples.into_iter().flatten().min_by(|a, b| a.value.total_cmp(&b.value)))
    }

    /// The figure of one run; none if the program is not there, or did not come to an end.
    fn run(&self, setup: &Setup) -> Outcome<Option<Sample>> {
        match self.program {
            Program::Fabric | Program::FabricTcp | Program::Raw => {
                Ok(self.perf(setup)?.into_iter().next())
            }
            Program::Ring => self.beside(setup, "ring"),
            Program::Tagged => self.beside(setup, "tagged"),
            Program::Libfabric => self.fi_pingpong(setup),
            Program::Ucx => self.ucx(setup),
            Program::Perftest => self.perftest(setup),
        }
    }

    /// `fabric perf`: one sample for each size.
    pub(crate) fn perf(&self, setup: &Setup) -> Outcome<Vec<Sample>> {
        let mut command = Command::new(&setup.fabric);
        command.args(["perf", "--loopback", "--json"]).args(self.args.split_whitespace());
        if self.program == Program::Raw {
            command.arg("--raw");
        }
        if !self.args.contains("--iterations") {
            command.args(["--seconds", &setup.seconds.to_string()]);
        }
        let provider = if self.program == Program::FabricTcp { "tcp" } else { &setup.provider };
        command.env("FABRIC_PROVIDER", provider);
        command.envs(self.variable);
        let output = command.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("fabric perf {}: {}", self.args, errors.trim()).into());
        }
        let results: Vec<Value> = serde_json::from_slice(&output.stdout)?;
        results.into_iter().map(|all| self.sample(all)).collect()
    }

    fn sample(&self, all: Value) -> Outcome<Sample> {
        let name = match self.figure {
            Figure::Us => "median_us",
            Figure::BytesPerS => "bytes_per_s",
            Figure::RatePerS => "rate_per_s",
            Figure::IdleBytes => "idle_bytes",
            Figure::Wakeups => "wakeups",
        };
        let value = all[name].as_f64().ok_or_else(|| format!("fabric perf reported no {name}"))?;
        Ok(Sample { value, all })
    }

    /// A program of this package, which prints the figure alone.
    fn beside(&self, setup: &Setup, name: &str) -> Outcome<Option<Sample>> {
        let program = std::env::current_exe()?.with_file_name(name);
        let output = Command::new(program)
            .args(self.args.split_whitespace())
            .args(["--seconds", &setup.seconds.to_string()])
            .env("FABRIC_PROVIDER", &setup.provider)
            .stdin(Stdio::null())
            .output()?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{name} {}: {}", self.args, errors.trim()).into());
        }
        Ok(plain(String::from_utf8_lossy(&output.stdout).trim().parse()?))
    }

    fn fi_pingpong(&self, setup: &Setup) -> Outcome<Option<Sample>> {
        let port = free_port()?.to_string();
        let (server, client) = (["-B", &port], ["-P", &port, &setup.address]);
        let Some(text) = pair(setup, ("fi_pingpong", &self.args), &server, &client)? else {
            return Ok(None);
        };
        // bytes #sent #ack total time MB/sec usec/xfer Mxfers/sec
        let mut rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = rows.rfind(|row| row.len() == 8 && row[0].parse::<u64>().is_ok());
        Ok(row.and_then(|row| plain(row[6].parse().ok()?)))
    }

    fn ucx(&self, setup: &Setup) -> Outcome<Option<Sample>> {
        let port = free_port()?.to_string();
        let server = ["-p", &*port];
        let client = ["-p", &*port, "-f", &*setup.address];
        let Some(text) = pair(setup, ("ucx_perftest", &self.args), &server, &client)? else {
            return Ok(None);
        };
        // iterations, median, average, overall, MB/s average and overall, messages/s average and overall
        let mut rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = rows.rfind(|row| row.len() == 8 && row[0].parse::<u64>().is_ok());
        let place = match self.figure {
            Figure::BytesPerS => (5, f64::from(1 << 20)),
            Figure::RatePerS => (7, 1.0),
            _ => (1, 1.0),
        };
        Ok(row.and_then(|row| plain(row[place.0].parse::<f64>().ok()? * place.1)))
    }

    fn perftest(&self, setup: &Setup) -> Outcome<Option<Sample>> {
        let (program, args) = self.args.split_once(' ').unwrap_or((&self.args, ""));
        let port = free_port()?.to_string();
        let (name, hca_port) = setup.device.split_once('/').unwrap_or((&setup.device, "1"));
        let common = ["-F", "-d", name, "-i", hca_port, "-p", &port];
        let client = [&common[..], &[&*setup.address]].concat();
        let Some(text) = pair(setup, (program, args), &common, &client)? else { return Ok(None) };
        let mut rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row =
            rows.rfind(|row| row.len() >= 5 && row.iter().all(|word| word.parse::<f64>().is_ok()));
        // bytes, iterations, then: min, max, typical, average ...; or BW peak, BW average, message rate
        let (place, unit) = match self.figure {
            Figure::BytesPerS => (3, f64::from(1 << 20)),
            Figure::RatePerS => (4, 1e6),
            _ => (4, 1.0),
        };
        // perftest measures the CPU's frequency, and where it cannot, on a busy machine, it says `inf` or 0.
        Ok(row.and_then(|row| plain(row[place].parse::<f64>().ok()? * unit)))
    }
}

fn plain(value: f64) -> Option<Sample> {
    value.is_normal().then_some(Sample { value, all: Value::Null })
}

/// An unused port: the peers' programs do not report one that they choose.
fn free_port() -> Outcome<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Runs a program as server and as client; gives what the client says, unless it is missing or too slow.
fn pair(
    setup: &Setup,
    (program, args): (&str, &str),
    server: &[&str],
    client: &[&str],
) -> Outcome<Option<String>> {
    let command = |own: &[&str]| {
        let mut command = Command::new(program);
        // UCX takes its own part of `args`: a server needs none of it.
        if program != "ucx_perftest" || own.contains(&"-f") {
            command.args(args.split_whitespace());
        }
        command
            .args(own)
            .env("UCX_TLS", setup.ucx_tls)
            .env("UCX_NET_DEVICES", "lo")
            .stdin(Stdio::null());
        command
    };
    let mut other = match command(server).stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => Ended(other?),
    };
    let start = Instant::now();
    loop {
        // It does not report when it listens.
        std::thread::sleep(Duration::from_millis(150));
        let own = command(client).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = within(Ended(own), setup.patience.saturating_sub(start.elapsed()))?;
        match output {
            Some(output) if output.status.success() => {
                return Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()));
            }
            Some(_) if other.0.try_wait()?.is_none() && start.elapsed() < setup.patience / 2 => {}
            _ => return Ok(None),
        }
    }
}

/// A process that does not outlive its use.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What it says, if it ends in time. These programs say little, so a pipe holds it all.
fn within(mut child: Ended, patience: Duration) -> Outcome<Option<Output>> {
    let start = Instant::now();
    while start.elapsed() < patience {
        if let Some(status) = child.0.try_wait()? {
            let mut stdout = Vec::new();
            if let Some(mut pipe) = child.0.stdout.take() {
                std::io::Read::read_to_end(&mut pipe, &mut stdout)?;
            }
            return Ok(Some(Output { status, stdout, stderr: Vec::new() }));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(None)
}
