//! Numbers of errors, and what errors and statuses of ours become.

use std::ffi::c_int;

use fabric::{Error, Status};

use crate::abi::flags::{FI_EOPBADSTATE, FI_EOTHER, FI_ETRUNC};

/// The number of an error (`fi_errno(3)`), positive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    pub(crate) const INVALID: Errno = Errno(libc::EINVAL);
    pub(crate) const NO_MEMORY: Errno = Errno(libc::ENOMEM);
    pub(crate) const NOT_THERE: Errno = Errno(libc::ENOSYS);
    pub(crate) const NO_DATA: Errno = Errno(libc::ENODATA);
    pub(crate) const AGAIN: Errno = Errno(libc::EAGAIN);
    pub(crate) const BUSY: Errno = Errno(libc::EBUSY);
    pub(crate) const CANCELED: Errno = Errno(libc::ECANCELED);
    pub(crate) const BAD_STATE: Errno = Errno(FI_EOPBADSTATE);
    pub(crate) const OTHER: Errno = Errno(FI_EOTHER);
}

impl From<&Error> for Errno {
    fn from(error: &Error) -> Self {
        Errno(match error {
            Error::Again => libc::EAGAIN,
            Error::NotConnected => libc::ENOTCONN,
            Error::Busy => libc::EBUSY,
            Error::TimedOut(_) => libc::ETIMEDOUT,
            Error::Refused(_) | Error::Rejected(_) => libc::ECONNREFUSED,
            Error::Canceled => libc::ECANCELED,
            Error::DeviceLost => libc::ENODEV,
            Error::Unauthenticated(_) => libc::EACCES,
            Error::Unreachable(_) => libc::EHOSTUNREACH,
            Error::AddrInUse(_) => libc::EADDRINUSE,
            Error::InvalidArgument(_) => libc::EINVAL,
            Error::InvalidState(_) => FI_EOPBADSTATE,
            Error::Unsupported(_) => libc::EOPNOTSUPP,
            Error::NoMemory(_) => libc::ENOMEM,
            Error::NoProvider(_) => libc::ENODATA,
            Error::Internal(_) => libc::EIO,
            _ => FI_EOTHER,
        })
    }
}

impl From<Error> for Errno {
    fn from(error: Error) -> Self {
        let number = Errno::from(&error);
        // What a poster sees often is no news.
        if !matches!(error, Error::Again | Error::NotConnected | Error::Busy) {
            log::info!("{error}");
        }
        number
    }
}

/// The system's own number, or "out of memory" where there is none: the calls here only make descriptors.
impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Errno(error.raw_os_error())
    }
}

/// What an operation that ended so has in its error entry (`fi_cq(3)`); `None` if it ended well.
pub(crate) fn of_status(status: Status) -> Option<Errno> {
    Some(Errno(match status {
        Status::Ok => return None,
        Status::TooLong => FI_ETRUNC,
        Status::RemoteAccess => libc::EACCES,
        Status::PeerLost => libc::ECONNRESET,
        Status::Canceled => libc::ECANCELED,
        _ => libc::EIO,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_number() {
        for (error, number) in [
            (Error::Again, libc::EAGAIN),
            (Error::Refused(None), libc::ECONNREFUSED),
            (Error::Rejected(Box::new(Box::new([1]))), libc::ECONNREFUSED),
            (Error::invalid("send", "no"), libc::EINVAL),
            (Error::state("accept", "no"), FI_EOPBADSTATE),
            (Error::DeviceLost, libc::ENODEV),
        ] {
            assert_eq!(Errno::from(error), Errno(number));
        }
        assert_eq!(of_status(Status::Ok), None);
        assert_eq!(of_status(Status::Canceled), Some(Errno(libc::ECANCELED)));
    }
}
