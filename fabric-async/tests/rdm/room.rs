//! Sends and receives that wait for room.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use fabric_rdm::RdmAttr;
use fabric_rdm::matching::Pattern;
use futures_util::future::{join, join_all};

use crate::rig::{everywhere, pair_with};

const ANY: Pattern = Pattern::untagged();

/// Polls a future once.
async fn is_ready<F: Future>(mut future: Pin<&mut F>) -> bool {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

/// The window takes four; the others wait until receives take them: in their order, but for those that a busy machine keeps from
/// being polled for too long.
#[test]
fn sends_wait_for_places_of_the_peer() {
    everywhere(|provider| async move {
        let mut attr = RdmAttr::default();
        attr.window.places.window = 4;
        let it = pair_with(provider, &attr);
        let all = 200_u32;
        let sends =
            join_all((0..all).map(|number| it.a.send(it.to_b, it.buffer(&number.to_ne_bytes()))));
        let receive = async {
            let mut numbers = Vec::new();
            for number in 0..all {
                if number % 50 == 0 {
                    std::thread::sleep(Duration::from_millis(3));
                }
                let (buffer, _) = it.b.recv(ANY, it.inbox(4)).await.unwrap();
                numbers.push(u32::from_ne_bytes(buffer[..4].try_into().unwrap()));
            }
            numbers.sort_unstable();
            assert_eq!(numbers, (0..all).collect::<Vec<_>>());
        };
        let (sends, ()) = join(sends, receive).await;
        assert!(sends.into_iter().all(|sent| sent.is_ok()));
        it.gives_all_back().await;
    });
}

/// One that waits does not hold up those to another peer.
#[test]
fn a_peer_without_places_holds_up_nobody_else() {
    everywhere(|provider| async move {
        let mut attr = RdmAttr::default();
        attr.window.places.window = 2;
        let it = pair_with(provider, &attr);
        let other = fabric_async::rdm::Endpoint::new(it.a.node(), &attr).unwrap();
        let to_other = it.a.insert(other.address()).unwrap();
        other.insert(it.a.address()).unwrap();
        let stuck = join_all((0..6).map(|_| it.a.send(it.to_b, it.buffer(b"x"))));
        let going = async {
            for _ in 0..30 {
                let send = it.a.send(to_other, it.buffer(b"go"));
                let (sent, received) = join(send, other.recv(ANY, it.inbox(8))).await;
                sent.unwrap();
                received.unwrap();
            }
            for _ in 0..6 {
                drop(it.b.recv(ANY, it.inbox(8)).await.unwrap());
            }
        };
        let (stuck, ()) = join(stuck, going).await;
        assert!(stuck.iter().all(|sent| sent.is_ok()));
    });
}

#[test]
fn the_depths_are_waited_for() {
    everywhere(|provider| async move {
        let mut attr = RdmAttr::default();
        (attr.send_depth, attr.recv_depth) = (4, 3);
        let it = pair_with(provider, &attr);
        let sends = join_all((0..50).map(|_| it.a.send(it.to_b, it.buffer(b"deep")).matched()));
        let receives = join_all((0..50).map(|_| it.b.recv(ANY, it.inbox(4))));
        let (sends, receives) = join(sends, receives).await;
        assert!(sends.iter().all(|sent| sent.is_ok()));
        assert!(receives.iter().all(|received| received.is_ok()));
        drop((sends, receives));
        it.gives_all_back().await;
    });
}

/// A future that waits for room, and is dropped, lets the next one pass; so does one that is held and not polled.
#[test]
fn one_that_gives_up_lets_others_pass() {
    everywhere(|provider| async move {
        let mut attr = RdmAttr::default();
        (attr.window.places.window, attr.window.places.reserved) = (1, 1);
        let it = pair_with(provider, &attr);
        drop(it.a.send(it.to_b, it.buffer(b"1")).await.unwrap());
        let mut waiting: Vec<_> =
            (0..3).map(|_| Box::pin(it.a.send(it.to_b, it.buffer(b"2")))).collect();
        for one in &mut waiting {
            // They have their places in line.
            assert!(!is_ready(one.as_mut()).await);
        }
        drop(waiting.remove(1));
        let receive = async {
            for text in [b"1", b"3"] {
                loop {
                    let (buffer, _) = it.b.recv(ANY, it.inbox(4)).await.unwrap();
                    if buffer[..1] == *text {
                        break;
                    }
                }
            }
        };
        // The first and the third are held, and not polled.
        let (sent, ()) = join(it.a.send(it.to_b, it.buffer(b"3")), receive).await;
        drop(sent.unwrap());
    });
}
