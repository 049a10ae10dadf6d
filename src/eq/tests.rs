//! What waits at the hub, and what each of them gets.

use std::sync::atomic::AtomicUsize;

use super::*;

fn connecting(hub: &EventHub, id: u64) -> EndpointId {
    let shared = EndpointShared::new(EndpointId(id));
    assert!(shared.state.replace(EndpointState::Idle, EndpointState::Connecting));
    hub.add(&Arc::new(shared));
    EndpointId(id)
}

/// Each wait looks twice: when it begins, and at its own event. With one queue for all of them it looked at every
/// event of the others.
#[test]
fn a_wait_looks_at_no_event_of_others() {
    const WAITS: u64 = 16;
    let hub = EventHub::new().unwrap();
    let endpoints: Vec<_> = (0..WAITS).map(|id| connecting(&hub, id)).collect();
    let (looks, asleep) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for &id in &endpoints {
            let (hub, looks, asleep) = (&hub, &looks, &asleep);
            scope.spawn(move || {
                let look = || {
                    looks.fetch_add(1, Ordering::Relaxed);
                    let found = hub.take_outcome(id);
                    asleep.fetch_add(1, Ordering::Relaxed);
                    found
                };
                assert!(hub.wait_for(id, None, look).is_some());
            });
        }
        while asleep.load(Ordering::Relaxed) < WAITS as usize {
            std::thread::yield_now();
        }
        for &endpoint in endpoints.iter().rev() {
            hub.event(Event::Connected { endpoint, data: Box::default() });
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert_eq!(looks.into_inner(), 2 * WAITS as usize);
    assert!(hub.lock().queue.is_empty());
}
