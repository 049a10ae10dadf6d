//! Whether there is an order of events that explains what was seen: messages meet receives in the order of their posts.
//!
//! Each meeting, and each end of a receive, is an event between two times. What was posted before what says which event was
//! before which. If that leaves no time for one of them, or goes round in a circle, the order was broken.

use fabric_rdm::matching::{Envelope, Pattern};

use crate::executor::Outcome;
use crate::record::{Message, Met, Receive, Record, Time};

struct Event {
    what: String,
    earliest: Time,
    latest: Time,
    /// It is after these.
    after: Vec<usize>,
}

/// Checks the order in which messages met receives.
pub(crate) fn check(record: &Record) -> Outcome {
    let messages = record.messages.iter().enumerate();
    let mut events: Vec<_> = messages.map(|(number, one)| meeting(record, number, one)).collect();
    let closings: Vec<_> = record
        .receives
        .iter()
        .enumerate()
        .map(|(number, one)| {
            closing(record, number, one).unwrap_or_else(|event| {
                events.push(event);
                events.len() - 1
            })
        })
        .collect();
    for receive in &record.receives {
        for two in receive.taken.windows(2).filter(|two| two[0].0 < two[1].0) {
            events[two[1].2].after.push(two[0].2);
        }
    }
    for (number, message) in record.messages.iter().enumerate() {
        let Some((met, envelope)) = met(message) else { continue };
        let pattern = pattern(record, met);
        // Older messages that the same receive takes.
        for (older, other) in record.messages[..number].iter().enumerate() {
            let is_before = (other.from, other.to) == (message.from, message.to)
                && self::met(other).is_some_and(|(_, envelope)| pattern.matches(&envelope));
            if is_before {
                events[number].after.push(older);
            }
        }
        // Older receives that take the same message.
        for (other, receive) in record.receives.iter().enumerate() {
            let is_older = match met {
                Met::Receive(by, _) => other < by,
                Met::Claim(time, _) => receive.posted < time,
            };
            let takes = receive.at == message.to && receive.claim.is_none();
            if is_older && takes && receive.pattern.matches(&envelope) {
                events[number].after.push(closings[other]);
            }
        }
    }
    settle(&mut events)
}

/// How a message was taken, and what it was for its receiver.
fn met(message: &Message) -> Option<(Met, Envelope)> {
    let (met, source, _) = message.met?;
    Some((met, Envelope { source, tag: message.tag, len: message.len as u64 }))
}

fn pattern(record: &Record, met: Met) -> Pattern {
    match met {
        Met::Receive(by, _) => record.receives[by].pattern,
        Met::Claim(_, pattern) => pattern,
    }
}

fn meeting(record: &Record, number: usize, message: &Message) -> Event {
    let what = format!("message {number} of {} to {}: {:?}", message.from, message.to, message.met);
    let (earliest, latest) = match message.met {
        None => (0, Time::MAX),
        Some((Met::Claim(time, _), ..)) => (message.posted.max(time), time),
        Some((Met::Receive(by, _), _, known)) => {
            (message.posted.max(record.receives[by].posted), known)
        }
    };
    let latest = match message.ended {
        Some((time, fabric_rdm::Status::Ok)) if message.matched => latest.min(time),
        // The target had it by then, and a probe did not find it: it had met its receive.
        Some((ended, fabric_rdm::Status::Ok)) => {
            let found_nothing = |&&(at, pattern, time): &&(usize, Pattern, Time)| {
                let takes = met(message).is_some_and(|(_, envelope)| pattern.matches(&envelope));
                at == message.to && time > ended && takes
            };
            let times = record.in_vain.iter().filter(found_nothing).map(|probe| probe.2);
            times.chain([latest]).min().unwrap_or(latest)
        }
        _ => latest,
    };
    Event { what, earliest, latest, after: Vec::new() }
}

/// When a receive takes no message any more: with a message that it took, or by an event of its own.
fn closing(record: &Record, number: usize, receive: &Receive) -> Result<usize, Event> {
    if !receive.broken {
        if let Some(min_free) = receive.min_free {
            let used: u64 = receive.taken.iter().map(|taken| taken.1).sum();
            if receive.room as u64 - used < min_free
                && let Some(last) = receive.taken.last()
            {
                return Ok(last.2);
            }
        } else {
            let is_it =
                |one: &Message| matches!(one.met, Some((Met::Receive(by, _), ..)) if by == number);
            if let Some(message) = record.messages.iter().position(is_it) {
                return Ok(message);
            }
        }
    }
    let ended = receive.ended.map_or(Time::MAX, |(time, _)| time);
    let (earliest, latest) = match receive.canceled {
        Some(time) if !receive.broken => (time, time),
        _ => (receive.posted, ended),
    };
    let what = format!("the end of receive {number} of {}: {:?}", receive.at, receive.pattern);
    Err(Event { what, earliest, latest, after: Vec::new() })
}

/// Gives each event the earliest time that those before it leave.
fn settle(events: &mut [Event]) -> Outcome {
    let mut done = vec![false; events.len()];
    let mut left = events.len();
    while left > 0 {
        let ready = (0..events.len())
            .filter(|&at| !done[at] && events[at].after.iter().all(|&before| done[before]));
        let ready: Vec<_> = ready.collect();
        if ready.is_empty() {
            let circle = (0..events.len()).filter(|&at| !done[at]);
            let circle: Vec<_> = circle
                .map(|at| format!("  {at}: {}, after {:?}", events[at].what, events[at].after))
                .collect();
            return Err(format!("an order of events, not a circle:\n{}", circle.join("\n")));
        }
        for at in ready {
            let before = events[at].after.iter().copied().max_by_key(|&at| events[at].earliest);
            if let Some(before) = before {
                events[at].earliest = events[at].earliest.max(events[before].earliest);
            }
            let Event { what, earliest, latest, .. } = &events[at];
            if earliest > latest {
                let after = before.map(|before| &events[before].what);
                return Err(format!(
                    "{what}, by time {latest}; it was not before {earliest}, as it is after {after:?}"
                ));
            }
            done[at] = true;
            left -= 1;
        }
    }
    Ok(())
}
