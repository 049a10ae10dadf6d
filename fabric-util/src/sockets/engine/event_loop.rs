//! What the engine is to `crate::progress`: steps of its connections, and events of their sockets.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::Waker;

use super::selector::Selector;
use super::{ConnHost, Engine, EventSource, WAKE};
use crate::completion_ring::Outbox;
use crate::progress::{EventLoop, Mode, Progress};
use crate::sockets::conn::SocketConn;
use crate::sockets::family::SocketFamily;
use crate::stream::Deferral;

impl<F: SocketFamily> EventLoop for Engine<F> {
    const FEW: usize = F::FEW;
    const PATIENCE: u32 = F::PATIENCE;
    const EVENTS_EVERY: u64 = F::EVENTS_EVERY;
    const MAX_DEFERRED: usize = F::MAX_DEFERRED;

    type Source = SocketConn<F>;
    type Selector = Selector;
    type Waker = Waker;

    #[inline]
    fn progress(
        &self,
        conn: &Arc<SocketConn<F>>,
        scratch: &mut [u8],
        mode: Mode,
        outbox: &mut Outbox<'_>,
    ) -> Progress {
        let host = ConnHost { engine: self, conn, polled: mode != Mode::Unattended };
        let mut conn = if mode == Mode::Beside {
            let Some(conn) = conn.stream.try_lock(host) else { return Progress::Locked };
            conn
        } else {
            conn.stream.lock(host)
        };
        let progress = conn.turn(scratch, outbox);
        if progress != Progress::Idle {
            // Under the stepper's lock: one writer at a time.
            self.turns.store(self.turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        }
        progress
    }

    fn defer(&self, conn: &Arc<SocketConn<F>>, what: Deferral) {
        self.lock(conn).link.defer(what);
    }

    #[inline]
    fn arm(&self, conn: &Arc<SocketConn<F>>) -> bool {
        match F::ARMS {
            true => self.lock(conn).arm(),
            // Where the selector cannot watch it, its turns go on, and it tries again behind the next ones.
            false => conn.is_disarmed() && self.watch_again(conn).is_err(),
        }
    }

    fn disarm(&self, conn: &Arc<SocketConn<F>>) {
        // What a transport that is armed itself brings does not come by its socket.
        if !F::ARMS && !conn.is_disarmed() {
            self.watch_no_longer(conn);
        }
    }

    fn poll_events(&self, selector: &mut Selector, block: bool) -> bool {
        let next = if block { self.timers.lock().next() } else { None };
        let until = next.map(|at| at.saturating_duration_since(Instant::now()));
        self.shared.stats.system_calls.add(1);
        let mut any = false;
        for (token, ended) in selector.select(if block { until } else { Some(Duration::ZERO) }) {
            any = true;
            if token == WAKE {
                continue;
            }
            if let Some(member) = self.member(token.0) {
                member.on_ready(self, ended);
            }
        }
        any
    }

    fn is_due(&self) -> bool {
        self.reports.is_due()
    }

    fn wake(waker: &Waker) {
        // It fails only when its descriptor is gone, and then the thread is too.
        let _ = waker.wake();
    }
}
