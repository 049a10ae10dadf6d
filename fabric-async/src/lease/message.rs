//! What the two ends of a connection say to each other about leases: short messages of fixed forms.
//!
//! Each is a kind, then little-endian fields. Reading never panics; whatever is not one of these forms is refused.
//!
//! The end of what was asked for is counted from the question, which was before the answer. What is lent unasked has no question:
//! its end is in the lender's clock, for which the holder asks then.

use std::time::Duration;

use fabric::{Access, RemoteRegion};

use crate::error::Refusal;

/// The longest message. Every provider takes as much in an inject.
pub(super) const MAX_LEN: usize = 80;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum LeaseMessage {
    /// Lend me this much, for this long.
    Request { id: u64, len: u64, time: Duration, rights: Access },
    /// Here it is. (Answers `Request`.)
    Grant { id: u64, lease: u64, time: Duration, region: RemoteRegion },
    /// No. (Answers `Request`, `Renew` and `Share`.)
    Refuse { id: u64, why: Refusal },
    /// I need it longer: this long from now.
    Renew { id: u64, lease: u64, time: Duration },
    /// So be it. (Answers `Renew`.)
    Renewed { id: u64, time: Duration },
    /// I need it no more.
    Release { lease: u64 },
    /// I lend you this, unasked, until then by my clock.
    Lend { lease: u64, until: u64, region: RemoteRegion },
    /// It has ended.
    Ended { lease: u64 },
    /// A third one lent me this, until then by my clock; use it over your own connection to it.
    Pass { until: u64, region: RemoteRegion },
    /// I pass it on: by which key does a third one reach it?
    Share { id: u64, lease: u64 },
    /// By this one. (Answers `Share`.)
    Shared { id: u64, region: RemoteRegion },
    /// You lent or passed something: what does your clock say?
    Clock,
    /// This. (Answers `Clock`, in order.)
    Time { now: u64 },
}

