//! Log lines that peers can cause, at a bounded rate: an attack is logged, and does not fill a disk.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::fair_table::Network;
use crate::sync::Mutex;

/// Lines of one period, how many of them one network may cause, and how long a period is.
const LINES: usize = 10;
const LINES_OF_ONE: usize = 5;
const PERIOD: Duration = Duration::from_secs(10);

/// What a line that peers can cause is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEvent {
    /// A connection that came in and was not let in.
    Admission,
    /// A breach of the protocol.
    Protocol,
    /// A peer that is lost.
    Liveness,
    /// Descriptors, memory or something else of this process that ran out.
    Resources,
}

/// The lines that peers can cause, about each kind of event at its own rate: strangers at a listener do not hide the loss of
/// a host.
///
/// ```
/// # use fabric_util::log_limiter::{PeerEvent, PeerLog};
/// # let (log, peer) = (PeerLog::default(), "192.0.2.1:7471".parse().unwrap());
/// if let Some(suppressed) = log.check(PeerEvent::Protocol, Some(peer)) {
///     println!("{peer}: the connection is closed{suppressed}");
/// }
/// ```
#[derive(Debug, Default)]
pub struct PeerLog([LogLimiter; 4]);

impl PeerLog {
    /// Leave to log a line now, about an event that this peer caused, if the peer is known.
    pub fn check(&self, event: PeerEvent, peer: Option<SocketAddr>) -> Option<Suppressed> {
        self.check_at(Instant::now(), event, peer)
    }

    fn check_at(
        &self,
        now: Instant,
        event: PeerEvent,
        peer: Option<SocketAddr>,
    ) -> Option<Suppressed> {
        let from = peer.map(|peer| Network::from(peer.ip()));
        self.0[event as usize].check_at(now, from)
    }
}

/// Says which lines may be logged: ten in ten seconds, five of them from one network, and of the others how many there
/// were.
#[derive(Debug, Default)]
struct LogLimiter(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    begun: Option<Instant>,
    /// Where each line of this period came from.
    lines: Vec<Option<Network>>,
    suppressed: u64,
}

/// How many lines were not logged before this one; empty text if none was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suppressed(u64);

impl LogLimiter {
    fn check_at(&self, now: Instant, from: Option<Network>) -> Option<Suppressed> {
        let mut window = self.0.lock();
        if window.begun.is_none_or(|begun| now.saturating_duration_since(begun) >= PERIOD) {
            window.begun = Some(now);
            window.lines.clear();
        }
        let of_one = window.lines.iter().filter(|line| from.is_some() && **line == from).count();
        if window.lines.len() == LINES || of_one == LINES_OF_ONE {
            window.suppressed += 1;
            return None;
        }
        window.lines.push(from);
        Some(Suppressed(std::mem::take(&mut window.suppressed)))
    }
}

impl fmt::Display for Suppressed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            count => write!(f, " ({count} such lines before this one were left out)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn so_many_lines_a_period_and_the_rest_is_counted() {
        let (limiter, start) = (LogLimiter::default(), Instant::now());
        let admitted =
            |at| (0..100).filter_map(|_| limiter.check_at(start + at, None)).collect::<Vec<_>>();
        assert_eq!(admitted(Duration::ZERO), [Suppressed(0); LINES]);
        assert_eq!(admitted(PERIOD / 2), []);
        let later = admitted(PERIOD);
        assert_eq!((later.len(), later[0], later[1]), (LINES, Suppressed(190), Suppressed(0)));
        assert_eq!(later[0].to_string(), " (190 such lines before this one were left out)");
        assert_eq!(later[1].to_string(), "");
    }

    #[test]
    fn one_network_has_half_of_the_lines_and_one_kind_of_event_its_own() {
        let (log, now) = (PeerLog::default(), Instant::now());
        let admitted = |event, host| {
            let peer = (Ipv4Addr::new(192, 0, 2, host), 7471).into();
            (0..50).filter(|_| log.check_at(now, event, Some(peer)).is_some()).count()
        };
        assert_eq!(admitted(PeerEvent::Admission, 1), LINES_OF_ONE);
        assert_eq!(admitted(PeerEvent::Admission, 2), LINES - LINES_OF_ONE);
        assert_eq!(admitted(PeerEvent::Admission, 3), 0);
        assert_eq!(admitted(PeerEvent::Liveness, 1), LINES_OF_ONE);
        assert!(log.check_at(now, PeerEvent::Liveness, None).is_some());
    }
}
