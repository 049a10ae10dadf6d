//! User code at its worst, under random programs of safe code: a logger and event sinks that panic, block, and call back
//! into the library at any moment, handles that they drop, strangers who make the library log.
//!
//! Whatever happens, no byte of memory that a handle has let go of changes (under AddressSanitizer, `scripts/sanitize
//! user-code`, it is not touched at all), and everything ends in time; also while a full standard output blocks the logger.
//! `FABRIC_USER_CODE_SECONDS` prolongs it, and `FABRIC_USER_CODE_SEED` repeats it.
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fabric::provider::{EventSink, Provider};
use fabric::{
    Access, Catalog, Choice, Completion, CompletionQueue, Domain, Endpoint, Event, Hints, Info,
    Listener, Memory, Op,
};
use fabric_core::{Device, DomainAttr};
use fabric_util::logging;
use fastrand::Rng;
use provider_tcp::{TcpDomain, TcpProvider};

static SEED: AtomicU64 = AtomicU64::new(0);
static CALLS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static DICE: RefCell<Rng> = RefCell::new(Rng::with_seed(SEED.fetch_add(1, Ordering::Relaxed)));
}

fn below(bound: u32) -> u32 {
    DICE.with_borrow_mut(|dice| dice.u32(..bound))
}

/// Handles that user code drops wherever it runs, so many at most.
static LEFT_BEHIND: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());
const MAX_LEFT_BEHIND: usize = 64;

fn leave_behind(handle: impl Any + Send) {
    let mut left = LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner);
    left.push(Box::new(handle));
    let oldest = (left.len() > MAX_LEFT_BEHIND).then(|| left.swap_remove(0));
    drop(left);
    drop(oldest);
}

/// What user code may do at its worst.
fn misbehave() {
    CALLS.fetch_add(1, Ordering::Relaxed);
    match below(12) {
        0..3 => std::panic::panic_any(PanicsWhenDropped),
        3..5 => panic!("a user's"),
        5 => std::thread::sleep(Duration::from_millis(below(20).into())),
        6..9 => {
            let handle = LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner).pop();
            drop(handle);
        }
        _ => {}
    }
}

struct PanicsWhenDropped;
impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("once more");
        }
    }
}

struct Logger;
impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }
    fn log(&self, _: &log::Record<'_>) {
        misbehave();
    }
    fn flush(&self) {}
}

/// The provider with a sink in between that misbehaves, before or after it has passed an event on.
struct Hooked(TcpProvider);

struct Sink(Arc<dyn EventSink>);

impl EventSink for Sink {
    fn event(&self, event: Event) {
        if below(8) == 0 {
            misbehave();
        }
        self.0.event(event);
        misbehave();
    }
}

impl Provider for Hooked {
    type Domain = TcpDomain;
    fn name(&self) -> &'static str {
        "tcp"
    }
    fn devices(&self) -> Vec<Device> {
        self.0.devices()
    }
    fn open(
        &self,
        info: &Info,
        attr: &DomainAttr,
        events: Arc<dyn EventSink>,
    ) -> fabric::Result<TcpDomain> {
        self.0.open(info, attr, Arc::new(Sink(events)))
    }
}

fn open() -> Domain {
    let catalog = Catalog::empty().add(Hooked(TcpProvider::new())).unwrap();
    catalog.open_with(&Choice::Auto, &Hints::default()).unwrap()
}

/// One side of a program.
struct Side {
    domain: Domain,
    queue: CompletionQueue,
    listener: Arc<Listener>,
}

impl Side {
    fn new() -> Self {
        let domain = open();
        let queue = domain.completion_queue(4096).unwrap();
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Arc::new(domain.listen(here).unwrap());
        Side { domain, queue, listener }
    }

    fn endpoint(&self) -> Option<Endpoint> {
        self.domain.endpoint().send_depth(16).recv_depth(16).build(&self.queue).ok()
    }

    fn poll(&self) {
        let _ = self.queue.poll(&mut [Completion::default(); 16]);
    }
}

/// What took the place of memory that the library has let go of: it keeps its bytes.
#[derive(Default)]
struct Canaries(VecDeque<Vec<u8>>);