/// Durations go as microseconds.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl LeaseMessage {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MAX_LEN);
        let mut put = |kind: u8, fields: &[u64], region: Option<&RemoteRegion>| {
            out.push(kind);
            fields.iter().for_each(|field| out.extend(field.to_le_bytes()));
            out.extend(region.into_iter().flat_map(RemoteRegion::to_bytes));
        };
        match self {
            LeaseMessage::Request { id, len, time, rights } => {
                put(1, &[*id, *len, micros(*time), rights.bits().into()], None);
            }
            LeaseMessage::Grant { id, lease, time, region } => {
                put(2, &[*id, *lease, micros(*time)], Some(region));
            }
            LeaseMessage::Refuse { id, why } => {
                let (why, value) = match why {
                    Refusal::Nothing => (0, 0),
                    Refusal::TooMuch { max } => (1, *max),
                    Refusal::TooLong { max } => (2, micros(*max)),
                    Refusal::Rights => (3, 0),
                    Refusal::TooMany => (4, 0),
                    Refusal::NoMemory => (5, 0),
                    Refusal::Unknown | Refusal::Disabled => (6, 0),
                    Refusal::Fixed => (7, 0),
                    Refusal::Denied => (8, 0),
                };
                put(3, &[*id, why, value], None);
            }
            LeaseMessage::Renew { id, lease, time } => put(4, &[*id, *lease, micros(*time)], None),
            LeaseMessage::Renewed { id, time } => put(5, &[*id, micros(*time)], None),
            LeaseMessage::Release { lease } => put(6, &[*lease], None),
            LeaseMessage::Lend { lease, until, region } => put(7, &[*lease, *until], Some(region)),
            LeaseMessage::Ended { lease } => put(8, &[*lease], None),
            LeaseMessage::Pass { until, region } => put(9, &[*until], Some(region)),
            LeaseMessage::Share { id, lease } => put(10, &[*id, *lease], None),
            LeaseMessage::Shared { id, region } => put(11, &[*id], Some(region)),
            LeaseMessage::Clock => put(12, &[], None),
            LeaseMessage::Time { now } => put(13, &[*now], None),
        }
        out
    }

    /// `None` for what is no message of this protocol.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<LeaseMessage> {
        let (kind, rest) = bytes.split_first()?;
        let (fields, with_region) = match kind {
            1 => (4, false),
            2 => (3, true),
            3 | 4 => (3, false),
            5 => (2, false),
            6 | 8 | 13 => (1, false),
            7 => (2, true),
            9 | 11 => (1, true),
            10 => (2, false),
            12 => (0, false),
            _ => return None,
        };
        let (numbers, rest) = rest.split_at_checked(fields * 8)?;
        let mut numbers = numbers.chunks_exact(8).map(|number| {
            let mut le = [0; 8];
            le.copy_from_slice(number);
            u64::from_le_bytes(le)
        });
        let mut number = || numbers.next().unwrap_or(0);
        let region = match with_region {
            true => Some(RemoteRegion::from_bytes(rest).ok()?),
            false => None,
        };
        if !with_region && !rest.is_empty() {
            return None;
        }
        let time = Duration::from_micros;
        Some(match (kind, region) {
            (1, _) => LeaseMessage::Request {
                id: number(),
                len: number(),
                time: time(number()),
                rights: Access::from_bits(u32::try_from(number()).ok()?)?,
            },
            (2, Some(region)) => {
                LeaseMessage::Grant { id: number(), lease: number(), time: time(number()), region }
            }
            (3, _) => {
                let (id, why, value) = (number(), number(), number());
                let why = match why {
                    0 => Refusal::Nothing,
                    1 => Refusal::TooMuch { max: value },
                    2 => Refusal::TooLong { max: time(value) },
                    3 => Refusal::Rights,
                    4 => Refusal::TooMany,
                    5 => Refusal::NoMemory,
                    6 => Refusal::Unknown,
                    7 => Refusal::Fixed,
                    8 => Refusal::Denied,
                    _ => return None,
                };
                LeaseMessage::Refuse { id, why }
            }
            (4, _) => LeaseMessage::Renew { id: number(), lease: number(), time: time(number()) },
            (5, _) => LeaseMessage::Renewed { id: number(), time: time(number()) },
            (6, _) => LeaseMessage::Release { lease: number() },
            (7, Some(region)) => LeaseMessage::Lend { lease: number(), until: number(), region },
            (8, _) => LeaseMessage::Ended { lease: number() },
            (9, Some(region)) => LeaseMessage::Pass { until: number(), region },
            (10, _) => LeaseMessage::Share { id: number(), lease: number() },
            (11, Some(region)) => LeaseMessage::Shared { id: number(), region },
            (12, _) => LeaseMessage::Clock,
            (13, _) => LeaseMessage::Time { now: number() },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_way_and_garbage_is_refused() {
        let region = RemoteRegion::from_parts(7, 8, 4096, Access::REMOTE_READ);
        let (id, lease, time) = (u64::MAX, 3, Duration::from_micros(1_234_567));
        let messages = [
            LeaseMessage::Request { id, len: 4096, time, rights: Access::REMOTE },
            LeaseMessage::Grant { id, lease, time, region },
            LeaseMessage::Refuse { id, why: Refusal::TooMuch { max: 9 } },
            LeaseMessage::Refuse { id, why: Refusal::TooLong { max: time } },
            LeaseMessage::Refuse { id, why: Refusal::Fixed },
            LeaseMessage::Refuse { id, why: Refusal::Denied },
            LeaseMessage::Renew { id, lease, time },
            LeaseMessage::Renewed { id, time },
            LeaseMessage::Release { lease },
            LeaseMessage::Lend { lease, until: u64::MAX, region },
            LeaseMessage::Ended { lease },
            LeaseMessage::Pass { until: 7, region },
            LeaseMessage::Clock,
            LeaseMessage::Time { now: u64::MAX },
        ];
        for message in messages {
            let bytes = message.to_bytes();
            assert!(bytes.len() <= MAX_LEN, "{message:?}");
            assert_eq!(LeaseMessage::from_bytes(&bytes), Some(message));
            for short in 0..bytes.len() {
                assert_eq!(LeaseMessage::from_bytes(&bytes[..short]), None);
            }
            assert_eq!(LeaseMessage::from_bytes(&[&bytes[..], &[0]].concat()), None);
        }
        let mut dice = 1u64;
        for len in 0..if cfg!(miri) { 200 } else { 10_000 } {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let bytes: Vec<u8> = (0..len % 90).map(|i| (dice >> (i % 57)) as u8).collect();
            let _ = LeaseMessage::from_bytes(&bytes);
        }
    }
}
