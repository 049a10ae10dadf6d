//! Every interleaving of a producer and a consumer that sleep when there is nothing to do (`scripts/loom`). Where a wake-up is
//! lost one of them sleeps for ever, which loom reports as a deadlock.

use loom::sync::{Arc, Notify};
use loom::thread;

use super::*;

/// A ring's control, and what wakes each side, as a byte on the socket does: it is kept until it is read.
#[derive(Default)]
struct Ends {
    control: Control,
    marks: [Mark; LEN as usize],
    producer: Notify,
    consumer: Notify,
}

impl Ends {
    fn mark(&self, position: u32) -> &Mark {
        &self.marks[(position % LEN) as usize]
    }
}

fn produce(ends: &Ends, records: u32) {
    let mut tail = 0;
    while tail < records {
        let mut room = ends.control.room(tail).unwrap();
        if capacity(room) == 0 {
            room = ends.control.wait_for_room(tail).unwrap();
        }
        if capacity(room) == 0 {
            ends.producer.wait();
            continue;
        }
        ends.mark(tail + 1).clear();
        if ends.control.publish(ends.mark(tail), 1) {
            ends.consumer.notify();
        }
        tail += 1;
    }
}

fn consume(ends: &Ends, records: u32) {
    let mut head = 0;
    while head < records {
        let mut filled = ends.mark(head).filled().unwrap();
        if filled == 0 {
            filled = ends.control.arm(ends.mark(head)).unwrap();
        }
        if filled == 0 {
            ends.consumer.wait();
            continue;
        }
        head += 1;
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
