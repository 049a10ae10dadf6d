//! Datagrams of every length, from every payload; and what is refused.

use fabric::{Capabilities, Hints};
use fabric_async::datagram::{DatagramAttr, DatagramEndpoint};
use fabric_async::{Buffer, Error};
use futures_util::StreamExt;

use crate::rig::{everywhere, node_with, pair, pair_with, providers};

#[test]
fn datagrams_of_every_length_arrive_whole() {
    everywhere(|provider| async move {
        let it = pair(provider).await;
        for (number, len) in (0..).zip([0, 1, 100, 1000, it.a.max_len()]) {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8 ^ (at >> 8) as u8).collect();
            let (back, came) = it.deliver(number, || it.buffer(&bytes)).await;
            assert_eq!((&*back, &*came), (&*bytes, &*bytes));
            assert_eq!((came.source, came.immediate), (Some(it.a.address()), Some(number)));
        }
        // One that came can be answered, and without immediate data it has none.
        let (_, question) = it.deliver(9, || it.buffer(b"question")).await;
        let to_a = it.b.resolve(&question.source.unwrap()).await.unwrap();
        assert_eq!(to_a.address(), it.a.address());
        let mut answers = it.a.datagrams();
        it.b.inject_to(&to_a, b"answer").await.unwrap();
        let answer = answers.next().await.unwrap().unwrap();
        assert_eq!((&*answer, answer.immediate), (&b"answer"[..], None));
        assert_eq!(*Buffer::from(answer), *b"answer");
    });
}

#[test]
fn every_payload_comes_back() {
    everywhere(|provider| async move {
        let it = pair(provider).await;
        let (whole, came) = it.deliver(1, || it.buffer(b"a part of it").slice(2..6)).await;
        assert_eq!((&*whole, &*came), (&b"a part of it"[..], &b"part"[..]));
        let shared = it.buffer(b"shared").share();
        let (back, came) = it.deliver(2, || shared.clone()).await;
        assert_eq!((&*back, &*came), (&b"shared"[..], &b"shared"[..]));
        let four = || (b'1'..=b'4').map(|digit| it.buffer(&[digit])).collect::<Vec<_>>();
        let (back, came) = it.deliver(3, four).await;
        assert_eq!((back.len(), &*came), (4, &b"1234"[..]));
        let (back, came) = it.deliver(4, Buffer::empty).await;
        assert!(back.is_empty() && came.is_empty());
    });
}

#[test]
fn what_is_refused_brings_its_buffer_back() {
    everywhere(|provider| async move {
        let it = pair_with(provider, |node| node, |attr| attr.inject = 64).await;
        let max = it.a.max_len();
        let failed = it.a.send_to(&it.to_b, it.buffer(&vec![7; max + 1])).await.unwrap_err();
        let (text, most) = (failed.to_string(), max.to_string());
        assert!(text.contains(&(max + 1).to_string()) && text.contains(&most), "{text}");
        assert_eq!(*failed.buffer, vec![7; max + 1]);
        let five = (0..5).map(|_| it.buffer(b"x")).collect::<Vec<_>>();
        let failed = it.a.send_to(&it.to_b, five).await.unwrap_err();
        assert_eq!(failed.buffer.len(), 5);
        // The handle is of another endpoint.
        let failed = it.b.send_to(&it.to_b, it.buffer(b"x")).await.unwrap_err();
        assert!(
            matches!(failed.error, Error::Fabric(fabric::Error::InvalidArgument(_))),
            "{failed}"
        );
        let too_much = it.a.inject_to(&it.to_b, &[0; 65]).await.unwrap_err();
        assert!(too_much.to_string().contains("65"), "{too_much}");
        drop(failed);
        // Nothing of it went anywhere, and all goes on.
        assert_eq!((it.a.counters().posted_sends, it.b.counters().posted_sends), (0, 0));
        it.deliver(1, || it.buffer(b"x")).await;
    });
}

#[test]
fn a_device_without_datagrams_says_so() {
    // One that is to be tested is the only one there is.
    if providers().len() > 1 {
        let node = node_with("shm", |node| node);
        let refused = DatagramEndpoint::new(&node, &DatagramAttr::default()).unwrap_err();
        assert!(matches!(refused, Error::Fabric(fabric::Error::Unsupported(_))), "{refused}");
    }
    // Hints find one that has them.
    let hints = Hints { capabilities: Capabilities::DATAGRAMS, ..Hints::default() };
    let node = fabric_async::Node::builder().hints(hints).build().unwrap();
    let mut attr = DatagramAttr::default();
    attr.recv_depth = usize::MAX;
    let refused = DatagramEndpoint::new(&node, &attr).unwrap_err();
    assert!(refused.to_string().contains("recv_depth"), "{refused}");
    drop(DatagramEndpoint::new(&node, &DatagramAttr::default()).unwrap());
}
