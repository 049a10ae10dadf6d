//! Messages, of every size and kind, and one-sided operations.

use fabric::{Access, AtomicOp};
use fabric_async::Error;
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Kind, RdmAttr};
use futures_util::StreamExt;
use futures_util::future::{join, join_all};

use crate::rig::{eventually, everywhere, pair, pair_with};

const ANY: Pattern = Pattern::untagged();

/// Of one piece, of several, of a rendezvous: with the receive first, and with the message first.
#[test]
fn messages_of_every_size_arrive() {
    everywhere(|provider| async move {
        let it = pair(provider);
        for len in [0, 1, 100, 8000, 20_000, 200_000, 3_000_000] {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8 ^ (at >> 8) as u8).collect();
            for first in [true, false] {
                let send = it.a.send_tagged(it.to_b, len as u64, it.buffer(&bytes)).immediate(9);
                let recv = it.b.recv(Pattern::tagged(len as u64), it.inbox(len + 1));
                let (sent, received) = if first {
                    let (received, sent) = join(recv, send).await;
                    (sent, received)
                } else {
                    join(send, recv).await
                };
                let (buffer, info) = received.unwrap();
                assert_eq!(*sent.unwrap(), *bytes);
                assert_eq!(buffer[..info.len], *bytes);
                assert_eq!(
                    (info.peer, info.tag, info.immediate),
                    (it.to_a, Some(len as u64), Some(9))
                );
            }
        }
        it.gives_all_back().await;
    });
}

/// Its sender says what it is, and the target reads it from where it is.
#[test]
fn a_long_message_is_not_sent_in_pieces() {
    everywhere(|provider| async move {
        const LEN: usize = 1 << 20;
        let it = pair(provider);
        let posted = || it.a.node().domain().counters().posted_sends;
        join(it.a.send(it.to_b, it.buffer(b"first")), it.b.recv(ANY, it.inbox(8))).await.0.unwrap();
        let before = posted();
        let (sent, received) =
            join(it.a.send(it.to_b, it.buffer(&[7; LEN])), it.b.recv(ANY, it.inbox(LEN))).await;
        sent.unwrap();
        assert!(received.unwrap().0.iter().all(|byte| *byte == 7));
        // Its head, the read by the other endpoint of the node, and confirmations.
        let posts = posted() - before;
        assert!(posts < 16, "{posts} posts");
    });
}

#[test]
fn a_message_of_unknown_size_is_claimed() {
    everywhere(|provider| async move {
        let it = pair(provider);
        for len in [0, 5, 8000, 20_000, 400_000] {
            let bytes = vec![len as u8; len];
            // A long one stays at its sender until it is received.
            let claim = async {
                let message = it.b.claim(Pattern::tagged(3)).await.unwrap();
                let (peer, tag) = (message.peer(), message.tag());
                assert_eq!((message.len(), peer, tag), (len, it.to_a, Some(3)));
                message.receive_alloc().await.unwrap()
            };
            let send = it.a.send_tagged(it.to_b, 3, it.buffer(&bytes));
            let (sent, received) = join(send, claim).await;
            assert_eq!(*received.0, *bytes);
            drop(sent.unwrap());
            let (sent, received) = join(
                it.a.send_tagged(it.to_b, 3, it.buffer(&bytes)).matched(),
                it.b.recv_alloc(Pattern::tagged(3)),
            )
            .await;
            assert_eq!(*received.unwrap().0, *bytes);
            drop(sent.unwrap());
        }
        // One that is dropped is gone.
        drop(it.a.send(it.to_b, it.buffer(b"first")).await.unwrap());
        drop(it.a.send(it.to_b, it.buffer(b"second")).await.unwrap());
        drop(it.b.claim(ANY).await.unwrap());
        assert_eq!(*it.b.recv_alloc(ANY).await.unwrap().0, *b"second");
        it.gives_all_back().await;
    });
}

