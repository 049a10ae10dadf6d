//! The strangers. Those that break the protocol write its frames themselves, as any program can.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fabric_async::{Connection, Node, RemoteLease, block_on};
use fabric_util::stream::wire::frame::{Header, Kind};
use fabric_util::stream::wire::handshake::{self, Handshake, HandshakeKind};

use crate::Outcome;
use crate::credentials::Credentials;
use crate::server::Server;

const MIB: usize = 1 << 20;

/// What strangers do.
pub(crate) enum Crowd {
    /// There are none.
    None,
    /// They ask to be let in with leases, and never make the connection for these.
    Unfinished { per_second: u32 },
    /// They connect and say nothing.
    Silent { count: usize },
    /// They are let in, and do nothing with it.
    Unused { count: usize },
    /// They ask for much and read nothing.
    Stalled { count: usize },
    /// They read as much as they can.
    Readers { count: usize },
    /// They cannot prove themselves, and try again and again, so many at a time; what they do is this part of the program.
    Outsiders { part: &'static str, count: usize },
    /// They borrow what they get, on so many connections.
    Greedy { count: usize, len: usize },
}

/// A crowd at work.
pub(crate) struct Started {
    held: Held,
    about: String,
}

enum Held {
    Nothing,
    Streams(Vec<TcpStream>),
    Leases(Vec<(Connection, Vec<RemoteLease>)>),
    Thread(Arc<AtomicBool>, JoinHandle<usize>),
    Process(Child),
    /// And the server, whose processor time was this.
    Counted(Child, u32, Duration),
}

impl Crowd {
    /// Whether there is such a crowd where members prove themselves, or where they do not.
    pub(crate) fn is_possible(&self, members_prove: bool) -> bool {
        match self {
            Crowd::None | Crowd::Unfinished { .. } | Crowd::Silent { .. } => true,
            Crowd::Outsiders { .. } => members_prove,
            _ => !members_prove,
        }
    }

