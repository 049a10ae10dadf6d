//! Reliable datagram endpoints for cases: made on the rig's domains, with waits that end.

mod site;

use std::fmt::Debug;
use std::ops::Deref;
use std::panic::Location;
use std::thread;
use std::time::{Duration, Instant};

use fabric::{Access, Domain};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Completion, Endpoint, Kind, Peer, PostError, RdmAttr, Recv, Send, Status};

use crate::check::{Failed, Outcome};
use crate::guarded::Guarded;
use crate::rig::Rig;

pub(crate) use site::Site;

/// Lengths around the limits of each way that a payload goes.
pub(crate) const LENGTHS: [usize; 12] =
    [0, 1, 64, 224, 225, 4096, 8160, 8161, 20_000, 32 << 10, 100_000, 1 << 20];

impl From<PostError> for Failed {
    #[track_caller]
    fn from(error: PostError) -> Self {
        Failed::new("a post that succeeds", error.to_string())
    }
}

/// An endpoint, here or at the other host, with what a case needs beside it.
#[derive(Debug)]
pub(crate) struct RdmEnd<'a> {
    site: Site,
    rig: &'a Rig,
    /// In the transcript.
    name: String,
}

impl Deref for RdmEnd<'_> {
    type Target = Site;

    fn deref(&self) -> &Site {
        &self.site
    }
}

/// Two endpoints that know each other.
pub(crate) struct RdmPair<'a> {
    pub(crate) a: RdmEnd<'a>,
    pub(crate) b: RdmEnd<'a>,
    pub(crate) to_b: Peer,
    pub(crate) to_a: Peer,
}

impl<'a> RdmEnd<'a> {
    /// With these settings, on `domain`.
    #[track_caller]
    pub(crate) fn new(
        rig: &'a Rig,
        domain: &Domain,
        settings: impl FnOnce(&mut RdmAttr),
    ) -> Result<Self, Failed> {
        let mut attr = RdmAttr::default();
        attr.listen = Some(rig.addr(domain));
        attr.timeouts.connect = rig.scaled(attr.timeouts.connect);
        attr.timeouts.attempt = rig.connect_timeout();
        settings(&mut attr);
        let name = rig.name_other(domain);
        let site = match rig.far(domain) {
            None => Site::Here(Endpoint::new(domain, &attr)?),
            Some(link) => Site::There(link.endpoint(domain, attr)?),
        };
        Ok(RdmEnd { site, rig, name })
    }

    /// A buffer with every right.
    #[track_caller]
    pub(crate) fn buffer(&self, len: usize) -> Result<Guarded, Failed> {
        self.rig_buffer(len, Access::ALL)
    }

    /// A buffer with these rights.
    #[track_caller]
    pub(crate) fn rig_buffer(&self, len: usize, access: Access) -> Result<Guarded, Failed> {
        self.rig.buffer(self.domain(), len, access)
    }

    /// The same, with a pattern of the case in it.
    #[track_caller]
    pub(crate) fn patterned(&self, len: usize, index: usize) -> Result<Guarded, Failed> {
        let buffer = self.buffer(len)?;
        buffer.put_pattern(.., self.rig.pattern(index))?;
        Ok(buffer)
    }

    /// How long a case waits for anything: a connection may have to be made for it.
    fn patience(&self) -> Duration {
        self.rig.connect_timeout()
    }

    /// The next completion.
    #[track_caller]
    pub(crate) fn next(&self) -> Result<Completion, Failed> {
        let place = Location::caller();
        let patience = self.patience();
        match self.wait_one(Some(patience)) {
            Ok(completion) => {
                self.record(&completion);
                Ok(completion)
            }
            Err(error) => {
                let expected = format!("a completion within {patience:?}");
                let failed = Failed::at(place, expected, error.to_string());
                Err(failed.with_dump(format!("{}\n{}", self.dump(), self.rig.dump())))
            }
        }
    }