impl Canaries {
    const MANY: usize = 256;

    fn add(&mut self, len: usize) {
        self.0.push_back(vec![0x11; len]);
        if self.0.len() > Self::MANY {
            self.check_first();
        }
    }

    fn check_first(&mut self) {
        let intact = self.0.pop_front().is_none_or(|bytes| bytes.iter().all(|byte| *byte == 0x11));
        assert!(intact, "memory of others was written");
    }
}

impl Drop for Canaries {
    fn drop(&mut self) {
        while !self.0.is_empty() {
            self.check_first();
        }
    }
}

/// A connection between the two, if nothing that the sinks lose keeps it from being made.
fn connect(a: &Side, b: &Side) -> Option<(Endpoint, Endpoint)> {
    const SHORT: Option<Duration> = Some(Duration::from_millis(300));
    let (here, there) = (a.endpoint()?, b.endpoint()?);
    here.connect(b.listener.local_addr(), b"").ok()?;
    let mut request = b.listener.accept(SHORT).ok()?;
    request.accept(&there, b"").ok()?;
    here.wait_connected(SHORT).ok()?;
    Some((here, there))
}

/// A life of a connection: random operations on regions whose handles go at once, and an end at a random moment.
fn live(a: &Side, b: &Side, canaries: &mut Canaries) {
    const LEN: usize = 4096;
    let Some((here, there)) = connect(a, b) else { return };
    let target = b.domain.alloc(LEN, Access::ALL).unwrap();
    for _ in 0..below(60) {
        let memory = Memory::zeroed(LEN).unwrap();
        let region = a.domain.register(&memory, Access::ALL).unwrap();
        let op = match below(4) {
            0 => Op::send(&region),
            1 => Op::write(&region, target.remote().at(0)),
            2 => Op::read(&region, target.remote().at(0)),
            _ => Op::write(&region, region.remote().at(1)), // by a key of the wrong domain, seldom
        };
        if below(40) == 0 || below(4) != 3 {
            let _ = here.post(&if below(2) == 0 { op } else { op.unsignaled() });
        }
        let inbox = b.domain.register(&memory, Access::ALL).unwrap();
        let _ = there.recv(&inbox, 1);
        match below(8) {
            0 => leave_behind(inbox),
            1 => drop(inbox),
            _ => {}
        }
        if below(3) == 0 {
            a.poll();
            b.poll();
        }
        if below(30) == 0 {
            here.disconnect();
        }
        let _ = format!("{here:?} {:?} {:?}", a.queue, a.domain.events());
    }
    let (first, second) = if below(2) == 0 { (here, there) } else { (there, here) };
    drop(first);
    (0..8).for_each(|_| canaries.add(LEN));
    if below(3) == 0 {
        leave_behind(second);
    }
}

/// Strangers, of whom the library logs.
fn strange(addr: SocketAddr) {
    if let Ok(mut stream) = TcpStream::connect(addr) {
        let _ = stream
            .write_all(b"GET / HTTP/1.1\r\n\r\n and what else a stranger may say, at some length");
        let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
        let _ = stream.read(&mut [0; 16]);
    }
}

