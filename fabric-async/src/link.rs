//! The inside of a connection: its endpoint, and how work gets posted to it.

use std::sync::{Arc, OnceLock};

use fabric::{DisconnectReason, Endpoint, EndpointState, Recv};
use smallvec::SmallVec;

use crate::cargo::{Cargo, Piece};
use crate::error::{Error, Result};
use crate::hello::Hello;
use crate::lane::Lane;
use crate::lease::{At, Control};
use crate::node::NodeInner;
use crate::ops::Phase;

/// Receives that are posted in one call.
const BATCH: usize = 16;

pub(crate) struct Link {
    // Declared first: quiet before anything else goes.
    pub(crate) endpoint: Endpoint,
    pub(crate) lane: Arc<Lane>,
    pub(crate) node: Arc<NodeInner>,
    pub(crate) settings: LinkSettings,
    /// What the peer said when the connection was made.
    pub(crate) peer: OnceLock<Hello>,
    pub(crate) control: OnceLock<Arc<Control>>,
    // Declared last.
    _sweep: Sweep,
}

/// Takes the completions that dropping an endpoint leaves, so that its buffers return at once.
struct Sweep(Arc<NodeInner>);

impl Drop for Sweep {
    fn drop(&mut self) {
        self.0.driver.sweep();
    }
}

/// What a connection is made with.
#[derive(Clone, Debug)]
pub(crate) struct LinkSettings {
    /// Receives that wait for messages.
    pub(crate) receives: usize,
    /// The longest message that is received.
    pub(crate) max_message: usize,
    /// Notifications that may wait for the application.
    pub(crate) notifications: usize,
}

impl Link {
    /// A link that is not connected, with its receives posted.
    pub(crate) fn new(node: &Arc<NodeInner>) -> Result<Arc<Link>> {
        let settings = node.options.link.clone();
        let endpoint = node.endpoint()?;
        let lane = Arc::new(Lane::default());
        node.enroll(endpoint.id(), &lane);
        let link = Link {
            endpoint,
            lane,
            node: node.clone(),
            settings,
            peer: OnceLock::new(),
            control: OnceLock::new(),
            _sweep: Sweep(node.clone()),
        };
        link.refill()?;
        Ok(Arc::new(link))
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.endpoint.state() == EndpointState::Connected
    }

    /// Why it can do nothing more.
    pub(crate) fn over(&self) -> Error {
        self.node.take_events();
        Error::Disconnected(self.lane.end().unwrap_or(DisconnectReason::Local))
    }

    /// Whether the peer takes a message of this length.
    #[inline]
    pub(crate) fn check_message(&self, len: usize) -> Result<()> {
        match self.peer.get().map_or(usize::MAX, |peer| peer.max_message as usize) {
            most if len <= most => Ok(()),
            most => Err(Error::TooLong { len, most }),
        }
    }

    /// Posts an operation whose cargo goes to the table; gives its place. `None` while the queue is full: then, and on
    /// errors, the cargo is still where it was.
    #[inline]
    pub(crate) fn post(
        &self,
        load: &mut Option<Cargo>,
        at: Option<&At>,
        post: impl FnOnce(&Cargo, u64, &Endpoint) -> fabric::Result<()>,
    ) -> Result<Option<u32>> {
        let table = &self.node.driver.table;
        let number = table.begin()?;
        let Some(mut place) = table.lock(number) else { return Ok(None) };
        // The lock is held over the post, so that whoever takes the completion finds the place filled.
        place.cargo = load.take().unwrap_or_default();
        match post(&place.cargo, u64::from(number), &self.endpoint) {
            Ok(()) => {
                place.phase = Phase::Flying;
                place.lane = Some(self.lane.clone());
                place.lease = at.and_then(|at| at.lease.clone());
                Ok(Some(number))
            }
            Err(error) => {
                *load = Some(std::mem::take(&mut place.cargo));
                drop(place);
                table.end(number);
                match error {
                    fabric::Error::Again => Ok(None),
                    fabric::Error::NotConnected => Err(self.over()),
                    other => Err(other.into()),
                }
            }
        }
    }

    /// Posts as many receives as there should be. What there is no memory for now is posted later.
    ///
    /// # Errors
    /// The pool's, if not a single receive is posted.
    pub(crate) fn refill(&self) -> Result<()> {
        let LinkSettings { receives, max_message, notifications } = self.settings;
        loop {
            let mut inbox = self.lane.inbox();
            // Each receive that is posted may become a message, or a notification; so few enough that both have room.
            let unread = inbox.messages.len();
            let room = notifications.saturating_sub(inbox.notifications.len());
            let posted = inbox.posted;
            let want = receives.saturating_sub(posted + unread).min(room.saturating_sub(posted));
            let want = want.min(BATCH);
            // Not one by one, unless that is all there are.
            if want == 0 || (posted > receives / 2 && want < receives / 4) {
                return Ok(());
            }
            inbox.posted += want;
            drop(inbox);
            let done = self.post_receives(want, max_message);
            let short = want - *done.as_ref().unwrap_or_else(|(count, _)| count);
            if short > 0 {
                let mut inbox = self.lane.inbox();
                inbox.posted -= short;
                let none = inbox.posted == 0 && inbox.messages.is_empty();
                return match done {
                    Err((_, error)) if none => Err(error),
                    _ => Ok(()),
                };
            }
        }
    }

    /// Posts some receives in one call; says how many if not all were.
    fn post_receives(&self, count: usize, len: usize) -> Result<usize, (usize, Error)> {
        let table = &self.node.driver.table;
        let mut places: SmallVec<[_; BATCH]> = SmallVec::new();
        let mut failure = None;
        for _ in 0..count {
            let begun = self.node.pool.alloc(len).and_then(|buffer| {
                let number = table.begin()?;
                Ok((buffer, number))
            });
            match begun {
                Ok((buffer, number)) => {
                    let Some(mut place) = table.lock(number) else { break };
                    place.cargo = Cargo::Receive(Piece::new(buffer, 0, len));
                    places.push((number, place));
                }
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let receives: SmallVec<[Recv<'_>; BATCH]> = places
            .iter()
            .map(|(number, place)| {
                let slice = match &place.cargo {
                    Cargo::Receive(piece) => piece.slice(),
                    _ => None,
                };
                let into = slice.map_or_else(fabric::Slices::none, Into::into);
                Recv::new(into, u64::from(*number))
            })
            .collect();
        let posted = match self.endpoint.post_recvs(&receives) {
            Ok(()) => places.len(),
            Err(batch) => {
                failure = Some(match batch.error {
                    fabric::Error::NotConnected => self.over(),
                    other => other.into(),
                });
                batch.posted
            }
        };
        drop(receives);
        for (index, (number, mut place)) in places.into_iter().enumerate() {
            if index < posted {
                place.phase = Phase::Abandoned;
                place.lane = Some(self.lane.clone());
            } else {
                let cargo = std::mem::take(&mut place.cargo);
                drop(place);
                cargo.land();
                table.end(number);
            }
        }
        match failure {
            Some(error) if posted < count => Err((posted, error)),
            _ => Ok(posted),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.node.strike(self.endpoint.id());
    }
}
