//! A domain of the provider with a queue and a region.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy does not take for tests

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use fabric::{Access, Catalog, Choice, CompletionQueue, Domain, Endpoint, Hints, Region};
use provider_shm::ShmProvider;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// The memory of a connection's rings.
#[allow(dead_code, reason = "not all tests look at it")]
pub(crate) const RINGS: usize = 4096 + 2 * (128 << 10);

/// Sends bytes by a socket, with a descriptor or without one.
#[allow(dead_code, reason = "not all tests do")]
pub(crate) fn say(
    socket: impl AsFd,
    bytes: &[u8],
    file: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let files = file.as_slice();
    assert!(files.is_empty() || beside.push(SendAncillaryMessage::ScmRights(files)));
    sendmsg(socket, &[IoSlice::new(bytes)], &mut beside, flags | SendFlags::NOSIGNAL)
}

pub(crate) struct Side {
    pub(crate) domain: Domain,
    pub(crate) queue: CompletionQueue,
    pub(crate) region: Region,
}

impl Side {
    pub(crate) fn new(region: usize) -> Self {
        let catalog = Catalog::empty().add(ShmProvider::new()).unwrap();
        let domain = catalog.open_with(&Choice::Auto, &Hints::default()).unwrap();
        let queue = domain.completion_queue(1024).unwrap();
        let region = domain.alloc(region, Access::ALL).unwrap();
        Side { domain, queue, region }
    }

    /// A connection to a listener, and what that said.
    #[allow(dead_code, reason = "not all tests are of two processes")]
    pub(crate) fn connect(&self, to: &str, data: &[u8]) -> (Endpoint, Box<[u8]>) {
        let endpoint = self.endpoint();
        endpoint.connect(to.parse().unwrap(), data).unwrap();
        let said = endpoint.wait_connected(Some(Duration::from_secs(20))).unwrap();
        (endpoint, said)
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        self.domain.endpoint().build(&self.queue).unwrap()
    }
}