#[test]
fn what_is_too_long_is_an_error_with_what_fits() {
    everywhere(|provider| async move {
        let it = pair(provider);
        let (sent, received) =
            join(it.a.send(it.to_b, it.buffer(b"longer")), it.b.recv(ANY, it.inbox(4))).await;
        drop(sent.unwrap());
        let failed = received.unwrap_err();
        assert!(matches!(failed.error, Error::Truncated { len: 6, room: 4 }), "{failed}");
        assert_eq!(*failed.buffer, *b"long");
        let failed = it.b.recv(ANY, fabric_async::Buffer::empty()).await.unwrap_err();
        assert!(failed.to_string().contains("no memory to receive into"), "{failed}");
        // An empty message is none without memory at its sender.
        let empty = it.a.send(it.to_b, fabric_async::Buffer::empty());
        let (sent, received) = join(empty, it.b.recv(ANY, it.inbox(4))).await;
        drop(sent.unwrap());
        assert_eq!(received.unwrap().1.len, 0);
    });
}

/// Parts of buffers, shared ones, and buffers of an endpoint to itself.
#[test]
fn every_payload_comes_back() {
    everywhere(|provider| async move {
        let it = pair(provider);
        let shared = it.buffer(b"shared").share();
        for _ in 0..2 {
            let (sent, received) =
                join(it.a.send(it.to_b, shared.clone()), it.b.recv(ANY, it.inbox(16).slice(4..12)))
                    .await;
            drop(sent.unwrap());
            let (buffer, info) = received.unwrap();
            assert_eq!((&buffer[4..4 + info.len], buffer.len()), (&b"shared"[..], 16));
        }
        let me = it.a.insert(it.a.address()).unwrap();
        let (sent, received) =
            join(it.a.send(me, it.buffer(b"to me")).matched(), it.a.recv(ANY, it.inbox(9))).await;
        assert_eq!((sent.unwrap().len(), received.unwrap().1.peer), (5, me));
        drop(shared);
        it.gives_all_back().await;
    });
}

#[test]
fn many_messages_come_into_one_buffer() {
    everywhere(|provider| async move {
        let it = pair(provider);
        let mut many = it.b.recv_many(ANY, it.inbox(1000), 100);
        many.posted().await;
        let all = 93; // of 10 bytes: with those 1000 bytes have less than 100 left
        let send = async {
            for number in 0..all {
                it.a.inject(it.to_b, &[number; 10]).await.unwrap();
            }
        };
        let receive = async {
            let mut numbers = Vec::new();
            while let Some(message) = many.next().await {
                let message = message.unwrap();
                let mut bytes = [0; 10];
                many.copy(&message, &mut bytes).unwrap();
                assert_eq!(bytes, [bytes[0]; 10]);
                assert_eq!((message.range().start, message.peer), (numbers.len() * 10, it.to_a));
                numbers.push(bytes[0]);
            }
            numbers
        };
        let (_, numbers) = join(send, receive).await;
        assert_eq!(numbers, (0..91).collect::<Vec<_>>(), "less than 100 are free after 91");
        assert!(many.next().await.is_none());
        let buffer = many.release().await.unwrap();
        assert_eq!((buffer[0], buffer[909]), (0, 90));
        // The others are there for the next one, which is stopped, and then says that it is over.
        let mut many = it.b.recv_many(ANY, buffer, 100);
        for number in 91..all {
            let message = many.next().await.unwrap().unwrap();
            assert_eq!(message.len, 10);
            let mut first = [0];
            many.copy(&message, &mut first).unwrap();
            assert_eq!(first[0], number);
        }
        many.stop();
        assert!(many.next().await.is_none());
        drop(many);
        it.gives_all_back().await;
    });
}

