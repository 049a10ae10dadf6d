//! Handles of all kinds, dropped in every order and forgotten one by one, with work in flight.

use std::mem::forget;

use fabric::{ConnectRequest, EventQueue, Listener, Status};

use crate::null::Control;
use crate::rig::{NOWHERE, Rig, drain, run};

/// The handles whose order matters to somebody.
const KINDS: usize = 6;

struct All {
    handles: [Option<Box<dyn Send>>; KINDS],
    control: std::sync::Arc<Control>,
    queue: fabric::CompletionQueue,
}

/// One of each kind: domain, queue, endpoint, region, listener with a request, events; the endpoint with work
/// in flight on both sides and an event not taken.
fn all() -> All {
    let Rig { endpoint, region, remote, queue, domain, control, link } = Rig::new();
    link.hold();
    endpoint.write(region.slice(..8), remote.at(0), 0).unwrap();
    endpoint.read(region.slice(..8), remote.at(0), 1).unwrap();
    endpoint.recv(&region, 2).unwrap();
    let listener = domain.listen(NOWHERE).unwrap();
    control.request(listener.id(), b"hello");
    control.request(listener.id(), b"once more");
    let request = listener.poll().unwrap();
    let events: EventQueue = domain.events();
    let listening: (Listener, ConnectRequest) = (listener, request);
    let handles: [Box<dyn Send>; KINDS] = [
        Box::new(domain),
        Box::new(queue.clone()),
        Box::new(endpoint),
        Box::new(region),
        Box::new(listening),
        Box::new(events),
    ];
    All { handles: handles.map(Some), control, queue }
}

/// Calls `f` with each order of `0..KINDS`.
fn orders(mut f: impl FnMut(&[usize; KINDS])) {
    fn go(order: &mut [usize; KINDS], at: usize, f: &mut impl FnMut(&[usize; KINDS])) {
        if at == KINDS {
            return f(order);
        }
        for i in at..KINDS {
            order.swap(at, i);
            go(order, at + 1, f);
            order.swap(at, i);
        }
    }
    go(&mut [0, 1, 2, 3, 4, 5], 0, &mut f);
}

/// A provider's thread leaves progress to an application that polls, which one that drops an endpoint need not do.
#[test]
fn an_endpoint_is_dropped_without_a_poll() {
    let Rig { endpoint, region, remote, queue, control: _control, link, domain: _domain } =
        Rig::new();
    link.hold();
    endpoint.write(region.slice(..8), remote.at(0), 7).unwrap();
    endpoint.recv(&region, 8).unwrap();
    let before = link.polls();
    drop(endpoint);
    assert_eq!(link.polls(), before);
    assert_eq!(drain(&queue).len(), 2);
}

#[test]
fn every_order_of_drops() {
    let mut count = 0;
    orders(|order| {
        count += 1;
        if cfg!(miri) && count % 90 != 0 {
            return;
        }
        let All { mut handles, control, queue } = all();
        for &i in order {
            drop(handles[i].take());
        }
        assert_eq!(drain(&queue), run(0, 3, Status::Canceled), "{order:?}");
        let left = (control.endpoints(), control.registrations(), control.listeners());
        assert_eq!(left, (0, 0, 0), "{order:?}");
        assert_eq!(control.rejected().len(), 1, "the request that was taken and not answered");
    });
    assert_eq!(count, 720);
}

#[test]
fn every_order_of_drops_after_the_completions_were_taken() {
    let mut count = 0;
    orders(|order| {
        count += 1;
        if count % if cfg!(miri) { 90 } else { 16 } != 0 {
            return;
        }
        let All { mut handles, control, queue } = all();
        let endpoint = handles[2].take();
        drop(endpoint);
        assert_eq!(drain(&queue), run(0, 3, Status::Canceled));
        drop(queue);
        for &i in order {
            drop(handles[i].take());
        }
        assert_eq!((control.endpoints(), control.registrations()), (0, 0), "{order:?}");
    });
}

/// Forgetting a handle keeps what it holds, and nothing worse.
#[test]
#[cfg_attr(miri, ignore = "it leaks, that is the point, and Miri looks for leaks")]
fn each_handle_forgotten() {
    for forgotten in 0..KINDS {
        let All { mut handles, control, queue } = all();
        forget(handles[forgotten].take());
        handles.iter_mut().for_each(|handle| drop(handle.take()));
        let reported = drain(&queue);
        // Only the endpoint has work; forgotten, it is alive, and its work in flight.
        if forgotten == 2 {
            assert_eq!(reported, []);
            assert_eq!((control.endpoints(), control.registrations()), (1, 1));
        } else {
            assert_eq!(reported, run(0, 3, Status::Canceled));
            assert_eq!(control.endpoints(), 0);
            assert_eq!(control.registrations(), usize::from(forgotten == 3));
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "it leaks, that is the point, and Miri looks for leaks")]
fn a_forgotten_endpoint_goes_on_with_memory_whose_handle_is_gone() {
    let Rig { endpoint, region, remote, queue, domain, control, link } = Rig::new();
    link.hold();
    endpoint.read(&region, remote.at(0), 1).unwrap();
    forget(endpoint);
    drop((region, domain));
    assert_eq!(control.registrations(), 1);
    link.release(1);
    assert_eq!(drain(&queue), [(1, Status::Ok)]);
    assert_eq!(control.registrations(), 0);
}
