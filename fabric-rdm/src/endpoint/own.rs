//! The endpoint's connection to itself, by which its one-sided operations to itself go.
//!
//! It is one of the provider's, like that to any other peer, so that ranges, rights, keys and atomics are checked and executed by
//! what does it for all others. Both ends are here: nothing is agreed upon, and it is closed whenever nothing is under way. It
//! counts not among those to peers, which may have all places and wait for this endpoint.

use std::collections::VecDeque;
use std::time::Duration;

use fabric::Endpoint;
use fabric_core::info::MAX_CONNECT_DATA;
use fabric_core::{EndpointId, Result};

use super::posting::has_to_wait;
use super::shortage::Taken;
use super::slots::Posting;
use super::table::OpKey;
use crate::connection::DeathCause;
use crate::peers::Peer;

/// An operation to oneself: a one-sided one, or a message behind such.
#[derive(Clone, Copy)]
pub(super) struct OwnOp {
    pub(super) key: OpKey,
    /// Of a write that the endpoint is to hear of.
    pub(super) immediate: Option<u32>,
}

/// Both ends of the connection.
pub(super) struct Ends {
    pub(super) initiator: Endpoint,
    /// Once the request has come.
    pub(super) target: Option<Endpoint>,
    /// What the request carries, which no other process knows.
    pub(super) hello: [u8; MAX_CONNECT_DATA],
    pub(super) is_connected: bool,
    /// An operation has failed: the event that says that it is over is still to come.
    pub(super) has_failed: bool,
    /// It is over, and what is posted has not ended.
    pub(super) is_lost: bool,
    /// What they take of the process.
    pub(super) taken: [Option<Taken<'static>>; 2],
}

/// The endpoint among its own peers.
#[derive(Default)]
pub(super) struct Own {
    /// Its own handle, once the application has inserted its address.
    pub(super) peer: Option<Peer>,
    /// Why it is down.
    pub(super) death: Option<DeathCause>,
    pub(super) ends: Option<Box<Ends>>,
    /// What waits, in the order of its posts: for the connection, for room in it, or for what is before it.
    pub(super) queue: VecDeque<OwnOp>,
    /// What the provider has, in the order of its posts, which is that of its ends.
    pub(super) posted: VecDeque<OwnOp>,
    /// The number of the next one that is posted.
    next_post: u64,
    /// What was posted to a connection that is over, and may have been executed.
    pub(super) unsure: VecDeque<OwnOp>,
    /// An operation has ended by a refusal: no other one is the one that is lost.
    pub(super) refused: bool,
    /// Attempts that failed in a row, since when, and when the next one is due, or the next look for room.
    pub(super) failed: u32,
    pub(super) dialing_since: Option<Duration>,
    pub(super) next_try: Option<Duration>,
}

impl Own {
    /// Whether an endpoint of `fabric` is one of the ends.
    pub(super) fn has_end(&self, endpoint: EndpointId) -> bool {
        self.ends.as_ref().is_some_and(|ends| {
            ends.initiator.id() == endpoint
                || ends.target.as_ref().is_some_and(|target| target.id() == endpoint)
        })
    }

    /// Whether one-sided operations, or what waits behind them, have not ended.
    pub(super) fn is_busy(&self) -> bool {
        !self.queue.is_empty() || self.is_under_way()
    }

    /// Whether operations are posted, or have failed and the end of the connection is still to come: what is behind them waits.
    pub(super) fn is_under_way(&self) -> bool {
        !self.posted.is_empty() || self.ends.as_ref().is_some_and(|ends| ends.has_failed)
    }

    /// Whether there is a connection with nothing under way.
    pub(super) fn rests(&self) -> bool {
        self.ends.as_ref().is_some_and(|ends| ends.is_connected) && !self.is_busy()
    }

    /// Posts one operation. False: it has to wait.
    pub(super) fn post(
        &mut self,
        depth: u32,
        op: OwnOp,
        post: impl FnOnce(u64, &Endpoint) -> Result<()>,
    ) -> Result<bool> {
        let ends = self.ends.as_ref().filter(|ends| ends.is_connected && !ends.has_failed);
        let Some(ends) = ends.filter(|_| self.posted.len() < depth as usize) else {
            return Ok(false);
        };
        match post(Posting::Sent(self.next_post).to_bits(), &ends.initiator) {
            Ok(()) => {
                self.posted.push_back(op);
                self.next_post += 1;
                Ok(true)
            }
            Err(error) if has_to_wait(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The operation with this number has completed, and each before it has. `None`: it is of a connection that was closed.
    pub(super) fn completed(&mut self, endpoint: EndpointId, number: u64) -> Option<OwnOp> {
        let oldest = self.next_post - self.posted.len() as u64;
        let is_it = self.has_end(endpoint) && number == oldest;
        is_it.then(|| self.posted.pop_front()).flatten()
    }

    /// An operation has ended with the connection, which is over, or refused.
    pub(super) fn on_failed(&mut self, op: OwnOp, is_refused: bool) {
        self.ends.iter_mut().for_each(|ends| ends.has_failed = true);
        self.refused |= is_refused;
        if !is_refused {
            self.unsure.push_back(op);
        }
    }

    /// Takes a message or operation out that was not posted.
    pub(super) fn take_queued(&mut self, key: OpKey) -> Option<OwnOp> {
        let at = self.queue.iter().position(|op| op.key == key)?;
        self.queue.remove(at)
    }

    /// Forgets all but whose it is, and closes the connection.
    pub(super) fn begin_anew(&mut self) {
        *self = Own { peer: self.peer, ..Own::default() };
    }

    /// Its state, for a report.
    pub(super) fn dump(&self) -> String {
        let state = match &self.ends {
            None => "not connected",
            Some(ends) if ends.is_connected => "connected",
            Some(_) => "connecting",
        };
        let (queued, posted) = (self.queue.len(), self.posted.len());
        let death = self.death;
        format!("itself: {state} {death:?}, {queued} queued, {posted} posted\n")
    }

    /// Closes both ends. What was posted to them ends with them.
    pub(super) fn close(&mut self) {
        self.ends = None;
        self.next_post = self.posted.len() as u64;
    }
}
