//! What all figures are held against: plain TCP sockets, used in the plainest way, with the same message pattern.
//!
//! `TCP_NODELAY`; each message is one blocking write of all of it; who receives reads at most the message into a
//! buffer of that size. For ping-pong a polling end spins on a non-blocking socket, a sleeping one blocks in its read.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::control::{Control, Done, Ready, Reply};
use super::plan::{Limit, Mode, Plan, Wait};
use super::problem::{Outcome, Problem};
use super::side::PATIENCE;
use super::tally::Tally;
use super::threads::{Shared, first_failure, join};
use super::turns::{REPORT_EVERY, bounds, turns};

/// Reads in a row that found nothing, after which it looks at the clock.
const EMPTY_READS: u32 = 1 << 16;

struct Socket {
    stream: TcpStream,
    wait: Wait,
    patience: Duration,
    out: Vec<u8>,
    into: Vec<u8>,
}

impl Socket {
    fn new(plan: &Plan, stream: TcpStream, wait: Wait) -> Outcome<Self> {
        stream.set_nodelay(true)?;
        // Streams block at both ends.
        let wait = if plan.mode == Mode::Latency { wait } else { Wait::Sleep };
        let patience = Duration::from_secs(plan.timeout_s);
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.set_nonblocking(wait == Wait::Poll)?;
        Ok(Socket { stream, wait, patience, out: vec![1; plan.size], into: vec![0; plan.size] })
    }

    fn set(&mut self, wait: Wait) -> Outcome {
        self.wait = wait;
        Ok(self.stream.set_nonblocking(wait == Wait::Poll)?)
    }

    #[inline]
    fn send(&mut self) -> Outcome {
        let mut sent = 0;
        while sent < self.out.len() {
            match self.stream.write(&self.out[sent..]) {
                Ok(n) => sent += n,
                Err(error) if self.goes_on(&error) => {}
                Err(error) => return Err(gone(error)),
            }
        }
        Ok(())
    }

    /// A whole message. False if the other end has closed in between two.
    #[inline]
    fn receive(&mut self) -> Outcome<bool> {
        let (mut got, mut empty, mut since) = (0, 0_u32, None);
        while got < self.into.len() {
            match self.stream.read(&mut self.into[got..]) {
                Ok(0) if got == 0 => return Ok(false),
                Ok(0) => return Err("the other end is gone".into()),
                Ok(n) => got += n,
                Err(error) if self.goes_on(&error) => {
                    empty += 1;
                    if empty == EMPTY_READS {
                        empty = 0;
                        if since.get_or_insert_with(Instant::now).elapsed() > self.patience {
                            return Err(format!("nothing came for {:?}", self.patience).into());
                        }
                    }
                }
                Err(error) => return Err(gone(error)),
            }
        }
        Ok(true)
    }

    fn goes_on(&self, error: &std::io::Error) -> bool {
        let blocked = self.wait == Wait::Poll && error.kind() == ErrorKind::WouldBlock;
        blocked || error.kind() == ErrorKind::Interrupted
    }

    /// One byte, to say that all has arrived.
    fn confirm(&mut self) -> Outcome {
        Ok(self.stream.write_all(&[1])?)
    }

    fn confirmed(&mut self) -> Outcome {
        self.stream.read_exact(&mut [0]).map_err(gone)
    }
}

fn gone(error: std::io::Error) -> Problem {
    match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            "the other end is gone".into()
        }
        ErrorKind::WouldBlock => "nothing happened in time (--timeout)".into(),
        _ => error.into(),
    }
}

// The end that serves.

pub(crate) fn serve(plan: &Plan, control: &mut Control) -> Outcome<Done> {
    let listener = TcpListener::bind(SocketAddr::new(control.local_addr()?.ip(), 0))?;
    control.say(&Reply::Ready(Ready {
        address: listener.local_addr()?,
        region: Vec::new(),
        secret: 0,
        provider: PROVIDER.to_owned(),
    }))?;
    let sockets = (0..plan.threads).map(|_| accept(plan, &listener));
    let sockets = sockets.collect::<Outcome<Vec<_>>>()?;
    control.say(&Reply::Connected { idle_bytes: 0.0 })?;
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let serve =
            |socket| scope.spawn(move || serve_one(plan, socket).map_err(|e| e.to_string()));
        let threads: Vec<_> = sockets.into_iter().map(serve).collect();
        threads.into_iter().map(join).collect()
    });
    first_failure(outcomes)?;
    Ok(Done::default())
}

pub(crate) const PROVIDER: &str = "sockets";

fn accept(plan: &Plan, listener: &TcpListener) -> Outcome<Socket> {
    listener.set_nonblocking(true)?;
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => return Socket::new(plan, stream, plan.target),
            Err(error) if error.kind() == ErrorKind::WouldBlock && start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn serve_one(plan: &Plan, mut socket: Socket) -> Outcome {
    if plan.mode == Mode::Latency {
        while socket.receive()? {
            socket.send()?;
        }
        return Ok(());
    }
    socket.set(Wait::Poll)?;
    for _ in 0..plan.warmup {
        socket.receive()?;
        socket.send()?;
    }
    socket.set(Wait::Sleep)?;
    while socket.receive()? {}
    socket.confirm()
}

// The end that measures.

/// Measures on one socket a thread; each thread gets its own from `connect`.
pub(crate) fn measure(plan: &Plan, to: SocketAddr, shared: &Shared) -> Outcome<Tally> {
    let mut socket = Socket::new(plan, TcpStream::connect_timeout(&to, PATIENCE)?, plan.wait)?;
    if plan.mode == Mode::Latency {
        ping_pong(&mut socket, Limit::Iterations(plan.warmup), &Shared::default())?;
        return ping_pong(&mut socket, plan.limit, shared);
    }
    // Back and forth, so that both ends have come to their processors when the stream begins.
    socket.set(Wait::Poll)?;
    ping_pong(&mut socket, Limit::Iterations(plan.warmup), &Shared::default())?;
    socket.set(Wait::Sleep)?;
    stream(&mut socket, plan.limit, shared)
}

fn ping_pong(socket: &mut Socket, limit: Limit, shared: &Shared) -> Outcome<Tally> {
    turns(limit, 1, shared, |pace| {
        socket.send()?;
        if !socket.receive()? {
            return Err("the other end is gone".into());
        }
        pace.ended();
        Ok(())
    })
}

/// Until the other end says that it has all.
fn stream(socket: &mut Socket, limit: Limit, shared: &Shared) -> Outcome<Tally> {
    let (count, time) = bounds(limit);
    let mut tally = Tally::start()?;
    let deadline = time.map(|time| tally.begin + time);
    let mut last = tally.begin;
    while tally.operations < count {
        let interval = REPORT_EVERY.min(count - tally.operations);
        for _ in 0..interval {
            socket.send()?;
        }
        tally.operations += interval;
        let now = Instant::now();
        tally.record_average(now - last, interval);
        shared.done.fetch_add(interval, Ordering::Relaxed);
        last = now;
        if deadline.is_some_and(|deadline| now >= deadline) {
            break;
        }
    }
    socket.stream.shutdown(std::net::Shutdown::Write)?;
    socket.confirmed()?;
    tally.end = Instant::now();
    Ok(tally)
}
