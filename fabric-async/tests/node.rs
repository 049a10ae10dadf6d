//! What a node can be made with, and that the rest is refused when it is made, by name.

#![cfg(not(miri))] // Miri has no sockets
#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests, which clippy does not take for tests

mod common;

use std::time::Duration;

use common::{address, between, node};
use fabric::{Domain, EndpointAttr, Hints};
use fabric_async::{Error, Node, NodeBuilder, block_on};
use futures_util::future::join;

/// The text of the refusal.
#[track_caller]
fn refused(error: Error) -> String {
    match error {
        Error::Fabric(fabric::Error::InvalidArgument(why)) => why.to_string(),
        other => panic!("{other}"),
    }
}

#[test]
fn a_setting_beyond_the_device_is_refused_when_the_node_is_made() {
    let domain = Domain::open(&Hints::default()).unwrap();
    let limits = &domain.info().limits;
    let make =
        |settings: &dyn Fn(NodeBuilder) -> NodeBuilder| settings(Node::builder()).build_on(&domain);
    let max_message = limits.message.min(u64::from(u32::MAX)) as usize;
    type Count = fn(NodeBuilder, usize) -> NodeBuilder;
    let counts: [(&str, Count, usize); 5] = [
        ("send_depth", NodeBuilder::send_depth, limits.send_depth),
        ("segments", NodeBuilder::segments, limits.send_segments),
        ("receives", |b, count| b.notifications(count).receives(count), limits.recv_depth),
        ("max_message", NodeBuilder::max_message, max_message),
        ("backlog", NodeBuilder::backlog, limits.backlog),
    ];
    for (name, set, max) in counts {
        for count in [1, max] {
            make(&|b| set(b, count)).unwrap();
        }
        for count in [0, max + 1] {
            let text = refused(make(&|b| set(b, count)).unwrap_err());
            assert!(text.contains(name) && text.contains(&count.to_string()), "{text}");
        }
    }

    for room in [0, limits.cq_capacity + 1] {
        let text = refused(make(&|b| b.completions(room)).unwrap_err());
        assert!(text.contains(&format!("completions {room}")), "{text}");
    }

    let (least, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
    let tick = Duration::from_nanos(1);
    for interval in [None, Some(least), Some(hour)] {
        make(&|b| b.liveness(interval)).unwrap();
    }
    for interval in [least - tick, hour + tick, Duration::MAX] {
        let text = refused(make(&|b| b.liveness(Some(interval))).unwrap_err());
        assert!(text.contains(&format!("liveness {interval:?}")), "{text}");
    }
    for limit in [None, Some(least), Some(hour)] {
        make(&|b| b.stall(limit)).unwrap();
    }
    for limit in [least - tick, hour + tick, Duration::MAX] {
        let text = refused(make(&|b| b.stall(Some(limit))).unwrap_err());
        assert!(text.contains(&format!("stall {limit:?}")), "{text}");
    }
    for timeout in [tick, hour] {
        make(&|b| b.connect_timeout(timeout)).unwrap();
    }
    for timeout in [Duration::ZERO, hour + tick, Duration::MAX] {
        let text = refused(make(&|b| b.connect_timeout(timeout)).unwrap_err());
        assert!(text.contains(&format!("connect_timeout {timeout:?}")), "{text}");
    }

    let notifications = make(&|b| b.receives(8).notifications(7)).unwrap_err();
    assert!(refused(notifications).contains("7 notifications"));
    let endpoint = |edit: &dyn Fn(&mut EndpointAttr)| {
        let mut attr = EndpointAttr::default();
        edit(&mut attr);
        make(&|b| b.endpoint(attr.clone()))
    };
    let nowhere = [192, 0, 2, 1].into();
    let text = refused(endpoint(&|attr| attr.source = Some(nowhere)).unwrap_err());
    assert!(text.contains("source 192.0.2.1"), "{text}");
    let text = refused(endpoint(&|attr| attr.inject = limits.inject + 1).unwrap_err());
    assert!(text.contains("inject"), "{text}");
    // What the builder says goes before it.
    endpoint(&|attr| (attr.send_depth, attr.recv_segments) = (0, usize::MAX)).unwrap();
}

#[test]
fn a_queue_without_room_for_a_connection_names_the_setting_that_helps() {
    // Room for one connection, and half of another.
    let small = |room| node(|b| b.send_depth(10).receives(4).completions(room));
    let (to, full) = (small(28), small(21));
    block_on(async {
        let _first = between(&full, &to).await;
        let listener = to.listen(address()).await.unwrap();
        let text = refused(full.connect(listener.local_addr()).await.unwrap_err());
        assert_eq!(
            text,
            "make connection: the node's completion queue has 7 of 21 places left, and a connection takes 14 \
             (send_depth 10, receives 4): NodeBuilder::completions(28) has room for it"
        );

        // The peer that it cannot let in hears so too, and nothing of this node's settings.
        let listener = full.listen(address()).await.unwrap();
        let connect = async { to.connect(listener.local_addr()).await.unwrap_err() };
        let accept = async { listener.request().await.unwrap().accept().await.unwrap_err() };
        let (peers, own) = join(connect, accept).await;
        assert_eq!(refused(own), text);
        let Error::Rejected(words) = peers else { panic!("{peers}") };
        assert_eq!(words, b"no room for another connection");
    });

    // As much as it takes.
    let enough = small(28);
    let _both = [block_on(between(&enough, &to)), block_on(between(&enough, &to))];
}

#[test]
fn incoming_connections_are_a_stream_that_outlives_the_listener() {
    use futures_util::StreamExt;
    let node = node(|builder| builder);
    block_on(async {
        let listener = node.listen(common::address()).await.unwrap();
        let to = listener.local_addr();
        let mut incoming = listener.incoming();
        drop(listener);
        for _ in 0..2 {
            let (there, here) = join(node.connect(to), incoming.next()).await;
            let (there, here) = (there.unwrap(), here.unwrap().unwrap());
            assert_eq!(here.peer_addr(), there.local_addr());
        }
        drop(incoming);
        let refused = node.connect(to).await.unwrap_err();
        assert!(matches!(refused, Error::Fabric(fabric::Error::Refused(_))), "{refused}");
    });
}