    /// `own`: this program; `by`: what members prove themselves by.
    pub(crate) fn start(
        &self,
        server: &Server,
        own: &Path,
        by: Option<&Credentials>,
    ) -> Outcome<Started> {
        raise_descriptor_limit()?;
        let to = server.addr();
        let (held, about) = match *self {
            Crowd::None => (Held::Nothing, String::new()),
            Crowd::Unfinished { per_second } => {
                let over = Arc::new(AtomicBool::new(false));
                let end = over.clone();
                let thread = std::thread::spawn(move || unfinished(to, per_second, &end));
                // Until places are short, if they become so.
                std::thread::sleep(Duration::from_secs(5));
                (Held::Thread(over, thread), String::new())
            }
            Crowd::Silent { count } => {
                let streams = (0..count).map(|_| TcpStream::connect(to));
                let streams = streams.collect::<Result<Vec<_>, _>>()?;
                (Held::Streams(streams), format!("{count} connected"))
            }
            Crowd::Unused { count } => {
                let streams: Vec<_> = (0..count).filter_map(|_| unused(to)).collect();
                let about = format!("{} of {count} let in", streams.len());
                (Held::Streams(streams), about)
            }
            Crowd::Stalled { count } => process(own, "stalled", to, count)?,
            Crowd::Readers { count } => process(own, "readers", to, count)?,
            Crowd::Outsiders { part, count } => {
                let by = by.map(Credentials::of_strangers).unwrap_or_default();
                let before = processor_time(server.pid())?;
                let mut command = self::part(own, part, to, count);
                let child = command.envs(by).stdin(Stdio::piped()).spawn()?;
                std::thread::sleep(Duration::from_secs(2));
                (Held::Counted(child, server.pid(), before), String::new())
            }
            Crowd::Greedy { count, len } => {
                let leases = greedy(to, count, len)?;
                let bytes: usize = leases
                    .iter()
                    .flat_map(|(_, leases)| leases.iter().map(|lease| lease.len() as usize))
                    .sum();
                (Held::Leases(leases), format!("{} MiB borrowed", bytes / MIB))
            }
        };
        Ok(Started { held, about })
    }
}

/// A part of this program that makes strangers.
fn part(own: &Path, part: &str, to: SocketAddr, count: usize) -> Command {
    let mut command = Command::new(own);
    command.args([part, &to.to_string(), &count.to_string()]).stdout(Stdio::piped());
    command
}

/// Strangers in a process of their own; gives what it says of them.
fn process(own: &Path, part: &str, to: SocketAddr, count: usize) -> Outcome<(Held, String)> {
    let mut child = self::part(own, part, to, count).spawn()?;
    let mut line = String::new();
    let out = child.stdout.take().ok_or("it has no output")?;
    BufReader::new(out).read_line(&mut line)?;
    std::thread::sleep(Duration::from_secs(2));
    Ok((Held::Process(child), line.trim().to_owned()))
}

impl Started {
    /// Ends it; says what it had.
    pub(crate) fn end(self) -> String {
        match self.held {
            Held::Nothing => String::new(),
            Held::Streams(streams) => {
                let open = streams.iter().filter(|stream| is_open(stream)).count();
                format!("{}, {open} at the end", self.about)
            }
            Held::Leases(leases) => {
                drop(leases);
                self.about
            }
            Held::Thread(over, thread) => {
                over.store(true, Ordering::Relaxed);
                thread.join().map_or("panicked".to_owned(), |count| format!("{count} asked"))
            }
            Held::Counted(mut child, server, before) => {
                let after = processor_time(server).unwrap_or_default();
                // It ends where its input does, and says how many there were.
                drop(child.stdin.take());
                let mut said = String::new();
                let out = child.stdout.take().map(|mut out| out.read_to_string(&mut said));
                let _ = (out, child.wait());
                let count: u32 = said.trim().parse().unwrap_or(0);
                let each = after.saturating_sub(before).as_micros() / u128::from(count.max(1));
                format!("{count} asked, {each} us of the server's processor for each")
            }
            Held::Process(mut child) => {
                let kernel = kernel_memory().map_or(0, |bytes| bytes >> 20);
                let _ = child.kill();
                let _ = child.wait();
                format!("{}, {kernel} MiB in the kernel", self.about)
            }
        }
    }
}

/// As many descriptors as the system lets this process have.
pub(crate) fn raise_descriptor_limit() -> Outcome {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// What a process took of the processors (proc_pid_stat(5)).
fn processor_time(pid: u32) -> Outcome<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // Behind the name, in brackets, which may have spaces: from field 3 on; 14 and 15 are clock ticks.
    let (_, fields) = stat.rsplit_once(") ").ok_or("a line of another form")?;
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}

fn is_open(mut stream: &TcpStream) -> bool {
    let waits = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    let looked = stream.set_nonblocking(true).and_then(|()| stream.read(&mut [0; 64]));
    matches!(looked, Err(error) if waits(&error))
}

/// Bytes of TCP buffers of the whole machine (proc_net(5)).
fn kernel_memory() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/net/sockstat").ok()?;
    let tcp = stat.lines().find(|line| line.starts_with("TCP:"))?;
    let pages: u64 = tcp.rsplit(' ').next()?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// A hello of the stream protocol, with the greeting of the asynchronous layer in it.
fn hello(leases: bool, token: u64) -> Vec<u8> {
    let mut greeting = vec![b'f', b'A', 1, u8::from(leases) << 1];
    greeting.extend((1u32 << 16).to_le_bytes());
    greeting.extend(token.to_le_bytes());
    Handshake::new(HandshakeKind::Hello, 8, 0).encode(&greeting)
}

fn unfinished(to: SocketAddr, per_second: u32, over: &AtomicBool) -> usize {
    let (begin, pause) = (Instant::now(), Duration::from_secs(1) / per_second);
    let mut streams = std::collections::VecDeque::new();
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        if let Ok(mut stream) = TcpStream::connect(to)
            && stream.write_all(&hello(true, count as u64)).is_ok()
        {
            streams.push_back(stream);
        }
        count += 1;
        if streams.len() > 4000 {
            streams.pop_front();
        }
        std::thread::sleep(
            (begin + pause * count as u32).saturating_duration_since(Instant::now()),
        );
    }
    count
}