/// What a stream that is not read keeps is bounded, by messages without a byte too: further ones wait as without a receive.
#[test]
fn empty_messages_do_not_fill_a_stream_without_end() {
    everywhere(|provider| async move {
        let it = pair(provider);
        let mut many = it.b.recv_many(ANY, it.inbox(800), 100);
        many.posted().await;
        let (most, more) = (100, 50); // 800 bytes are 100 words; 64 of a peer wait without a receive
        let send = async {
            for number in 0..most + more {
                it.a.inject(it.to_b, b"").immediate(number).await.unwrap();
            }
            it.a.inject(it.to_b, b"the last one").tag(9).await.unwrap();
        };
        // What arrives is taken meanwhile.
        let (_, last) = join(send, it.b.recv(Pattern::tagged(9), it.inbox(12))).await;
        last.unwrap();
        let taken = many.by_ref().take(most as usize + 1);
        let taken: Vec<_> =
            taken.map(|message| message.unwrap().immediate.unwrap()).collect().await;
        let mut many = it.b.recv_many(ANY, many.release().await.unwrap(), 100);
        assert_eq!(taken, (0..most).collect::<Vec<_>>());
        for number in most..most + more {
            assert_eq!(many.next().await.unwrap().unwrap().immediate, Some(number));
        }
        drop(many);
        eventually("all is given back", || it.is_clean()).await;
    });
}

#[test]
fn one_sided_operations_reach_memory_of_peers() {
    everywhere(|provider| async move {
        let it = pair(provider);
        let region = it.b.node().domain().alloc(4096, Access::ALL).unwrap();
        let at = region.remote();
        let parts = vec![it.buffer(b"two "), it.buffer(b"parts")];
        let parts = it.a.write(it.to_b, parts, at.at(64)).await.unwrap();
        assert_eq!(parts.len(), 2);
        let read = it.a.read(it.to_b, it.inbox(9), at.at(64)).fence().await.unwrap();
        assert_eq!(*read, *b"two parts");
        assert_eq!(it.a.fetch_add(it.to_b, at.at(0), 5).await.unwrap(), 0);
        assert_eq!(it.a.compare_swap(it.to_b, at.at(0), 5u64, 7).await.unwrap(), 5);
        assert_eq!(it.a.fetch(it.to_b, AtomicOp::Max, at.at(8), 2.5f32).await.unwrap(), 0.0);
        assert_eq!(region.get::<u64>(0).unwrap(), 7);
        // A refusal ends the peer, and the buffer is back.
        let failed = it.a.write(it.to_b, it.buffer(&[1; 64]), at.at(5000)).await.unwrap_err();
        assert_eq!(failed.buffer.len(), 64);
        drop(region);
        let failed = it.a.write(it.to_b, it.buffer(b"late"), at.at(0)).await.unwrap_err();
        assert!(matches!(failed.error, Error::RemoteAccess), "{failed}");
        assert_eq!(*failed.buffer, *b"late");
        drop((parts, read, failed));
    });
}

#[test]
fn counters_and_flushes_are_waited_for() {
    everywhere(|provider| async move {
        let it = pair_with(provider, &RdmAttr::default());
        let reached = it.b.reached(Kind::Recv, 30, 0);
        let send = async {
            for number in 0..30 {
                it.a.inject(it.to_b, b"counted").tag(number).await.unwrap();
            }
            it.a.flush().await.unwrap();
            it.a.reached(Kind::Send, 30, 0).await.unwrap();
        };
        let receive = join_all((0..30).map(|tag| it.b.recv(Pattern::tagged(tag), it.inbox(8))));
        let (reached, ((), received)) = join(reached, join(send, receive)).await;
        reached.unwrap();
        assert!(received.into_iter().all(|one| one.unwrap().1.len == 7));
        // One that ends otherwise ends the wait.
        let directed = it.b.recv(ANY.from(it.to_a), it.inbox(8));
        let (reached, ended) = join(it.b.reached(Kind::Recv, 31, 0), async {
            let mut directed = directed;
            directed.posted().await;
            it.b.remove(it.to_a).unwrap();
            directed.await
        })
        .await;
        let text = reached.unwrap_err().to_string();
        assert!(text.contains("30 of 31 operations have ended well, and 1 have not"), "{text}");
        assert!(matches!(ended.unwrap_err().error, Error::Failed(_)));
        it.a.close().await.unwrap();
    });
}
