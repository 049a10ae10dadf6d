//! What most tests start from: two connected ends, and memory that the one may reach at the other.

#![allow(dead_code, unreachable_pub)] // each test program uses its part
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

pub mod drops;

use std::net::SocketAddr;
use std::sync::OnceLock;

use fabric::{Access, Domain, Hints, Region, RemoteRegion};
use fabric_async::{Connection, Listener, Node, NodeBuilder};
use futures_util::future::join;

/// Where tests listen: on an address of the device that nodes take, loopback if that is one.
pub fn address() -> String {
    static ADDRESS: OnceLock<String> = OnceLock::new();
    let of_device = || {
        let own = Domain::open(&Hints::default()).unwrap().info().addresses.clone();
        let ip = own.iter().find(|ip| ip.is_loopback()).or(own.first()).unwrap();
        SocketAddr::new(*ip, 0).to_string()
    };
    ADDRESS.get_or_init(of_device).clone()
}

/// Two ends of a connection: the one that connected first.
pub async fn pair(node: &Node) -> (Connection, Connection) {
    between(node, node).await
}

pub async fn between(from: &Node, to: &Node) -> (Connection, Connection) {
    let listener: Listener = to.listen(address()).await.unwrap();
    // Each fails for itself: what one end waits for may never come if the other one could not even begin.
    let connect = async { from.connect(listener.local_addr()).await.unwrap() };
    let accept = async { listener.accept().await.unwrap() };
    join(connect, accept).await
}

pub fn node(settings: impl FnOnce(NodeBuilder) -> NodeBuilder) -> Node {
    settings(Node::builder()).build().unwrap()
}

/// Memory of the node that any peer reaches who knows the descriptor.
pub fn exposed(node: &Node, len: usize) -> (Region, RemoteRegion) {
    let region = node.domain().alloc(len, Access::ALL).unwrap();
    let remote = region.remote();
    (region, remote)
}

/// Waits, without a bound that a slow machine could miss, until something holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !holds() {
        assert!(std::time::Instant::now() < deadline, "not within 30 s: {what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
