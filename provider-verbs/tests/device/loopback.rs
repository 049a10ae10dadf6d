//! Addresses of this host that lead to no device.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fabric::Error;

use crate::rig::{Side, join, listen};

const LIVENESS: Duration = Duration::from_secs(10);

/// They are refused at once, and disturb no program: with one packet to `::1`, Soft-RoCE loses for minutes the queue pair by
/// which a whole host makes its connections.
pub(crate) fn is_refused_at_once() {
    let side = Side::new(LIVENESS);
    for to in
        ["127.0.0.1:9", "127.1.2.3:9", "[::1]:9", "[::ffff:127.0.0.1]:9", "0.0.0.0:9", "[::]:9"]
    {
        let to: SocketAddr = to.parse().unwrap();
        let start = Instant::now();
        let refused = side.endpoint.connect(to, &[]);
        // No device, of any provider, has a peer at an unspecified address.
        let fits = match &refused {
            Err(Error::InvalidArgument(_)) => to.ip().is_unspecified(),
            Err(Error::Unreachable(_)) => !to.ip().is_unspecified(),
            _ => false,
        };
        assert!(fits, "{to}: {refused:?}");
        println!("{to}: {}", refused.unwrap_err());
        assert!(start.elapsed() < Duration::from_secs(10));
        // Connections can still be made.
        let (from, to) = (Side::new(LIVENESS), Side::new(LIVENESS));
        join(&listen(&to.domain), &from.endpoint, &to.endpoint);
    }
    let to = Side::new(LIVENESS);
    join(&listen(&to.domain), &side.endpoint, &to.endpoint);
}
