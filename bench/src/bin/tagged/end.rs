//! An endpoint with its memory, and messages with other tags that are in the way of the measured ones.

use std::time::Duration;

use fabric::{Access, Domain, Hints, Region};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Completion, Endpoint, Peer, PostError, RdmAttr, Recv, Send};

use crate::{Args, Outcome};

/// The tag of what is measured; others have higher ones.
const TAG: u64 = 1;
const OTHERS: u64 = 1 << 32;
/// How long anything may take that has to come.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// An endpoint, and memory for a message each way.
pub(crate) struct End {
    pub(crate) endpoint: Endpoint,
    pub(crate) source: Region,
    pub(crate) inbox: Region,
    other: Region,
}

/// Room for all that is posted and all that waits.
pub(crate) fn attr(args: &Args) -> RdmAttr {
    let mut attr = RdmAttr::default();
    attr.max_strangers = args.peers;
    attr.recv_depth += args.posted;
    let places = u64::from(args.unexpected) + attr.window.places.window;
    let bytes = u64::from(args.unexpected) * args.size as u64 + attr.window.bytes.window;
    for (resource, window) in [(&mut attr.window.places, places), (&mut attr.window.bytes, bytes)] {
        (resource.window, resource.total) = (window, resource.total.max(2 * window));
    }
    attr
}

impl End {
    pub(crate) fn new(args: &Args) -> Outcome<Self> {
        let domain = Domain::open(&Hints::default())?;
        let rights = Access::LOCAL_WRITE | Access::REMOTE_READ;
        let end = End {
            endpoint: Endpoint::new(&domain, &attr(args))?,
            source: domain.alloc(args.size, rights)?,
            inbox: domain.alloc(args.size, rights)?,
            other: domain.alloc(args.size, rights)?,
        };
        for number in 0..args.posted {
            let pattern = Pattern::tagged(OTHERS + u64::from(number));
            end.endpoint.post_recv(&Recv::new(pattern, &end.other))?;
        }
        Ok(end)
    }

    /// Sends what waits at the other end for a receive.
    pub(crate) fn send_unexpected(&self, args: &Args, to: Peer) -> Outcome {
        (0..args.unexpected).try_for_each(|number| {
            // Never received: these tags are not those of `posted`.
            self.send_tagged(to, 2 * OTHERS + u64::from(number))
        })
    }

    pub(crate) fn send(&self, to: Peer) -> Outcome {
        self.send_tagged(to, TAG)
    }

    fn send_tagged(&self, to: Peer, tag: u64) -> Outcome {
        let send = Send::new(&self.source).tag(tag).unsignaled();
        loop {
            match self.endpoint.post_send(to, &send) {
                // A place is free with the next word of the other end.
                Err(PostError::Again(_)) => self.endpoint.progress()?,
                posted => return Ok(posted.map(drop)?),
            }
        }
    }

    pub(crate) fn post_recv(&self) -> Outcome {
        Ok(self.endpoint.post_recv(&Recv::new(Pattern::tagged(TAG), &self.inbox)).map(drop)?)
    }

    /// Polls; gives those that have ended.
    pub(crate) fn poll<'a>(&self, out: &'a mut [Completion]) -> Outcome<&'a [Completion]> {
        let count = self.endpoint.poll(out)?;
        match out[..count].iter().find(|done| !done.is_ok()) {
            Some(done) => Err(format!("{done:?}").into()),
            None => Ok(&out[..count]),
        }
    }
}