fn seconds() -> u64 {
    std::env::var("FABRIC_USER_CODE_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(5)
}

/// Random programs on three threads, with `logger`, for [`seconds`]; gives the connections there were.
///
/// Standard output is not used: it may be full.
fn run_programs(logger: &'static dyn log::Log) -> u64 {
    let seed = std::env::var("FABRIC_USER_CODE_SEED").ok().and_then(|s| s.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..u64::MAX >> 8));
    eprintln!("FABRIC_USER_CODE_SEED={seed}");
    SEED.store(seed, Ordering::Relaxed);
    std::panic::set_hook(Box::new(|info| {
        // A user's hook is user code as well. What is thrown on purpose is not printed.
        let text = info.payload().downcast_ref::<&str>();
        let on_purpose = info.payload().is::<PanicsWhenDropped>()
            || text.is_some_and(|text| ["a user's", "once more"].contains(text));
        if !on_purpose {
            eprintln!("{info}\n{}", std::backtrace::Backtrace::force_capture());
        }
    }));
    log::set_logger(logger).unwrap();
    log::set_max_level(log::LevelFilter::Trace);

    let (rounds, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let end = Instant::now() + Duration::from_secs(seconds());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut canaries = Canaries::default();
                    while Instant::now() < end {
                        let (a, b) = (Side::new(), Side::new());
                        for _ in 0..8 {
                            live(&a, &b, &mut canaries);
                            strange(b.listener.local_addr());
                            rounds.fetch_add(1, Ordering::Relaxed);
                        }
                        // All handles of the domains go, here or in user code.
                        leave_behind(b);
                        drop(a);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            // Whatever blocks, something goes on: the library never waits for user code.
            let mut seen = (0, Instant::now());
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(20));
                let now = rounds.load(Ordering::Relaxed);
                if now != seen.0 {
                    seen = (now, Instant::now());
                } else if seen.1.elapsed() > Duration::from_secs(60) {
                    eprintln!("nothing went on for a minute, after {now} connections");
                    std::process::abort();
                }
            }
        });
        let ends: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        over.store(true, Ordering::Relaxed);
        assert!(ends.iter().all(Result::is_ok), "the library let a user's panic through");
    });
    let rest = std::mem::take(&mut *LEFT_BEHIND.lock().unwrap_or_else(PoisonError::into_inner));
    drop(rest);
    let (rounds, calls) = (rounds.into_inner(), CALLS.load(Ordering::Relaxed));
    eprintln!("{rounds} connections, {calls} calls of user code");
    assert!(rounds > 2 && calls > rounds, "{rounds} connections, {calls} calls");
    rounds
}

#[test]
fn nothing_that_user_code_does_breaks_memory_or_stops_the_library() {
    run_programs(&Logger);
}

/// Memory is reused only when nothing touches it any more: where an endpoint goes with receives posted, and the peer goes
/// on sending, what took the place of the receives' memory keeps its bytes.
#[test]
fn what_takes_the_place_of_freed_memory_keeps_its_bytes() {
    const LEN: usize = 1 << 16;
    let (a, b) = (Side::new(), Side::new());
    for _ in 0..20 {
        let Some((here, there)) = connect(&a, &b) else { continue };
        let source = a.domain.alloc(LEN, Access::empty()).unwrap();
        source.write_at(0, &[0xee; LEN]).unwrap();
        for _ in 0..8 {
            let inbox = b.domain.alloc(LEN, Access::LOCAL_WRITE).unwrap();
            there.recv(&inbox, 1).unwrap();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| (0..8).for_each(|i| drop(here.send(&source, i))));
            drop(there);
            let blocks: Vec<_> = (0..16).map(|_| vec![0x11u8; LEN]).collect();
            std::thread::sleep(Duration::from_millis(5));
            assert!(blocks.iter().flatten().all(|byte| *byte == 0x11), "freed memory was written");
        });
        a.poll();
        b.poll();
    }
}

/// The same, and the logger prints to standard output, which has no reader: it blocks for good, and nothing else does.
#[test]
fn a_full_standard_output_stops_nobody() {
    const CHILD: &str = "FABRIC_USER_CODE_STDOUT";
    struct Printer;
    impl log::Log for Printer {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }
        fn log(&self, record: &log::Record<'_>) {
            // More than a pipe holds.
            println!("{} {}", record.args(), "x".repeat(1 << 17));
            misbehave();
        }
        fn flush(&self) {}
    }
    if std::env::var_os(CHILD).is_some() {
        run_programs(&Printer);
        assert!(!logging::flush(Duration::from_millis(10)), "the logger was to block");
        eprintln!("went on");
        std::process::exit(0);
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_full_standard_output_stops_nobody", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Standard error is read, as findings may be long.
    let mut stderr = child.stderr.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut said = String::new();
        stderr.read_to_string(&mut said).map(|_| said)
    });
    let until = Instant::now() + Duration::from_secs(seconds() + 120);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > until {
            child.kill().unwrap();
            panic!("the program hangs: {}", reader.join().unwrap().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let said = reader.join().unwrap().unwrap();
    assert!(status.success() && said.contains("went on"), "{status}: {said}");
    eprint!("with standard output full: {said}");
}
