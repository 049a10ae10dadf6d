//! What travels with requests and answers, and answering twice.

use fabric::{MAX_ACCEPT_DATA, MAX_CONNECT_DATA, MAX_REJECT_DATA};

use super::steps::{self, connect_failed, connected, message, next_request};
use crate::check::check_says;
use crate::end::DEFAULT_TIMEOUT;
use crate::prelude::*;

/// Connects with this data on both ways, and checks what arrives.
#[track_caller]
fn exchange(rig: &Rig, asks: &[u8], answers: &[u8]) -> Outcome {
    let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    let listener = rig.listen(rig.domain_b())?;
    steps::exchange(rig, &listener, [&a, &b], [asks, answers])
}

pub(super) fn data_sizes(rig: &Rig) -> Outcome {
    for (i, asks) in [0, 1, MAX_CONNECT_DATA - 1, MAX_CONNECT_DATA].into_iter().enumerate() {
        for (j, answers) in [0, 1, MAX_ACCEPT_DATA - 1, MAX_ACCEPT_DATA].into_iter().enumerate() {
            let (asks, answers) = (rig.pattern(i).bytes(asks), rig.pattern(10 + j).bytes(answers));
            exchange(rig, &asks, &answers)?;
        }
    }
    Ok(())
}

pub(super) fn data_zero_tail(rig: &Rig) -> Outcome {
    exchange(rig, &[0], &[0])?;
    exchange(rig, b"some\0\0\0", b"more\0\0\0\0\0")?;
    exchange(rig, b"\0", &[0; MAX_ACCEPT_DATA - 1])?;
    exchange(rig, &[0; MAX_CONNECT_DATA - 1], b"\0\0\0x\0")?;
    exchange(rig, &[0; MAX_CONNECT_DATA], &[0; MAX_ACCEPT_DATA])?;
    for data in [&b"\0"[..], b"no\0\0", &[0; MAX_REJECT_DATA]] {
        rejected(rig, data)?;
    }
    Ok(())
}

pub(super) fn data_max1(rig: &Rig) -> Outcome {
    let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    let listener = rig.listen(rig.domain_b())?;
    let names_both = |error: Error, given: usize, max: usize| -> Outcome {
        let text = check_matches!(error, Error::InvalidArgument(_), "{given} bytes").to_string();
        check_says(&text, &[&given.to_string(), &max.to_string()], "too much data")
    };
    for given in [MAX_CONNECT_DATA + 1, 1000] {
        let connected = a.connect(listener.local_addr(), &vec![1; given]);
        let error = check_err!(connected, _, "{given} bytes of connect data");
        names_both(error, given, MAX_CONNECT_DATA)?;
        check_eq!(a.state(), EndpointState::Idle, "state after a call that failed");
    }
    a.connect(listener.local_addr(), &[2; MAX_CONNECT_DATA])?;
    let mut request = next_request(rig, &listener)?;
    check_bytes!(request.private_data(), [2; MAX_CONNECT_DATA], "data of the call that worked");
    for given in [MAX_REJECT_DATA + 1, 1000] {
        let error = check_err!(request.reject(&vec![3; given]), _, "{given} bytes of reject data");
        names_both(error, given, MAX_REJECT_DATA)?;
    }
    for given in [MAX_ACCEPT_DATA + 1, 1000] {
        let accepted = request.accept(&b, &vec![4; given]);
        let error = check_err!(accepted, _, "{given} bytes of accept data");
        names_both(error, given, MAX_ACCEPT_DATA)?;
        check_eq!(b.state(), EndpointState::Idle, "state after a call that failed");
    }
    request.accept(&b, &[5; MAX_ACCEPT_DATA])?;
    check_bytes!(a.expect_connected()?, [5; MAX_ACCEPT_DATA], "data of the call that worked");
    b.expect_connected()?;
    Ok(())
}