    /// Sends and receives end independently of each other, and operations with several peers in no order.
    fn record(&self, done: &Completion) {
        let Completion { kind, status, tag, len, message_len, offset, immediate, context, .. } =
            done;
        let side = if matches!(kind, Kind::Recv | Kind::Released | Kind::RecvWrite) {
            "recv"
        } else {
            "send"
        };
        let text = format!(
            "{kind:?} {context} {status:?} {len} of {message_len} at {offset}, {tag:?} {immediate:?}"
        );
        self.rig.record(format!("{} rdm {side}", self.name), text);
    }

    /// The next completion is of this kind, with this context and status.
    #[track_caller]
    pub(crate) fn expect(
        &self,
        kind: Kind,
        context: u64,
        status: Status,
    ) -> Result<Completion, Failed> {
        let place = Location::caller();
        let done = self.next()?;
        if (done.kind, done.context, done.status) == (kind, context, status) {
            return Ok(done);
        }
        let expected = format!("{kind:?} {context}: {status:?}");
        Err(Failed::at(place, expected, format!("{done:?}")).with_dump(self.dump()))
    }

    /// The next completions, in any order, are of these kinds, with these contexts and statuses.
    #[track_caller]
    pub(crate) fn expect_all(&self, expected: &[(Kind, u64, Status)]) -> Outcome {
        let place = Location::caller();
        let mut seen = Vec::new();
        for _ in expected {
            let done = self.next().map_err(|failed| failed.of(format!("{expected:?}")))?;
            seen.push((done.kind, done.context, done.status));
        }
        let sorted = |all: &[(Kind, u64, Status)]| {
            let mut all: Vec<_> = all.iter().map(|one| format!("{one:?}")).collect();
            all.sort();
            all
        };
        let (expected, seen) = (sorted(expected), sorted(&seen));
        if expected == seen {
            return Ok(());
        }
        Err(Failed::at(place, format!("{expected:?}"), format!("{seen:?}")))
    }

    /// The next completion is that of the oldest operation, which the target refused. Over a link that loses packets the
    /// refusal may be lost; then the peer is.
    #[track_caller]
    pub(crate) fn refused(&self, kind: Kind, context: u64) -> Outcome {
        let place = Location::caller();
        let done = self.next()?;
        let is_refusal = done.status == Status::RemoteAccess
            || self.rig.is_lossy() && done.status == Status::PeerLost;
        if is_refusal && (done.kind, done.context) == (kind, context) {
            return Ok(());
        }
        let expected = format!("{kind:?} {context}: {:?}", Status::RemoteAccess);
        Err(Failed::at(place, expected, format!("{done:?}")).with_dump(self.dump()))
    }

    /// The next completion is a send's.
    #[track_caller]
    pub(crate) fn sent(&self, context: u64) -> Outcome {
        self.expect(Kind::Send, context, Status::Ok).map(drop)
    }

    /// The next completion is a receive's, with a message of this length.
    #[track_caller]
    pub(crate) fn received(&self, context: u64, len: usize) -> Result<Completion, Failed> {
        let place = Location::caller();
        let done = self.expect(Kind::Recv, context, Status::Ok)?;
        if done.len == len as u64 && done.message_len == len as u64 {
            return Ok(done);
        }
        Err(Failed::at(place, format!("a message of {len} bytes"), format!("{done:?}")))
    }

    /// The next completion is of a peer's write, with this length and data.
    #[track_caller]
    pub(crate) fn written(&self, by: Peer, len: usize, data: u32) -> Outcome {
        let place = Location::caller();
        let done = self.expect(Kind::RecvWrite, 0, Status::Ok)?;
        let lens = (done.len, done.message_len, done.offset);
        let is_it = lens == (len as u64, len as u64, 0)
            && (done.peer, done.immediate, done.tag) == (Some(by), Some(data), None);
        if is_it {
            return Ok(());
        }
        let expected = format!("a write of {len} bytes with {data} by {by}");
        Err(Failed::at(place, expected, format!("{done:?}")).with_dump(self.dump()))
    }

