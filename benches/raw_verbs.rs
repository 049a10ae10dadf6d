//! fabric over verbs against perftest and `fi_pingpong`: two processes on one device, interleaved rounds, ratios of
//! medians, so arranged that more is better for fabric.
//!
//! Both sides do the same: one operation at a time for latency and 128 for bandwidth, each posted alone and signaled,
//! 64 bytes inline, a queue for each side, all polling; the target of a written ping watches its memory. perftest
//! connects in its own way, because under rdma_cm its idle server polls. Against `fi_pingpong` it is an unsignaled
//! inject, as there.
//!
//! Latency is the median of a run, perftest's `t_typical`; of `fi_pingpong` there is only the mean. perftest reads the
//! CPU's counter, fabric's client the system's clock: what that costs is measured and taken off.
//!
//! Needs a device (`FABRIC_PROVIDER=verbs:NAME` chooses one), perftest, and libfabric's programs:
//! `cargo bench --features verbs --bench raw_verbs`, in a Soft-RoCE guest too (README).

use std::error::Error;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use fabric::{
    Access, Catalog, Choice, Completion, CompletionQueue, Domain, Endpoint, EndpointState, Hints,
    Op, Region, RemoteRegion,
};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 5;
const PINGS: usize = 1000;
const SMALL: usize = 64;
const AHEAD: usize = 512;
const DEPTH: usize = 128;
/// Startup, and an untimed end; generous, because a guest may be slow.
const SOON: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, PartialEq)]
enum Test {
    Send,
    Write,
    FetchAdd,
    /// Against `fi_pingpong`.
    Inject,
    /// Writes of so many bytes, so many of them.
    Bandwidth(usize, usize),
}

/// Title, the program to compare with, and what is measured. The other process gets the place in this list.
const TESTS: [(&str, &str, Test); 6] = [
    ("64 B send, half round trip, us", "ib_send_lat", Test::Send),
    ("64 B write, half round trip, us", "ib_write_lat", Test::Write),
    ("8 B fetch-and-add, us", "ib_atomic_lat", Test::FetchAdd),
    ("64 KiB writes, MiB/s", "ib_write_bw", Test::Bandwidth(64 << 10, 2 * DEPTH)),
    ("1 MiB writes, MiB/s", "ib_write_bw", Test::Bandwidth(1 << 20, DEPTH)),
    ("64 B ping-pong, us (mean)", "fi_pingpong", Test::Inject),
];

