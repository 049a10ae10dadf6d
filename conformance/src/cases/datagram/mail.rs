//! A datagram endpoint with its queue, and how a case sends until something comes.

use std::sync::atomic::{AtomicU32, Ordering};

use fabric::{AddressHandle, CompletionQueue, DatagramAttr, DatagramEndpoint, Domain};

use crate::check::check_says;
use crate::prelude::*;
use crate::target::is_secured;

/// How often a datagram is sent before it counts as one that never comes, and how long each time is waited for it.
const TRIES: usize = 20;
const PATIENCE: Duration = Duration::from_millis(250);

/// A datagram endpoint, and the queue that is its own.
pub(super) struct Mail {
    pub(super) end: DatagramEndpoint,
    pub(super) queue: CompletionQueue,
    domain: Domain,
    patience: Duration,
    sent: AtomicU32,
}

/// Whether the environment protects every domain; then it has been shown that none makes datagram endpoints.
pub(super) fn is_protected(rig: &Rig) -> Result<bool, Failed> {
    if is_secured() {
        expect_unprotected_only(rig.domain_a())?;
    }
    Ok(is_secured())
}

/// A domain with security refuses to make one, and names its level.
pub(super) fn expect_unprotected_only(domain: &Domain) -> Outcome {
    let queue = domain.completion_queue(512)?;
    let error =
        check_err!(domain.datagram_endpoint(&queue), Error::Unsupported(_), "with security");
    if domain.info().capabilities.contains(Capabilities::DATAGRAMS) {
        let level = domain.security().to_string();
        check_says(&error.to_string(), &[&level, "security"], "a domain with security")?;
    }
    check_eq!(queue.room(), 512, "room that is left");
    Ok(())
}

/// The settings of an endpoint that the other domain reaches.
pub(super) fn attr(rig: &Rig, domain: &Domain) -> DatagramAttr {
    let mut attr = DatagramAttr::default();
    attr.source = Some(rig.ip(domain));
    attr
}

impl Mail {
    #[track_caller]
    pub(super) fn open(rig: &Rig, domain: &Domain) -> Result<Self, Failed> {
        Self::open_with(rig, domain, |_| ())
    }

    #[track_caller]
    pub(super) fn open_with(
        rig: &Rig,
        domain: &Domain,
        settings: impl FnOnce(&mut DatagramAttr),
    ) -> Result<Self, Failed> {
        let mut attr = attr(rig, domain);
        settings(&mut attr);
        let queue = domain.completion_queue(attr.send_depth + attr.recv_depth)?;
        let end = domain.datagram_endpoint_with(&attr, &queue, &queue)?;
        let (domain, patience) = (domain.clone(), rig.scaled(PATIENCE));
        Ok(Mail { end, queue, domain, patience, sent: AtomicU32::new(0) })
    }

    /// One on each domain of the rig.
    #[track_caller]
    pub(super) fn pair(rig: &Rig) -> Result<(Self, Self), Failed> {
        Ok((Self::open(rig, rig.domain_a())?, Self::open(rig, rig.domain_b())?))
    }

    #[track_caller]
    pub(super) fn buffer(&self, rig: &Rig, len: usize) -> Result<Guarded, Failed> {
        rig.buffer(&self.domain, len, Access::LOCAL_WRITE)
    }

    /// The way to another endpoint.
    #[track_caller]
    pub(super) fn to(&self, other: &Mail) -> Result<AddressHandle, Failed> {
        Ok(self.end.resolve(&other.end.address())?)
    }

    /// The next completion, if one comes in time.
    #[track_caller]
    pub(super) fn next_within(&self, time: Duration) -> Result<Option<Completion>, Failed> {
        match self.queue.wait_one(Some(time)) {
            Ok(done) => {
                check_eq!(done.endpoint, self.end.id(), "the endpoint of {done:?}");
                Ok(Some(done))
            }
            Err(Error::TimedOut(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The next completion, which must come.
    #[track_caller]
    pub(super) fn next(&self) -> Result<Completion, Failed> {
        let done = self.next_within(self.patience * TRIES as u32)?;
        done.ok_or_else(|| Failed::new("a completion", "none came").with_dump(self.end.dump()))
    }

    /// Posts a datagram, and takes the completion of the send, which must be the next one.
    #[track_caller]
    pub(super) fn post(&self, to: &AddressHandle, op: &Op<'_>) -> Outcome {
        self.end.post_to(to, &op.context(u64::MAX))?;
        let done = self.next()?;
        check_eq!(
            (done.context, done.kind, done.status),
            (u64::MAX, OpKind::Send, Status::Ok),
            "{done:?}"
        );
        check_eq!(
            (done.source, done.immediate),
            (None, None),
            "source and data of a send in {done:?}"
        );
        Ok(())
    }

    /// Posts a datagram until `other`, which has a receive posted, has a completion.
    #[track_caller]
    pub(super) fn send_until_it_ends(
        &self,
        to: &AddressHandle,
        op: &Op<'_>,
        other: &Mail,
    ) -> Result<Completion, Failed> {
        for _ in 0..TRIES {
            self.post(to, op)?;
            if let Some(done) = other.next_within(other.patience)? {
                check!(done.kind.is_receive(), "a receive that ends, not {done:?}");
                return Ok(done);
            }
        }
        let expected = format!("one of {TRIES} datagrams to come");
        Err(Failed::new(expected, "none came").with_dump(other.end.dump()))
    }

    /// Sends the bytes with a number as immediate data to a receive of `other` of this length; what comes of earlier tries is
    /// passed over. Gives the completion, whose source is this endpoint.
    #[track_caller]
    pub(super) fn deliver<'a>(
        &self,
        to: &AddressHandle,
        from: impl Into<Slices<'a>>,
        other: &Mail,
        into: impl Into<Slices<'a>> + Copy,
    ) -> Result<Completion, Failed> {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        let op = Op::send(from).immediate(number);
        other.end.recv(into, 1)?;
        for _ in 0..TRIES {
            let done = self.send_until_it_ends(to, &op, other)?;
            check!(done.is_ok(), "a receive that ends well, not {done:?}");
            if done.immediate == Some(number) {
                check_eq!(done.source, Some(self.end.address()), "the source of {done:?}");
                check_eq!((done.context, done.kind), (1, OpKind::Recv), "{done:?}");
                return Ok(done);
            }
            other.end.recv(into, 1)?;
        }
        Err(Failed::new(format!("the datagram with the number {number}"), "older ones alone came"))
    }

    /// Whether the endpoint still passes a datagram of a few bytes.
    #[track_caller]
    pub(super) fn expect_alive(&self, rig: &Rig, other: &Mail) -> Outcome {
        let (source, target) = (self.buffer(rig, 24)?, other.buffer(rig, 24)?);
        source.put_pattern(.., rig.pattern(77))?;
        let done = self.deliver(&self.to(other)?, &source, other, &target)?;
        check_eq!(done.len, 24, "length of {done:?}");
        target.check_pattern(.., rig.pattern(77))
    }
}