/// A connection that is established, without leases.
fn unused(to: SocketAddr) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(to).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    stream.write_all(&hello(false, 0)).ok()?;
    let mut answer = [0; handshake::LEN];
    stream.read_exact(&mut answer).ok()?;
    let is_accepted = answer[5] == HandshakeKind::Accept as u8;
    let data = u16::from_le_bytes([answer[6], answer[7]]);
    stream.read_exact(&mut vec![0; data.into()]).ok()?;
    // A frame that only acknowledges, as the first one.
    let ack = Header { kind: Kind::Ack, ask: false, len: 0, ack: 0, credit: 0, seq: 0 };
    let mut frame = Vec::new();
    ack.encode(&mut frame);
    stream.write_all(&frame).ok()?;
    is_accepted.then_some(stream)
}

fn greedy(
    to: SocketAddr,
    count: usize,
    len: usize,
) -> Outcome<Vec<(Connection, Vec<RemoteLease>)>> {
    let node = Node::builder().choice(fabric::Choice::only("tcp")).build()?;
    let mut all = Vec::new();
    for _ in 0..count {
        let conn = block_on(node.connect(to))?;
        let (mut leases, mut len) = (Vec::new(), len);
        // Less and less, until nothing is left.
        while len >= 8 {
            match block_on(conn.request_lease(len, Duration::from_secs(600))) {
                Ok(lease) => leases.push(lease),
                Err(_) => len /= 2,
            }
        }
        all.push((conn, leases));
    }
    Ok(all)
}

/// What the process of those does that read nothing: it asks for much, and stops itself.
pub(crate) fn stall(to: SocketAddr, count: usize) -> Outcome {
    let node = Node::builder().choice(fabric::Choice::only("tcp")).build()?;
    let mut reads = Vec::new();
    let mut conns = Vec::new();
    for _ in 0..count {
        let Ok(conn) = block_on(node.connect(to)) else { break };
        let Ok(lease) = block_on(conn.request_lease(MIB, Duration::from_secs(600))) else { break };
        for _ in 0..8 {
            let mut read = Box::pin(conn.read(conn.alloc(MIB)?, lease.at(0)));
            let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
            let _ = read.as_mut().poll(&mut cx);
            reads.push(read);
        }
        conns.push((conn, lease));
    }
    println!("{} connected", conns.len());
    std::io::stdout().flush()?;
    Ok(rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP)?)
}

/// What the process of those does that read as much as they can: on each connection four reads of 1 MiB are under way.
pub(crate) fn read(to: SocketAddr, count: usize) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let node = Node::builder().choice(fabric::Choice::only("tcp")).build()?;
        let mut readers = tokio::task::JoinSet::new();
        for _ in 0..count {
            let conn = Arc::new(node.connect(to).await?);
            let lease = Arc::new(conn.request_lease(MIB, Duration::from_secs(600)).await?);
            for _ in 0..4 {
                let (conn, lease) = (conn.clone(), lease.clone());
                readers.spawn(async move {
                    let mut buffer = conn.alloc(MIB)?;
                    loop {
                        buffer = conn.read(buffer, lease.at(0)).await.map_err(|e| e.error)?;
                    }
                });
            }
        }
        println!("{count} connected");
        std::io::stdout().flush()?;
        let ended: Option<Result<Outcome, _>> = readers.join_next().await;
        ended.unwrap_or(Ok(Ok(())))?
    })
}
