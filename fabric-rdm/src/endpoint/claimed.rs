//! Messages that have not met a receive: finding and claiming them.

use std::ops::Deref;
use std::sync::Arc;

use fabric::Slice;
use fabric_core::{Error, Result};

use super::core::Core;
use super::handle::{Endpoint, OpId, Which};
use super::op::Recv;
use super::ops::Met;
use super::post_error::{Full, PostError};
use super::table::OpKey;
use crate::matching::{Envelope, MessageId, Pattern};

/// A message without a receive, as [`Endpoint::probe`] found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Probed {
    id: MessageId,
    /// What is known of it.
    pub envelope: Envelope,
    /// Its immediate data, if it carries some.
    pub immediate: Option<u32>,
}

impl Endpoint {
    /// Finds the oldest message of a pattern that has not met a receive. It stays there.
    ///
    /// # Errors
    /// `InvalidState` in a forked child.
    pub fn probe(&self, pattern: &Pattern) -> Result<Option<Probed>> {
        self.check("probe")?;
        Ok(self.driver.poll(|core| core.probe(pattern)))
    }

    /// As [`probe`](Endpoint::probe), without a poll: among those that were there at the last one.
    ///
    /// # Errors
    /// `InvalidState` in a forked child.
    pub fn peek(&self, pattern: &Pattern) -> Result<Option<Probed>> {
        self.check("peek")?;
        Ok(self.driver.look(|core| core.probe(pattern)))
    }

    /// Takes a message that was probed, so that no receive meets it. `None`: it was taken before.
    ///
    /// # Errors
    /// `InvalidState` in a forked child.
    pub fn claim(&self, probed: &Probed) -> Result<Option<Claimed<'_>>> {
        self.claim_for(EndpointRef::Borrowed(self), probed)
    }

    /// The same for one that has the endpoint in an `Arc`, so that what was claimed can be kept anywhere.
    ///
    /// # Errors
    /// As [`claim`](Endpoint::claim).
    pub fn claim_shared(self: &Arc<Self>, probed: &Probed) -> Result<Option<Claimed<'static>>> {
        self.claim_for(EndpointRef::Shared(self.clone()), probed)
    }

    fn claim_for<'a>(
        &self,
        endpoint: EndpointRef<'a>,
        probed: &Probed,
    ) -> Result<Option<Claimed<'a>>> {
        self.check("claim")?;
        let claimed = self.driver.call(|core| {
            let message = core.shared.matcher.claim(probed.id)?;
            let arrival = core.shared.arrivals.get_mut(message.payload)?;
            arrival.id = None;
            Some(message)
        });
        Ok(claimed.map(|message| Claimed {
            endpoint,
            key: Some(message.payload),
            envelope: message.envelope,
        }))
    }
}

/// A message that the application claimed: no receive meets it. It is [received](Claimed::receive), or dropped.
#[derive(Debug)]
pub struct Claimed<'a> {
    endpoint: EndpointRef<'a>,
    key: Option<OpKey>,
    envelope: Envelope,
}

#[derive(Debug)]
enum EndpointRef<'a> {
    Borrowed(&'a Endpoint),
    Shared(Arc<Endpoint>),
}

impl Deref for EndpointRef<'_> {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        match self {
            EndpointRef::Borrowed(endpoint) => endpoint,
            EndpointRef::Shared(endpoint) => endpoint,
        }
    }
}

impl Claimed<'_> {
    /// What is known of it.
    pub fn envelope(&self) -> Envelope {
        self.envelope
    }

    /// Receives it into `into`, with a completion as any receive has. After an error it is claimed as before.
    ///
    /// # Errors
    /// As [`Endpoint::post_recv`]; `InvalidState` if it was received before, or its peer was lost before all of it had come, or
    /// removed.
    pub fn receive<'s>(
        &mut self,
        into: impl Into<Slice<'s>>,
        context: u64,
    ) -> Result<OpId, PostError> {
        self.endpoint.check("receive")?;
        let recv = Recv::new(Pattern::untagged(), into).context(context);
        let (key, envelope) = (self.key, self.envelope);
        let received = self.endpoint.driver.call(|core| core.receive_claimed(key, envelope, &recv));
        if received.is_ok() {
            self.key = None;
        }
        received.map(|key| OpId(Which::Recv(key)))
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take()
            && self.endpoint.check("drop").is_ok()
        {
            self.endpoint.driver.call(|core| core.drop_arrival(key));
        }
    }
}

impl Core {
    fn probe(&mut self, pattern: &Pattern) -> Option<Probed> {
        let (id, envelope) = self.shared.matcher.probe(pattern)?;
        let arrival =
            self.shared.matcher.payload(id).and_then(|key| self.shared.arrivals.get(*key));
        Some(Probed { id, envelope, immediate: arrival.and_then(|arrival| arrival.immediate) })
    }

    fn receive_claimed(
        &mut self,
        key: Option<OpKey>,
        envelope: Envelope,
        recv: &Recv<'_>,
    ) -> Result<OpKey, PostError> {
        let gone = || Error::state("receive", "the message was received, or its peer is gone");
        let arrival =
            key.filter(|key| self.shared.arrivals.get(*key).is_some()).ok_or_else(gone)?;
        if self.shared.recvs_out >= self.shared.attr.recv_depth {
            return Err(Full::Depth.into());
        }
        let (recv_key, len) = (self.shared.add_recv(recv)?, recv.into.len() as u64);
        self.shared.recvs_out += 1;
        let len = len.min(envelope.len);
        let met = Met { recv: recv_key, receive: None, of_many: false, envelope, offset: 0, len };
        if let Some(arrival) = self.shared.arrivals.remove(arrival) {
            self.deliver_arrival(met, arrival);
        }
        self.pump();
        Ok(recv_key)
    }
}
