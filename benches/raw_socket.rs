//! fabric over TCP against plain sockets: two processes over loopback, interleaved rounds, ratios of medians.
//!
//! The plain program sends a message with one write and reads until it has it all; for the ping-pong it spins
//! on a non-blocking socket. Both sides poll. Run it with `cargo bench --bench raw_socket`.

use std::error::Error;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fabric::{
    Access, Completion, CompletionQueue, Domain, Endpoint, Hints, Op, Region, RemoteRegion, Slices,
};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 5;
const PINGS: u32 = 20_000;
const SMALL: usize = 64;
const MESSAGES: u32 = 200_000;
const LARGE: usize = 1 << 20;
const TRANSFERS: u32 = 1000;
const SOON: Option<Duration> = Some(Duration::from_secs(20));

fn main() -> Outcome {
    if let Some(role) =
        std::env::args().find_map(|arg| arg.strip_prefix("serve-").map(str::to_owned))
    {
        return serve(&role);
    }
    let mut table: Vec<(&str, Vec<f64>, Vec<f64>)> =
        ["64 B ping-pong, half round trip, us", "64 B messages, M/s", "1 MiB writes, GB/s"]
            .map(|name| (name, Vec::new(), Vec::new()))
            .into();
    for _ in 0..ROUNDS {
        for (place, (raw, ours)) in table.iter_mut().zip(raw()?.into_iter().zip(fabric()?)) {
            place.1.push(raw);
            place.2.push(ours);
        }
    }
    println!("{:<36} {:>8} {:>8} {:>6}", "", "raw", "fabric", "ratio");
    for (name, mut raw, mut ours) in table {
        let (raw, ours) = (median(&mut raw), median(&mut ours));
        println!("{name:<36} {raw:>8.2} {ours:>8.2} {:>6.2}", ours / raw);
    }
    Ok(())
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// Starts the other process, gives `run` the address that it prints, and waits for its end.
fn with_peer(role: &str, run: impl FnOnce(SocketAddr) -> Outcome<[f64; 3]>) -> Outcome<[f64; 3]> {
    let exe = std::env::current_exe()?;
    let mut child =
        Command::new(exe).arg(format!("serve-{role}")).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let figures = run(line.trim().parse()?);
    if figures.is_err() {
        child.kill()?;
    }
    child.wait()?;
    figures
}

fn serve(role: &str) -> Outcome {
    if role == "raw" { serve_raw() } else { serve_fabric() }
}

fn per_op(start: Instant, ops: u32) -> f64 {
    start.elapsed().as_secs_f64() / f64::from(ops)
}

// Plain sockets.

fn spin_read(stream: &mut TcpStream, buffer: &mut [u8]) -> Outcome {
    let mut got = 0;
    while got < buffer.len() {
        match stream.read(&mut buffer[got..]) {
            Ok(0) => return Err("closed".into()),
            Ok(n) => got += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn raw() -> Outcome<[f64; 3]> {
    with_peer("raw", |addr| {
        let mut stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        let mut buffer = vec![1; LARGE];
        stream.set_nonblocking(true)?;
        let start = Instant::now();
        for _ in 0..PINGS {
            stream.write_all(&buffer[..SMALL])?;
            spin_read(&mut stream, &mut buffer[..SMALL])?;
        }
        let ping = per_op(start, PINGS) / 2.0 * 1e6;
        stream.set_nonblocking(false)?;
        let start = Instant::now();
        for _ in 0..MESSAGES {
            stream.write_all(&buffer[..SMALL])?;
        }
        stream.read_exact(&mut buffer[..1])?;
        let rate = 1e-6 / per_op(start, MESSAGES);
        let start = Instant::now();
        for _ in 0..TRANSFERS {
            stream.write_all(&buffer)?;
        }
        stream.read_exact(&mut buffer[..1])?;
        Ok([ping, rate, LARGE as f64 / per_op(start, TRANSFERS) / 1e9])
    })
}

fn serve_raw() -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; LARGE];
    stream.set_nonblocking(true)?;
    for _ in 0..PINGS {
        spin_read(&mut stream, &mut buffer[..SMALL])?;
        stream.write_all(&buffer[..SMALL])?;
    }
    stream.set_nonblocking(false)?;
    for _ in 0..MESSAGES {
        stream.read_exact(&mut buffer[..SMALL])?;
    }
    stream.write_all(&[1])?;
    for _ in 0..TRANSFERS {
        stream.read_exact(&mut buffer)?;
    }
    stream.write_all(&[1])?;
    Ok(())
}

// fabric.

struct Side {
    endpoint: Endpoint,
    queue: CompletionQueue,
    region: Region,
    _domain: Domain,
}

impl Side {
    fn new() -> Outcome<Self> {
        let domain = Domain::open(&Hints::default())?;
        let queue = domain.completion_queue(1024)?;
        let region = domain.alloc(LARGE, Access::ALL)?;
        let endpoint = domain.endpoint().build(&queue)?;
        Ok(Side { endpoint, queue, region, _domain: domain })
    }

    /// Polls until `wanted` more receives have completed, and gives how many other operations did.
    fn poll(&self, done: &mut [u32; 2]) -> Outcome {
        let mut out = [Completion::default(); 32];
        let got = self.queue.poll(&mut out)?;
        for completion in &out[..got] {
            if !completion.is_ok() {
                return Err(format!("{completion:?}").into());
            }
            done[usize::from(completion.kind.is_receive())] += 1;
        }
        Ok(())
    }
}

fn fabric() -> Outcome<[f64; 3]> {
    with_peer("fabric", |addr| {
        let side = Side::new()?;
        let Side { endpoint, region, .. } = &side;
        for _ in 0..64 {
            endpoint.recv(region.slice(..SMALL), 0)?;
        }
        endpoint.connect(addr, &[])?;
        let remote = RemoteRegion::from_bytes(&endpoint.wait_connected(SOON)?)?;
        let mut done = [0; 2];
        let start = Instant::now();
        for i in 1..=PINGS {
            endpoint.post(&Op::send(region.slice(..SMALL)).unsignaled())?;
            while done[1] < i {
                side.poll(&mut done)?;
            }
            endpoint.recv(region.slice(..SMALL), 0)?;
        }
        let ping = per_op(start, PINGS) / 2.0 * 1e6;
        let send = |slice: usize, count: u32, write: bool| -> Outcome<f64> {
            let (mut done, mut posted) = ([0; 2], 0);
            let start = Instant::now();
            while done[0] < count {
                while posted < count && posted - done[0] < 64 {
                    let slice = region.slice(..slice);
                    match write {
                        true => endpoint.write(slice, remote.at(0), 0)?,
                        false => endpoint.send(slice, 0)?,
                    }
                    posted += 1;
                }
                side.poll(&mut done)?;
            }
            Ok(per_op(start, count))
        };
        let rate = 1e-6 / send(SMALL, MESSAGES, false)?;
        let bandwidth = LARGE as f64 / send(LARGE, TRANSFERS, true)? / 1e9;
        endpoint.send(Slices::none(), 0)?;
        let mut last = [0; 2];
        while last[0] == 0 {
            side.poll(&mut last)?;
        }
        Ok([ping, rate, bandwidth])
    })
}

fn serve_fabric() -> Outcome {
    let side = Side::new()?;
    let listener = side._domain.listen("127.0.0.1:0".parse()?)?;
    println!("{}", listener.local_addr());
    let Side { endpoint, region, .. } = &side;
    for _ in 0..64 {
        endpoint.recv(region.slice(..SMALL), 0)?;
    }
    listener.accept(SOON)?.accept(endpoint, &region.remote().to_bytes())?;
    endpoint.wait_connected(SOON)?;
    let mut done = [0; 2];
    for i in 1..=PINGS {
        while done[1] < i {
            side.poll(&mut done)?;
        }
        endpoint.recv(region.slice(..SMALL), 0)?;
        endpoint.post(&Op::send(region.slice(..SMALL)).unsignaled())?;
    }
    let mut reposted = PINGS;
    while done[1] < PINGS + MESSAGES + 1 {
        side.poll(&mut done)?;
        while reposted < done[1] {
            endpoint.recv(region.slice(..SMALL), 0)?;
            reposted += 1;
        }
    }
    endpoint.wait_disconnected(SOON)?;
    Ok(())
}
