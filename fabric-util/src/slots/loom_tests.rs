//! Every interleaving of a poster and a poller (`scripts/loom`).

use loom::sync::mpsc::channel;
use loom::thread;

use super::*;

/// Slots are filled again only when their operations were taken, in another order than they were posted.
#[test]
fn poster_and_poller() {
    loom::model(|| {
        const OPERATIONS: u32 = 3;
        let (mut producer, mut consumer) = slots::<Box<u32>>(2);
        let (to_poller, numbers) = channel();
        let poster = thread::spawn(move || {
            for i in 0..OPERATIONS {
                while !producer.has_room() {
                    thread::yield_now();
                }
                to_poller.send((producer.insert(Box::new(i)).unwrap(), i)).unwrap();
            }
            producer
        });
        let mut waiting = Vec::new();
        for ended in 0..OPERATIONS {
            // The younger one of two.
            while waiting.len() < 2 && ended as usize + waiting.len() < OPERATIONS as usize {
                waiting.push(numbers.recv().unwrap());
            }
            let (number, i) = waiting.pop().unwrap();
            assert_eq!(consumer.take(number), Some(Box::new(i)));
            assert!(consumer.take(number).is_none());
            consumer.credit();
        }
        let producer = poster.join().unwrap();
        assert!(producer.is_empty());
    });
}

/// A slot is filled again while its operation still counts: what orders that is that it was given back, not its credit.
#[test]
fn filled_again_before_the_credit() {
    loom::model(|| {
        let (mut producer, mut consumer) = slots::<Box<u32>>(3);
        let numbers = [0, 1].map(|i| producer.insert(Box::new(i)).unwrap());
        let poster = thread::spawn(move || {
            let number = producer.insert(Box::new(2)).unwrap();
            (number, producer)
        });
        assert_eq!(consumer.take(numbers[0]), Some(Box::new(0)));
        let (third, producer) = poster.join().unwrap();
        for (number, i) in [(third, 2), (numbers[1], 1)] {
            assert_eq!(consumer.take(number), Some(Box::new(i)));
        }
        assert!(producer.is_empty());
    });
}

/// What is taken by a number that names nothing yet does no harm beside a post.
#[test]
fn looked_for_beside_a_post() {
    loom::model(|| {
        let (mut producer, mut consumer) = slots::<Box<u32>>(1);
        let poster = thread::spawn(move || producer.insert(Box::new(7)).unwrap());
        let early = consumer.take(0);
        let number = poster.join().unwrap();
        match early {
            Some(value) => assert_eq!((*value, number), (7, 0)),
            None => assert_eq!(consumer.take(number), Some(Box::new(7))),
        }
    });
}
