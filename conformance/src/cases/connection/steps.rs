//! Steps of cases about connections.

use fabric::{ConnectRequest, Listener};

use crate::prelude::*;

/// The next request.
#[track_caller]
pub(in crate::cases) fn next_request(
    rig: &Rig,
    listener: &Listener,
) -> Result<ConnectRequest, Failed> {
    Ok(listener.accept(Some(rig.connect_timeout()))?)
}

/// Connects `a` by a listener, which accepts it with `b`.
#[track_caller]
pub(in crate::cases) fn meet(rig: &Rig, listener: &Listener, a: &End, b: &End) -> Outcome {
    a.connect(listener.local_addr(), &[])?;
    next_request(rig, listener)?.accept(b, &[])?;
    connected(a, b)
}

/// As [`meet`], with this data on both ways, and checks what arrives.
#[track_caller]
pub(in crate::cases) fn exchange(
    rig: &Rig,
    listener: &Listener,
    [a, b]: [&End; 2],
    [asks, answers]: [&[u8]; 2],
) -> Outcome {
    a.connect(listener.local_addr(), asks)?;
    let mut request = next_request(rig, listener)?;
    check_bytes!(request.private_data(), asks, "{} bytes of connect data", asks.len());
    request.accept(b, answers)?;
    check_bytes!(a.expect_connected()?, answers, "{} bytes of accept data", answers.len());
    check_bytes!(b.expect_connected()?, [0; 0], "data for the accepting side");
    Ok(())
}

/// Both are connected.
#[track_caller]
pub(in crate::cases) fn connected(a: &End, b: &End) -> Outcome {
    a.expect_connected()?;
    b.expect_connected().map(drop)
}

/// The next event of `end` is that its attempt to connect failed; gives the error.
#[track_caller]
pub(in crate::cases) fn connect_failed(end: &End) -> Result<Error, Failed> {
    match end.next_event()? {
        Event::ConnectFailed { endpoint, error } if endpoint == end.id() => Ok(error),
        event => fail!(format!("ConnectFailed of {}", end.id()), "{event:?}"),
    }
}

/// The next event of `end` is that its connection ended.
#[track_caller]
pub(super) fn ended(end: &End) -> Outcome {
    let event = end.next_event()?;
    check_matches!(&event, Event::Disconnected { endpoint, .. } if *endpoint == end.id(), "an end");
    Ok(())
}

/// One message from `a` to `b`, with bytes of this pattern; neither may have anything else pending.
#[track_caller]
pub(in crate::cases) fn message(a: &End, b: &End, pattern: Pattern) -> Outcome {
    let (source, sink) = (a.patterned(100, pattern)?, b.buffer(200)?);
    a.deliver(Op::send(&source).context(12), b, &sink, Done::recv(11, 100))?;
    a.expect_ok(12)?;
    sink.check_pattern(..100, pattern)?;
    sink.check_filled(100.., 0)
}
