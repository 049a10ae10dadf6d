//! Signals, as any program may have them: system calls that they interrupt are repeated, or their loss is made good.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fabric::Status;

use crate::rig::{SOON, Side, join, listen, open_region, take};

const ROUNDS: u64 = 10;
const LEN: usize = 1 << 20;

static ALARMS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    ALARMS.fetch_add(1, Ordering::Relaxed);
}

/// A signal every so many microseconds, to whichever thread, without `SA_RESTART`: calls return `EINTR`. 0: no more.
fn alarms(every: libc::suseconds_t) {
    // SAFETY: zero is a value of these plain structures; the handler does nothing but add to an atomic, which
    // signal-safety(7) allows.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as extern "C" fn(libc::c_int) as libc::sighandler_t;
        assert_eq!(libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut()), 0);
        let time = libc::timeval { tv_sec: 0, tv_usec: every };
        let timer = libc::itimerval { it_interval: time, it_value: time };
        assert_eq!(libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()), 0);
    }
}

/// Domains, registrations, connections, transfers, sleeps and ends, all under signals.
pub(crate) fn disturb_nothing() {
    let liveness = Duration::from_secs(10);
    alarms(500);
    for round in 0..ROUNDS {
        let (a, b) = (Side::new(liveness), Side::new(liveness));
        let (near, far) = (open_region(&a.domain, LEN), open_region(&b.domain, LEN));
        join(&listen(&b.domain), &a.endpoint, &b.endpoint);
        near.put(0, &round).unwrap();
        b.endpoint.recv(far.slice(..8), round).unwrap();
        a.endpoint.write(near.slice(8..), far.remote().at(8), round).unwrap();
        a.endpoint.read(near.slice(8..), far.remote().at(8), round).unwrap();
        a.endpoint.send(near.slice(..8), round).unwrap();
        for done in take(&a.queue, 3).iter().chain(&take(&b.queue, 1)) {
            assert_eq!((done.status, done.context), (Status::Ok, round), "{done:?}");
        }
        assert_eq!(far.get::<u64>(0).unwrap(), round);
        a.endpoint.disconnect();
        b.endpoint.wait_disconnected(SOON).unwrap();
    }
    alarms(0);
    let alarms = ALARMS.load(Ordering::Relaxed);
    assert!(alarms > 100, "{alarms} signals are no disturbance");
}
