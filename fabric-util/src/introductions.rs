//! TCP connections to a tool whose peers have not said yet who they are: bounded in number and in time, and shared by the
//! network that they come from.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::fair_table::FairTable;
use crate::sync::Mutex;

/// The connections that wait for an introduction.
#[derive(Clone)]
pub struct Introductions {
    max: usize,
    state: Arc<Mutex<IntroductionsState>>,
}

#[derive(Default)]
struct IntroductionsState {
    streams: FairTable<TcpStream>,
    numbered: u64,
}

/// One that waits; over when it is dropped.
pub struct Introduction {
    all: Introductions,
    number: u64,
}

impl Introductions {
    /// Room for `max`.
    pub fn new(max: usize) -> Self {
        Introductions { max, state: Arc::default() }
    }

    /// A connection begins to wait. Where there is no room, the oldest of the network that has most is shut down for it.
    ///
    /// # Errors
    /// The system has no descriptor for it.
    pub fn begin(&self, stream: &TcpStream, peer: SocketAddr) -> io::Result<Introduction> {
        let own = stream.try_clone()?;
        let mut state = self.state.lock();
        state.numbered += 1;
        let number = state.numbered;
        let is_full = state.streams.len() >= self.max;
        let displaced = if is_full { state.streams.displace() } else { None };
        state.streams.insert(number, peer.ip(), own);
        drop(state);
        if let Some((_, displaced)) = displaced {
            // Its thread finds that the stream has ended.
            let _ = displaced.shutdown(Shutdown::Both);
        }
        Ok(Introduction { all: self.clone(), number })
    }
}

impl Drop for Introduction {
    fn drop(&mut self) {
        let stream = self.all.state.lock().streams.remove(self.number);
        drop(stream);
    }
}

/// Ends a connection so that the other end hears what was said last: a close with bytes unread is a reset, which overtakes it.
///
/// # Errors
/// As `shutdown(2)` and `recv(2)`; the connection is over all the same.
pub fn leave(stream: &TcpStream) -> io::Result<()> {
    const MAX_UNREAD: u64 = 64 << 10;
    stream.shutdown(Shutdown::Write)?;
    let rest = ReadUntil::new(stream, Duration::from_secs(1));
    io::copy(&mut rest.take(MAX_UNREAD), &mut io::sink()).map(drop)
}

/// Reads from a stream, until a time: however slowly bytes come, it is over then.
pub struct ReadUntil<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl<'a> ReadUntil<'a> {
    /// Reads for at most this time from now. The stream's read time-out is another afterwards.
    pub fn new(stream: &'a TcpStream, time: Duration) -> Self {
        ReadUntil { stream, until: Instant::now() + time }
    }
}

impl Read for ReadUntil<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
            _ => error,
        })
    }
}

#[cfg(all(test, not(loom), not(miri)))] // Miri has no sockets
#[allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests
mod tests {
    use std::io::Write;
    use std::net::{IpAddr, TcpListener};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn a_crowd_loses_its_oldest_for_the_next() {
        let waiting = Introductions::new(3);
        let begin = |stream: &TcpStream, host: u8| {
            let peer = SocketAddr::new(IpAddr::from([192, 0, 2, host]), 7471);
            waiting.begin(stream, peer).unwrap()
        };
        let is_shut = |near: &TcpStream| {
            near.set_nonblocking(true).unwrap();
            matches!((&*near).read(&mut [0]), Ok(0))
        };
        let pairs: Vec<_> = (0..5).map(|_| pair()).collect();
        let mut all: Vec<_> =
            [1, 2, 1, 2, 1].iter().zip(&pairs).map(|(host, (_, it))| begin(it, *host)).collect();
        // What is said over loopback is there a moment later, on a busy machine.
        let until = Instant::now() + Duration::from_secs(30);
        while !pairs[..2].iter().all(|(near, _)| is_shut(near)) {
            assert!(Instant::now() < until, "the oldest are not shut");
            std::thread::yield_now();
        }
        assert!(pairs[2..].iter().all(|(near, _)| !is_shut(near)), "others are");
        drop(all.pop());
        let (near, stream) = pair();
        let _last = begin(&stream, 3);
        assert!(
            pairs[2..].iter().all(|(near, _)| !is_shut(near)) && !is_shut(&near),
            "there was room"
        );
    }

    #[test]
    fn reading_ends_in_time_though_bytes_come() {
        let (mut near, far) = pair();
        let trickle = std::thread::spawn(move || {
            while near.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut text = Vec::new();
        let error = ReadUntil::new(&far, Duration::from_millis(50)).read_to_end(&mut text);
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(text.iter().all(|byte| *byte == b'x'));
        drop(far);
        trickle.join().unwrap();
    }
}