fn main() -> ExitCode {
    let role = std::env::args().find_map(|arg| arg.strip_prefix("serve-").map(str::to_owned));
    match role.map_or_else(measure, |role| serve(&role)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("raw_verbs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Outcome {
    let domain = open().map_err(|error| format!("nothing to measure here: {error}"))?;
    let device = domain.device().to_owned();
    let ip = address(&domain)?;
    drop(domain);
    println!(
        "{device}, {ip}: medians of {ROUNDS} interleaved rounds of {PINGS} pings, or {DEPTH} writes deep"
    );
    println!(
        "ratio: of latency, other / fabric; of bandwidth, fabric / other; above 1 fabric is the better"
    );
    println!("{:32} {:>13} {:>13} {:>9} {:>6}  of pairs", "", "program", "its", "fabric", "ratio");
    for (place, (title, program, test)) in TESTS.into_iter().enumerate() {
        let (mut others, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            // perftest measures the CPU's frequency, and where it cannot, on a busy machine, it says `inf` or 0.
            let it = || other((program, test), &device, ip).transpose();
            others.extend(
                std::iter::from_fn(it)
                    .find(|it| !matches!(it, Ok(n) if !n.is_normal()))
                    .transpose()?,
            );
            ours.push(client(place)?);
        }
        print_row((title, program, test), &mut others, &mut ours);
    }
    Ok(())
}

fn print_row((title, program, test): (&str, &str, Test), others: &mut [f64], ours: &mut [f64]) {
    let ratio = |(other, ours): (&f64, &f64)| match test {
        Test::Bandwidth(..) => ours / other,
        _ => other / ours,
    };
    let mut pairs: Vec<f64> = others.iter().zip(&*ours).map(ratio).collect();
    let our = median(ours);
    if pairs.is_empty() {
        println!("{title:32} {program:>13} {:>13} {our:>9.2}", "not installed");
        return;
    }
    let other = median(others);
    pairs.sort_by(f64::total_cmp);
    let (ratio, least, most) = (ratio((&other, &our)), pairs[0], pairs[pairs.len() - 1]);
    println!(
        "{title:32} {program:>13} {other:>13.2} {our:>9.2} {ratio:>6.2}  {least:.2} to {most:.2}"
    );
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

// The other programs.

/// Runs it against itself; `None` if it is not installed.
fn other((program, test): (&str, Test), device: &str, ip: IpAddr) -> Outcome<Option<f64>> {
    let (name, port) = device.split_once('/').unwrap_or((device, "1"));
    let (size, count) = match test {
        Test::Bandwidth(size, count) => (size, count),
        Test::FetchAdd => (8, PINGS),
        _ => (SMALL, PINGS),
    };
    let (bytes, count) = (size.to_string(), count.to_string());
    let perftest = ["-F", "-d", name, "-i", port, "-n", &*count];
    let (options, own): (&[&str], _) = match test {
        Test::Inject => (&[], ["-p", "verbs", "-e", "msg", "-S", &*bytes, "-I", &*count].to_vec()),
        Test::Bandwidth(..) => (&perftest, vec!["-s", &*bytes, "-t", "128", "-l", "1", "-N"]),
        Test::FetchAdd => (&perftest, vec!["-A", "FETCH_AND_ADD"]),
        Test::Send | Test::Write => (&perftest, vec!["-s", &*bytes, "-I", &*bytes]),
    };
    let args = [options, &own].concat();
    let command = || {
        let mut command = Command::new(program);
        command.args(&args).stdin(Stdio::null());
        command
    };
    let mut server = match command().stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        server => server?,
    };
    // It does not tell when it listens.
    let start = Instant::now();
    let output = loop {
        let output = command().arg(ip.to_string()).output()?;
        let gone = server.try_wait()?.is_some();
        if output.status.success() || gone || start.elapsed() > SOON {
            break output;
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    if !output.status.success() {
        server.kill()?;
    }
    server.wait()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let place = match test {
        Test::Inject => 6,        // usec/xfer
        Test::Bandwidth(..) => 3, // BW average
        _ => 4,                   // t_typical
    };
    let mut rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = rows.find(|row| row.first() == Some(&&*bytes) && row.len() > 4);
    let figure = row.and_then(|row| row.get(place)?.parse().ok());
    let errors = String::from_utf8_lossy(&output.stderr);
    let failed = || format!("{program} {}: {}\n{text}{errors}", args.join(" "), output.status);
    Ok(Some(figure.filter(|_| output.status.success()).ok_or_else(failed)?))
}

// fabric.

fn open() -> Outcome<Domain> {
    let choice = std::env::var("FABRIC_PROVIDER").unwrap_or_else(|_| "verbs".to_owned());
    let domain = Catalog::builtin().open_with(&Choice::parse(&choice)?, &Hints::default())?;
    if domain.provider() != "verbs" {
        return Err(format!("FABRIC_PROVIDER={choice} is {}", domain.provider()).into());
    }
    Ok(domain)
}

fn address(domain: &Domain) -> Outcome<IpAddr> {
    let addresses = &domain.info().addresses;
    let found = addresses.iter().find(|ip| ip.is_ipv4());
    Ok(*found.ok_or_else(|| format!("{} has no IPv4 address", domain.device()))?)
}

struct Side {
    endpoint: Endpoint,
    sent: CompletionQueue,
    received: CompletionQueue,
    /// What goes out, and behind it what comes in.
    region: Region,
    size: usize,
    domain: Domain,
}

impl Side {
    fn new(test: Test) -> Outcome<Self> {
        let domain = open()?;
        let size = if let Test::Bandwidth(size, _) = test { size } else { SMALL };
        // As perftest: for latency, room for one operation.
        let depth = if matches!(test, Test::Bandwidth(..) | Test::Inject) { DEPTH } else { 1 };
        let (sent, received) = (domain.completion_queue(depth)?, domain.completion_queue(AHEAD)?);
        let region = domain.alloc(2 * size, Access::ALL)?;
        let builder =
            domain.endpoint().send_depth(depth).recv_depth(AHEAD).send_segments(1).recv_segments(1);
        let endpoint = builder.build_with(&sent, &received)?;
        let side = Side { endpoint, sent, received, region, size, domain };
        if matches!(test, Test::Send | Test::Inject) {
            for _ in 0..AHEAD {
                side.post_receive()?;
            }
        }
        Ok(side)
    }

    fn post_receive(&self) -> Outcome {
        Ok(self.endpoint.recv(self.region.slice(self.size..), 0)?)
    }

    /// Plays ping-pong; the first to move tells when each ping went out, and when the last pong came.
    fn play(&self, test: Test, remote: RemoteRegion, first: bool) -> Outcome<Vec<Instant>> {
        let mut times = Vec::with_capacity(PINGS + 1);
        for ping in 1..=PINGS {
            if first {
                times.push(Instant::now());
            } else {
                self.await_peer(test, ping as u8)?;
            }
            let from = self.region.slice(..SMALL);
            match test {
                Test::Write => {
                    self.region.put(SMALL - 1, &(ping as u8))?;
                    self.endpoint.write(from, remote.at(self.size as u64), 0)?;
                }
                Test::Inject => self.endpoint.post(&Op::inject(&[1; SMALL]).unsignaled())?,
                _ => self.endpoint.send(from, 0)?,
            }
            if test != Test::Inject {
                take(&self.sent)?;
            }
            if first {
                self.await_peer(test, ping as u8)?;
            }
        }
        times.push(Instant::now());
        Ok(times)
    }

    fn await_peer(&self, test: Test, ping: u8) -> Outcome {
        if test != Test::Write {
            take(&self.received)?;
            return self.post_receive();
        }
        let mut polls = 0_u32;
        while self.region.get::<u8>(self.size + SMALL - 1)? != ping {
            polls = polls.wrapping_add(1);
            if polls == 0 && self.endpoint.state() != EndpointState::Connected {
                return Err("the peer is gone".into());
            }
        }
        Ok(())
    }

    fn add(&self, remote: RemoteRegion) -> Outcome<Vec<Instant>> {
        let mut times = Vec::with_capacity(PINGS + 1);
        for _ in 0..PINGS {
            times.push(Instant::now());
            self.endpoint.fetch_add(1u64, self.region.slice(..8), remote.at(0), 0)?;
            take(&self.sent)?;
        }
        times.push(Instant::now());
        Ok(times)
    }

    /// Bytes a second.
    fn stream(&self, remote: RemoteRegion, count: usize) -> Outcome<f64> {
        let (mut posted, mut done) = (0, 0);
        let mut out = [Completion::default(); 16];
        let start = Instant::now();
        while done < count {
            while posted < count && posted - done < DEPTH {
                self.endpoint.write(
                    self.region.slice(..self.size),
                    remote.at(self.size as u64),
                    0,
                )?;
                posted += 1;
            }
            let got = self.sent.poll(&mut out)?;
            out[..got].iter().try_for_each(check)?;
            done += got;
        }
        Ok((count * self.size) as f64 / start.elapsed().as_secs_f64())
    }
}

fn check(completion: &Completion) -> Outcome {
    if completion.is_ok() { Ok(()) } else { Err(format!("{completion:?}").into()) }
}

/// Polls until one completion comes.
fn take(queue: &CompletionQueue) -> Outcome {
    loop {
        if let Some(completion) = queue.poll_one()? {
            return check(&completion);
        }
    }
}

/// What lies between two moments, in microseconds, less what it takes to read the clock: the median, or the mean.
fn latency(times: &[Instant], mean: bool) -> f64 {
    let gaps = |times: &[Instant]| {
        times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e6).collect::<Vec<_>>()
    };
    let idle: Vec<Instant> = (0..PINGS).map(|_| Instant::now()).collect();
    let clock = median(&mut gaps(&idle));
    let mut gaps = gaps(times);
    let typical =
        if mean { gaps.iter().sum::<f64>() / gaps.len() as f64 } else { median(&mut gaps) };
    typical - clock
}

fn client(place: usize) -> Outcome<f64> {
    let (exe, role) = (std::env::current_exe()?, format!("serve-{place}"));
    let mut child = Command::new(exe).arg(role).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let run = line.trim().parse().map_err(Into::into).and_then(|addr| run(TESTS[place].2, addr));
    if run.is_err() {
        child.kill()?;
    }
    child.wait()?;
    run
}

fn run(test: Test, addr: SocketAddr) -> Outcome<f64> {
    let side = Side::new(test)?;
    side.endpoint.connect(addr, &side.region.remote().to_bytes())?;
    let remote = RemoteRegion::from_bytes(&side.endpoint.wait_connected(Some(SOON))?)?;
    let run = match test {
        Test::FetchAdd => latency(&side.add(remote)?, false),
        Test::Bandwidth(_, count) => side.stream(remote, count)? / f64::from(1 << 20),
        _ => latency(&side.play(test, remote, true)?, test == Test::Inject) / 2.0,
    };
    side.endpoint.shutdown(SOON)?;
    Ok(run)
}

fn serve(role: &str) -> Outcome {
    let (_, _, test) = *TESTS.get(role.parse::<usize>()?).ok_or("no such test")?;
    let side = Side::new(test)?;
    let listener = side.domain.listen((address(&side.domain)?, 0).into())?;
    println!("{}", listener.local_addr());
    let mut request = listener.accept(Some(SOON))?;
    let remote = RemoteRegion::from_bytes(request.private_data())?;
    request.accept(&side.endpoint, &side.region.remote().to_bytes())?;
    side.endpoint.wait_connected(Some(SOON))?;
    if matches!(test, Test::Send | Test::Write | Test::Inject) {
        side.play(test, remote, false)?;
    }
    side.endpoint.wait_disconnected(Some(10 * SOON))?;
    Ok(())
}
