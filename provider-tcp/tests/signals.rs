//! Signals, as any program may have them: interrupted system calls are repeated, and a peer that is gone raises none.

#![allow(clippy::unwrap_used)] // the helpers are of tests too

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fabric::{Access, Catalog, Choice, CompletionQueue, Domain, Endpoint, Hints, Region};
use provider_tcp::TcpProvider;

const SOON: Option<Duration> = Some(Duration::from_secs(30));

struct Side {
    endpoint: Endpoint,
    queue: CompletionQueue,
    region: Region,
    _domain: Domain,
}

fn pair() -> (Side, Side) {
    let side = || {
        let catalog = Catalog::empty().add(TcpProvider::new()).unwrap();
        let domain = catalog.open_with(&Choice::Auto, &Hints::default()).unwrap();
        let queue = domain.completion_queue(1024).unwrap();
        let endpoint = domain.endpoint().build(&queue).unwrap();
        let region = domain.alloc(8 << 20, Access::ALL).unwrap();
        Side { endpoint, queue, region, _domain: domain }
    };
    let (a, b) = (side(), side());
    let listener = b._domain.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    a.endpoint.connect(listener.local_addr(), &[]).unwrap();
    listener.accept(SOON).unwrap().accept(&b.endpoint, &[]).unwrap();
    a.endpoint.wait_connected(SOON).unwrap();
    b.endpoint.wait_connected(SOON).unwrap();
    (a, b)
}

static ALARMS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    ALARMS.fetch_add(1, Ordering::Relaxed);
}

/// A signal every 200 microseconds, to whichever thread, without `SA_RESTART`: calls return `EINTR`.
fn alarms(on: bool) {
    // SAFETY: zero is a value of these plain structures; the handler does nothing but add to an atomic, which
    // signal-safety(7) allows.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as extern "C" fn(libc::c_int) as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGALRM, &action, ptr::null_mut()), 0);
        let time = libc::timeval { tv_sec: 0, tv_usec: if on { 200 } else { 0 } };
        let timer = libc::itimerval { it_interval: time, it_value: time };
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &timer, ptr::null_mut()), 0);
    }
}

/// One test, because signals are the process's.
#[test]
fn signals_disturb_nothing() {
    // As a program that does not ignore it, which Rust's runtime does before `main`.
    // SAFETY: the default disposition has no handler that could be unsafe.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let (a, b) = pair();
    let remote = b.region.remote();

    alarms(true);
    for round in 0..50u64 {
        a.region.put(0, &round).unwrap();
        b.endpoint.recv(b.region.slice(4096..8192), round).unwrap();
        a.endpoint.write(a.region.slice(..4 << 20), remote.at(4 << 20), round).unwrap();
        a.endpoint.read(a.region.slice(4 << 20..), remote.at(4 << 20), round).unwrap();
        a.endpoint.send(a.region.slice(..4096), round).unwrap();
        for _ in 0..3 {
            let done = a.queue.wait_one(SOON).unwrap();
            assert!(done.is_ok() && done.context == round, "{done:?}");
        }
        assert!(b.queue.wait_one(SOON).unwrap().is_ok());
        assert_eq!(
            (b.region.get::<u64>(4096).unwrap(), a.region.get::<u64>(4 << 20).unwrap()),
            (round, round)
        );
    }
    alarms(false);
    let alarms = ALARMS.load(Ordering::Relaxed);
    assert!(alarms > 50, "{alarms} signals are no disturbance");

    // The peer goes away in the middle of what is written to it: no SIGPIPE, which would end this process.
    for round in 0..20 {
        let (a, b) = pair();
        let remote = b.region.remote();
        for _ in 0..4 {
            a.endpoint.write(a.region.slice(..), remote.at(0), round).unwrap();
        }
        drop(b);
        for _ in 0..4 {
            let _ = a.queue.wait_one(SOON).unwrap();
        }
        a.endpoint.wait_disconnected(SOON).unwrap();
        assert!(a.endpoint.inject(b"are you there?", 1).is_err());
    }
}
