//! The library's own types as they travel.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use fabric::provider::Failure;
use fabric::{AtomicScope, Capabilities, DisconnectReason, Error, Info, Limits, Status};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// By place in the list; new ones go to the end.
const STATUSES: [Status; 6] = [
    Status::Internal,
    Status::Ok,
    Status::TooLong,
    Status::RemoteAccess,
    Status::PeerLost,
    Status::Canceled,
];
/// As above.
const REASONS: [DisconnectReason; 7] = [
    DisconnectReason::Internal,
    DisconnectReason::Local,
    DisconnectReason::Remote,
    DisconnectReason::OperationFailed,
    DisconnectReason::PeerLost,
    DisconnectReason::Protocol,
    DisconnectReason::DeviceLost,
];

/// What is on no list is the first of it: internal errors.
fn number_of<T: PartialEq>(list: &[T], value: &T) -> u8 {
    list.iter().position(|known| known == value).unwrap_or(0) as u8
}

fn at<T: Copy>(list: &[T], number: u8) -> T {
    list.get(usize::from(number)).copied().unwrap_or(list[0])
}

pub(super) fn of_status(status: Status) -> u8 {
    number_of(&STATUSES, &status)
}

pub(super) fn status(number: u8) -> Status {
    at(&STATUSES, number)
}

pub(super) fn of_reason(reason: DisconnectReason) -> u8 {
    number_of(&REASONS, &reason)
}

pub(super) fn reason(number: u8) -> DisconnectReason {
    at(&REASONS, number)
}

/// As [`Error`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Fault {
    Again,
    NotConnected,
    Busy,
    TimedOut,
    Refused,
    Canceled,
    DeviceLost,
    Rejected(ByteBuf),
    Detailed {
        kind: Kind,
        operation: String,
        provider: String,
        detail: String,
        /// The system's error by its number, if it has one, or else in words.
        cause: Option<Result<i32, String>>,
    },
}

/// The errors that carry details.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Kind {
    Unreachable,
    AddrInUse,
    InvalidArgument,
    InvalidState,
    Unsupported,
    NoMemory,
    NoProvider,
    Internal,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Again => return Fault::Again,
            Error::NotConnected => return Fault::NotConnected,
            Error::Busy => return Fault::Busy,
            Error::TimedOut(_) => return Fault::TimedOut,
            Error::Refused(_) => return Fault::Refused,
            Error::Canceled => return Fault::Canceled,
            Error::DeviceLost => return Fault::DeviceLost,
            Error::Rejected(data) => return Fault::Rejected(ByteBuf::from(data.to_vec())),
            Error::Unreachable(_) => Kind::Unreachable,
            Error::AddrInUse(_) => Kind::AddrInUse,
            Error::InvalidArgument(_) => Kind::InvalidArgument,
            Error::InvalidState(_) => Kind::InvalidState,
            Error::Unsupported(_) => Kind::Unsupported,
            Error::NoMemory(_) => Kind::NoMemory,
            Error::NoProvider(_) => Kind::NoProvider,
            _ => Kind::Internal,
        };
        let (operation, provider, detail, cause) = match error.failure() {
            Some(f) => (f.operation, f.provider, f.detail.clone(), f.cause.as_ref()),
            None => ("call", "fabric", error.to_string(), None),
        };
        let cause = cause.map(|cause| cause.raw_os_error().ok_or_else(|| cause.to_string()));
        let (operation, provider) = (operation.to_owned(), provider.to_owned());
        Fault::Detailed { kind, operation, provider, detail, cause }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        let (kind, operation, provider, detail, cause) = match fault {
            Fault::Again => return Error::Again,
            Fault::NotConnected => return Error::NotConnected,
            Fault::Busy => return Error::Busy,
            Fault::TimedOut => return Error::TimedOut(None),
            Fault::Refused => return Error::Refused(None),
            Fault::Canceled => return Error::Canceled,
            Fault::DeviceLost => return Error::DeviceLost,
            Fault::Rejected(data) => {
                return Error::Rejected(Box::new(data.into_vec().into_boxed_slice()));
            }
            Fault::Detailed { kind, operation, provider, detail, cause } => {
                (kind, operation, provider, detail, cause)
            }
        };
        let mut failure = Failure::new(kept(&operation), detail).of(kept(&provider));
        if let Some(cause) = cause {
            failure = failure.because(match cause {
                Ok(number) => io::Error::from_raw_os_error(number),
                Err(text) => io::Error::other(text),
            });
        }
        match kind {
            Kind::Unreachable => Error::Unreachable(failure),
            Kind::AddrInUse => Error::AddrInUse(failure),
            Kind::InvalidArgument => Error::InvalidArgument(failure),
            Kind::InvalidState => Error::InvalidState(failure),
            Kind::Unsupported => Error::Unsupported(failure),
            Kind::NoMemory => Error::NoMemory(failure),
            Kind::NoProvider => Error::NoProvider(failure),
            Kind::Internal => Error::Internal(failure),
        }
    }
}

/// As [`Info`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct WireInfo {
    provider: String,
    version: String,
    device: String,
    description: String,
    addresses: Vec<IpAddr>,
    capabilities: u32,
    /// In the order of [`Limits::named`].
    limits: [u64; 12],
    cpu_atomics: bool,
    details: Vec<(String, String)>,
}