/// Is rejected with this data, once.
#[track_caller]
fn rejected(rig: &Rig, data: &[u8]) -> Outcome {
    let a = rig.end(rig.domain_a())?;
    let listener = rig.listen(rig.domain_b())?;
    a.connect(listener.local_addr(), b"please")?;
    let mut request = next_request(rig, &listener)?;
    request.reject(data)?;
    let error = connect_failed(&a)?;
    let Error::Rejected(seen) = error else { fail!("Rejected", "{error:?}") };
    check_bytes!(seen, data, "{} bytes of reject data", data.len());
    check_eq!(a.state(), EndpointState::Dead, "state when rejected");
    check_err!(a.send(Slices::none(), 1), Error::NotConnected, "a send when rejected");
    check_err!(a.recv(Slices::none(), 1), Error::NotConnected, "a receive when rejected");
    let again = a.connect(listener.local_addr(), &[]);
    check_err!(again, Error::InvalidState(_), "connecting once more");
    Ok(())
}

pub(super) fn reject_data(rig: &Rig) -> Outcome {
    for (i, len) in [0, 1, MAX_REJECT_DATA].into_iter().enumerate() {
        rejected(rig, &rig.pattern(i).bytes(len))?;
    }
    // A request that is dropped is rejected without data. The receives of the rejected end are flushed.
    let a = rig.end(rig.domain_a())?;
    a.recv(Slices::none(), 1)?;
    a.recv(Slices::none(), 2)?;
    let listener = rig.listen(rig.domain_b())?;
    a.connect(listener.local_addr(), &[])?;
    drop(next_request(rig, &listener)?);
    let outcome = a.wait_connected(Some(rig.scaled(DEFAULT_TIMEOUT)));
    let error = check_err!(outcome, Error::Rejected(_), "a request that was dropped");
    check_matches!(error, Error::Rejected(data) if data.is_empty(), "its data");
    a.expect_canceled([1, 2])?;
    a.expect_no_event_for(Duration::from_millis(100))
}

pub(super) fn double_accept(rig: &Rig) -> Outcome {
    let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    let (late, spare) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    let listener = rig.listen(rig.domain_b())?;
    a.connect(listener.local_addr(), &[])?;
    let mut request = next_request(rig, &listener)?;
    request.accept(&b, &[])?;
    for end in [&spare, &b] {
        check_err!(request.accept(end, &[]), Error::InvalidState(_), "a request answered before");
    }
    check_eq!(spare.state(), EndpointState::Idle, "state of an end that accepted nothing");
    connected(&a, &b)?;
    check_err!(request.accept(&spare, &[]), Error::InvalidState(_), "a request that is connected");

    // An endpoint that is taken is no answer either, nor one of another domain; the request waits for a better one.
    late.connect(listener.local_addr(), &[])?;
    let mut request = next_request(rig, &listener)?;
    check_err!(request.accept(&b, &[]), Error::InvalidState(_), "accepting with a connected end");
    check_err!(request.accept(&a, &[]), Error::InvalidArgument(_), "accepting by another domain");
    request.accept(&spare, &[])?;
    connected(&late, &spare)?;
    for (i, (a, b)) in [(&a, &b), (&late, &spare)].into_iter().enumerate() {
        message(a, b, rig.pattern(i))?;
        message(b, a, rig.pattern(10 + i))?;
    }
    Ok(())
}

pub(super) fn accept_after_reject(rig: &Rig) -> Outcome {
    let (a, b) = (rig.end(rig.domain_a())?, rig.end(rig.domain_b())?);
    let listener = rig.listen(rig.domain_b())?;
    a.connect(listener.local_addr(), &[])?;
    let mut request = next_request(rig, &listener)?;
    request.reject(b"once")?;
    check_err!(request.accept(&b, &[]), Error::InvalidState(_), "accepting what was rejected");
    check_err!(request.reject(b"twice"), Error::InvalidState(_), "rejecting once more");
    let outcome = a.wait_connected(Some(rig.scaled(DEFAULT_TIMEOUT)));
    let error = check_err!(outcome, Error::Rejected(_), "the outcome of the rejected end");
    check_matches!(error, Error::Rejected(data) if ***data == *b"once", "its data");
    check_eq!(b.state(), EndpointState::Idle, "state of an end that accepted nothing");

    let a = rig.end(rig.domain_a())?;
    a.connect(listener.local_addr(), &[])?;
    let mut request = next_request(rig, &listener)?;
    request.accept(&b, &[])?;
    check_err!(request.reject(b"no"), Error::InvalidState(_), "rejecting what was accepted");
    connected(&a, &b)?;
    check_err!(request.reject(b"no"), Error::InvalidState(_), "rejecting what is connected");
    drop(request);
    message(&a, &b, rig.pattern(0))
}
