//! How both ends of a connection to the server learn that the other one's host is gone.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// A silent connection is asked so often.
const INTERVAL: Duration = Duration::from_secs(5);
/// After so many questions without an answer it ends.
const QUESTIONS: u32 = 4;

/// The longest time until a connection to a host that is gone ends.
pub(crate) const NOTICED_WITHIN: Duration = INTERVAL.saturating_mul(QUESTIONS + 1);

/// A connection whose other end vanishes ends within [`NOTICED_WITHIN`]; and small messages do not wait for others.
pub(crate) fn set(stream: &impl AsFd) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let keepalive =
        TcpKeepalive::new().with_time(INTERVAL).with_interval(INTERVAL).with_retries(QUESTIONS);
    socket.set_tcp_keepalive(&keepalive)?;
    // Keepalives do not count while something is unacknowledged.
    socket.set_tcp_user_timeout(Some(NOTICED_WITHIN))?;
    socket.set_tcp_nodelay(true)
}
