//! The link of the port goes down and up.

use std::time::{Duration, Instant};

use fabric::{EndpointState, Event, EventQueue, Status};

use crate::rig::{SOON, Side, join, listen, open_region, take};
use crate::software::{NET, in_child, run};

/// What the program does in a process of its own.
pub(crate) const ROLE: &str = "port";

pub(crate) fn is_an_event() {
    drop(in_child(ROLE, &[]));
}

fn set(state: &str) {
    let command = format!("ip link set {NET}0 {state}");
    assert!(run(&command).success(), "{command}");
}

/// Waits for an event of the port; nothing else may come.
fn next(events: &EventQueue) -> Event {
    let event = events.wait(SOON).unwrap();
    assert!(event.endpoint().is_none(), "{event:?}");
    event
}

pub(crate) fn go_down_and_up() {
    let long = Duration::from_secs(10);
    let (near, far) = (Side::new(long), Side::new(long));
    join(&listen(&far.domain), &near.endpoint, &far.endpoint);
    let (from, to) = (open_region(&near.domain, 64), open_region(&far.domain, 64));
    for side in [&near, &far] {
        while side.domain.events().poll().is_some() {}
    }

    let start = Instant::now();
    set("down");
    for side in [&near, &far] {
        assert!(matches!(next(&side.domain.events()), Event::PortDown));
    }
    println!("reported after {:.2?}", start.elapsed());
    set("up");
    for side in [&near, &far] {
        assert!(matches!(next(&side.domain.events()), Event::PortActive));
        assert_eq!(side.endpoint.state(), EndpointState::Connected);
    }
    // The connection went through it.
    near.endpoint.write(&from, to.remote().at(0), 1).unwrap();
    assert_eq!(take(&near.queue, 1)[0].status, Status::Ok);

    assert!(near.domain.events().poll().is_none());
}
