//! Every interleaving of a producer and a consumer that sleep when there is nothing to do (`scripts/loom`). Where a wake-up is
//! lost one of them sleeps for ever, which loom reports as a deadlock.

use loom::sync::{Arc, Notify};
use loom::thread;

use super::*;

/// A ring's control, and what wakes each side, as a byte on the socket does: it is kept until it is read.
#[derive(Default)]
struct Ends {
    control: Control,
    producer: Notify,
    consumer: Notify,
}

fn produce(ends: &Ends, bytes: u32) {
    let mut tail = 0;
    while tail < bytes {
        let mut room = ends.control.room(tail).unwrap();
        if room == 0 {
            room = ends.control.wait_for_room(tail).unwrap();
        }
        if room == 0 {
            ends.producer.wait();
            continue;
        }
        tail += 1;
        if ends.control.publish(tail) {
            ends.consumer.notify();
        }
    }
}

fn consume(ends: &Ends, bytes: u32) {
    let mut head = 0;
    while head < bytes {
        let mut filled = ends.control.filled(head).unwrap();
        if filled == 0 {
            filled = ends.control.arm(head).unwrap();
        }
        if filled == 0 {
            ends.consumer.wait();
            continue;
        }
        head += filled;
        if ends.control.consume(head) {
            ends.producer.notify();
        }
    }
}

/// The consumer goes to sleep while bytes come.
#[test]
fn loom_tests_bytes_wake_the_consumer() {
    loom::model(|| {
        let ends = Arc::new(Ends::default());
        let producer = {
            let ends = ends.clone();
            thread::spawn(move || produce(&ends, 2))
        };
        consume(&ends, 2);
        producer.join().unwrap();
    });
}

/// The producer of more than the ring holds sleeps until there is room.
#[test]
fn loom_tests_room_wakes_the_producer() {
    loom::model(|| {
        let ends = Arc::new(Ends::default());
        let producer = {
            let ends = ends.clone();
            thread::spawn(move || produce(&ends, LEN + 1))
        };
        consume(&ends, LEN + 1);
        producer.join().unwrap();
    });
}
