//! The honest client.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use fabric::{EndpointAttr, Hints};
use fabric_async::{Node, block_on};

use crate::Outcome;
use crate::figures::Figures;

/// It gives up then.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// Connects so often, one after the other.
pub(crate) fn connect(
    to: SocketAddr,
    from: IpAddr,
    times: usize,
    hints: Hints,
) -> Outcome<Figures> {
    let mut attr = EndpointAttr::default();
    attr.source = Some(from);
    let node = Node::builder().hints(hints).endpoint(attr).connect_timeout(PATIENCE).build()?;
    let mut figures = Figures::default();
    for _ in 0..times {
        let begin = Instant::now();
        match block_on(once(&node, to)) {
            Ok(()) => figures.times.push(begin.elapsed()),
            Err(error) => figures.failures.push(error.to_string()),
        }
        std::thread::sleep(PAUSE);
    }
    Ok(figures)
}

async fn once(node: &Node, to: SocketAddr) -> Result<(), fabric_async::Error> {
    let conn = node.connect(to).await?;
    let lease = conn.request_lease(64, Duration::from_secs(60)).await?;
    conn.write(node.pool().alloc_from(&[7; 8])?, lease.at(0))
        .await
        .map_err(|failed| failed.error)?;
    Ok(())
}
