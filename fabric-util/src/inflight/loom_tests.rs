//! Every interleaving of a poster and a poller (`scripts/loom`).

use loom::thread;

use super::*;

/// Posts wrap around the ring: a slot is written again only when its operation was taken and no longer counts.
#[test]
fn poster_and_poller() {
    loom::model(|| {
        const OPERATIONS: u32 = 3;
        let (mut producer, mut consumer) = inflight::<Box<u32>>(2);
        let poster = thread::spawn(move || {
            for i in 0..OPERATIONS {
                while !producer.has_room() {
                    thread::yield_now();
                }
                assert!(producer.len() < producer.depth());
                assert_eq!(producer.reserve().unwrap().insert(Box::new(i)), i);
            }
        });
        for i in 0..OPERATIONS {
            let (sequence, value) = loop {
                match consumer.pop() {
                    Some(taken) => break taken,
                    None => thread::yield_now(),
                }
            };
            assert_eq!((sequence, *value), (i, i));
            consumer.credit(1);
        }
        poster.join().unwrap();
        assert!(consumer.is_empty() && consumer.outstanding() == 0);
    });
}

/// What the provider refuses is taken back while the poller takes what came before it.
#[test]
fn taken_back_beside_a_poll() {
    loom::model(|| {
        let (mut producer, mut consumer) = inflight::<Box<u32>>(4);
        producer.reserve().unwrap().insert(Box::new(0));
        let poster = thread::spawn(move || {
            producer.reserve().unwrap().insert(Box::new(1));
            // SAFETY: the poller takes one operation, which is the first.
            unsafe { producer.unpush(1) };
            producer.reserve().unwrap().insert(Box::new(2));
            producer
        });
        let (sequence, value) = consumer.pop().unwrap();
        assert_eq!((sequence, *value), (0, 0));
        consumer.credit(1);
        let producer = poster.join().unwrap();
        assert_eq!(producer.len(), 1);
        assert_eq!(consumer.pop().map(|(sequence, value)| (sequence, *value)), Some((1, 2)));
    });
}