    /// Nothing has completed by now.
    #[track_caller]
    pub(crate) fn nothing_at_once(&self) -> Outcome {
        match self.poll_one()? {
            Some(done) => Err(Failed::new("no completion", format!("{done:?}"))),
            None => Ok(()),
        }
    }

    /// Nothing completes for a while.
    #[track_caller]
    pub(crate) fn nothing(&self) -> Outcome {
        match self.wait_one(Some(Duration::from_millis(20))) {
            Ok(done) => Err(Failed::new("no completion", format!("{done:?}"))),
            Err(_) => Ok(()),
        }
    }

    /// Posts as soon as there is room, and gives the other endpoints their turns meanwhile.
    #[track_caller]
    pub(crate) fn when_room<T>(
        &self,
        mut post: impl FnMut() -> Result<T, PostError>,
    ) -> Result<T, Failed> {
        let place = Location::caller();
        let patience = self.patience();
        let until = Instant::now() + patience;
        loop {
            match post() {
                Err(PostError::Again(full)) if Instant::now() >= until => {
                    let expected = format!("room for a post within {patience:?}");
                    let failed = Failed::at(place, expected, full.to_string());
                    return Err(failed.with_dump(self.dump()));
                }
                Err(PostError::Again(_)) => std::thread::yield_now(),
                result => return Ok(result?),
            }
        }
    }

    /// Waits until `look` is true of the endpoint.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, look: impl Fn(&Self) -> bool) -> Outcome {
        let place = Location::caller();
        let patience = self.patience();
        let until = Instant::now() + patience;
        while !look(self) {
            let failed = match self.lost() {
                Some(error) => Failed::at(place, what, error.to_string()),
                None if Instant::now() >= until => {
                    Failed::at(place, what, format!("not within {patience:?}"))
                }
                None => {
                    thread::sleep(Duration::from_millis(1));
                    continue;
                }
            };
            return Err(failed.with_dump(self.dump()));
        }
        Ok(())
    }
}

impl<'a> RdmPair<'a> {
    /// On both domains of the rig.
    #[track_caller]
    pub(crate) fn new(rig: &'a Rig) -> Result<Self, Failed> {
        Self::with(rig, |_| ())
    }

    /// The same, with these settings at both.
    #[track_caller]
    pub(crate) fn with(rig: &'a Rig, settings: impl Fn(&mut RdmAttr)) -> Result<Self, Failed> {
        let a = RdmEnd::new(rig, rig.domain_a(), &settings)?;
        let b = RdmEnd::new(rig, rig.domain_b(), &settings)?;
        let (to_b, to_a) = (a.insert(b.address())?, b.insert(a.address())?);
        Ok(RdmPair { a, b, to_b, to_a })
    }

    /// A message each way: the connection is there.
    #[track_caller]
    pub(crate) fn greet(&self) -> Outcome {
        let (here, there) = (self.a.buffer(8)?, self.b.buffer(8)?);
        self.b.post_recv(&Recv::new(Pattern::tagged(u64::MAX), &there).context(1))?;
        self.a.post_recv(&Recv::new(Pattern::tagged(u64::MAX), &here).context(1))?;
        self.a.post_send(self.to_b, &Send::inject(b"hello").tag(u64::MAX).context(2))?;
        self.b.received(1, 5)?;
        self.a.sent(2)?;
        self.b.post_send(self.to_a, &Send::inject(b"hello").tag(u64::MAX).context(2))?;
        self.a.received(1, 5)?;
        self.b.sent(2)
    }
}

/// A post is refused in this way.
#[track_caller]
pub(crate) fn expect_refused<T: Debug>(
    posted: Result<T, PostError>,
    is_it: impl FnOnce(&PostError) -> bool,
) -> Outcome {
    match posted {
        Err(error) if is_it(&error) => Ok(()),
        other => Err(Failed::new("a post that is refused for its reason", format!("{other:?}"))),
    }
}