impl From<&Info> for WireInfo {
    fn from(info: &Info) -> Self {
        WireInfo {
            provider: info.provider.to_owned(),
            version: info.version.clone(),
            device: info.device.clone(),
            description: info.description.clone(),
            addresses: info.addresses.clone(),
            capabilities: info.capabilities.bits(),
            limits: info.limits.named().map(|(_, most)| most),
            cpu_atomics: info.atomic_scope == AtomicScope::Cpu,
            details: info.details.clone(),
        }
    }
}

impl From<&WireInfo> for Info {
    fn from(wire: &WireInfo) -> Self {
        let mut info = Info::new(kept(&wire.provider), wire.device.clone());
        info.version = wire.version.clone();
        info.description = wire.description.clone();
        info.addresses = wire.addresses.clone();
        info.capabilities = Capabilities::from_bits_truncate(wire.capabilities);
        info.limits = limits(wire.limits);
        if wire.cpu_atomics {
            info.atomic_scope = AtomicScope::Cpu;
        }
        info.details = wire.details.clone();
        info
    }
}

/// From the values of [`Limits::named`].
pub(crate) fn limits(values: [u64; 12]) -> Limits {
    let size = |value| usize::try_from(value).unwrap_or(usize::MAX);
    let mut limits = Limits::none();
    let [message, inject, send_segments, recv_segments, send_depth, recv_depth, rest @ ..] = values;
    let [cq_capacity, completion_queues, endpoints, regions, region_len, backlog] = rest;
    (limits.message, limits.inject, limits.region_len) = (message, size(inject), region_len);
    (limits.send_segments, limits.recv_segments) = (size(send_segments), size(recv_segments));
    (limits.send_depth, limits.recv_depth) = (size(send_depth), size(recv_depth));
    (limits.cq_capacity, limits.endpoints) = (size(cq_capacity), size(endpoints));
    limits.completion_queues = size(completion_queues);
    (limits.regions, limits.backlog) = (size(regions), size(backlog));
    limits
}

/// Names of operations and providers live for ever in this library. Those of another process are kept here: few, so
/// that no peer can fill the memory with them.
pub(super) fn kept(name: &str) -> &'static str {
    static NAMES: Mutex<Names> = Mutex::new(Names(BTreeSet::new()));
    // A set is whole between statements.
    NAMES.lock().unwrap_or_else(PoisonError::into_inner).keep(name)
}

struct Names(BTreeSet<&'static str>);

impl Names {
    const MOST: usize = 256;
    const LONGEST: usize = 64;

    fn keep(&mut self, name: &str) -> &'static str {
        if let Some(known) = self.0.get(name) {
            return known;
        }
        if self.0.len() == Self::MOST || name.len() > Self::LONGEST {
            return "remote";
        }
        let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
        self.0.insert(name);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carried<T: Serialize + for<'a> Deserialize<'a>>(value: &T) -> T {
        postcard::from_bytes(&postcard::to_stdvec(value).unwrap()).unwrap()
    }

    #[test]
    fn errors_arrive_as_they_were() {
        let refused = || io::Error::from_raw_os_error(libc::ECONNABORTED);
        for error in [
            Error::Again,
            Error::Rejected(Box::new(Box::new([1, 2]))),
            Error::invalid("send", "too long"),
            Error::unsupported("read", "tcp", "not here"),
            Error::system("connect", "verbs", refused()),
        ] {
            let text = format!("{error:?}");
            let back = Error::from(carried(&Fault::from(error)));
            assert_eq!(format!("{back:?}"), text);
        }
    }

    #[test]
    fn info_arrives_as_it_was() {
        let mut info = Info::new("tcp", "eth0");
        (info.version, info.description) = ("1".to_owned(), "a card".to_owned());
        info.addresses = vec![[10, 0, 0, 1].into()];
        info.capabilities = Capabilities::all();
        info.limits = limits(std::array::from_fn(|i| i as u64 + 1));
        info.atomic_scope = AtomicScope::Cpu;
        info.details = vec![("speed".to_owned(), "fast".to_owned())];
        assert_eq!(
            info.limits.named().map(|(_, value)| value),
            std::array::from_fn(|i| i as u64 + 1)
        );
        assert_eq!(Info::from(&carried(&WireInfo::from(&info))), info);
    }

    #[test]
    fn numbers_mean_the_same_both_ways() {
        for value in STATUSES {
            assert_eq!(status(of_status(value)), value);
        }
        for value in REASONS {
            assert_eq!(reason(of_reason(value)), value);
        }
        assert_eq!((status(99), reason(99)), (Status::Internal, DisconnectReason::Internal));
    }

    #[test]
    fn names_of_others_are_bounded() {
        let mut names = Names(BTreeSet::new());
        assert_eq!(names.keep("connect"), "connect");
        for i in 0..1000 {
            names.keep(&format!("name {i}"));
        }
        assert_eq!(names.0.len(), Names::MOST);
        assert_eq!((names.keep("one more"), names.keep("connect")), ("remote", "connect"));
    }
}
