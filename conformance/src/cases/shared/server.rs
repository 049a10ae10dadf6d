//! A server whose endpoints share a receive queue, and its clients.

use fabric::{CompletionQueue, EndpointAttr, SharedReceiveQueue};

use crate::prelude::*;

/// Clients on domain a, each with a completion queue of its own, and their ends on domain b, which have one, and share
/// receives.
pub(super) struct SharedServer {
    pub(super) clients: Vec<End>,
    pub(super) ends: Vec<End>,
    pub(super) receives: SharedReceiveQueue,
    pub(super) queue: CompletionQueue,
    flag: Guarded,
}

/// Operations in a send queue.
pub(super) const SENDS: usize = 64;

impl SharedServer {
    /// `count` clients, with room for one more, and a shared queue for `depth` receives.
    #[track_caller]
    pub(super) fn new(rig: &Rig, count: usize, depth: usize) -> Result<Self, Failed> {
        let queue = rig.domain_b().completion_queue(depth + (count + 1) * SENDS)?;
        let receives = rig.domain_b().shared_receive_queue(depth, &queue)?;
        let flag = rig.buffer(rig.domain_b(), 8, Access::ALL)?;
        let mut server =
            SharedServer { clients: Vec::new(), ends: Vec::new(), receives, queue, flag };
        for _ in 0..count {
            server.add(rig)?;
        }
        Ok(server)
    }

    /// One more client.
    #[track_caller]
    pub(super) fn add(&mut self, rig: &Rig) -> Outcome {
        self.add_with(rig, |_| ())
    }

    /// One more client, with these settings.
    #[track_caller]
    pub(super) fn add_with(
        &mut self,
        rig: &Rig,
        settings: impl FnOnce(&mut EndpointAttr),
    ) -> Outcome {
        let client = rig.end_with(rig.domain_a(), |attr| {
            attr.send_depth = SENDS;
            settings(attr);
        })?;
        let end = rig.end_sharing(rig.domain_b(), &self.queue, &self.receives, |attr| {
            attr.send_depth = SENDS;
        })?;
        rig.connect(&client, &end)?;
        self.clients.push(client);
        self.ends.push(end);
        Ok(())
    }

    /// Memory of the server, in slots of `len` bytes.
    #[track_caller]
    pub(super) fn inbox(&self, count: usize, len: usize) -> Result<Guarded, Failed> {
        self.ends[0].buffer(count * len)
    }

    /// Posts the slots as receives, with their numbers as contexts.
    #[track_caller]
    pub(super) fn post(
        &self,
        inbox: &Guarded,
        len: usize,
        slots: impl IntoIterator<Item = usize>,
    ) -> Outcome {
        for slot in slots {
            self.receives.recv(inbox.slice(slot * len..(slot + 1) * len), slot as u64)?;
        }
        Ok(())
    }

    /// The next completion of the server's queue is this one, of the end with this number.
    #[track_caller]
    pub(super) fn expect(&self, end: usize, done: Done) -> Result<Completion, Failed> {
        let seen = self.ends[end].expect(done)?;
        check_eq!(seen.endpoint, self.ends[end].id(), "the endpoint of {seen:?}");
        Ok(seen)
    }

    /// Which end a completion is of.
    #[track_caller]
    pub(super) fn end_of(&self, seen: &Completion) -> Result<usize, Failed> {
        match self.ends.iter().position(|end| end.id() == seen.endpoint) {
            Some(end) => Ok(end),
            None => fail!("a completion of an endpoint of the server", "{seen:?}"),
        }
    }

    /// When it returns, all that the client posted before has ended well.
    #[track_caller]
    pub(super) fn settle(&self, client: usize) -> Outcome {
        const CONTEXT: u64 = u64::from_be_bytes(*b" settle ");
        let client = &self.clients[client];
        client.post(&Op::inject_write(&[1; 8], self.flag.at(0)).context(CONTEXT))?;
        client.expect_ok(CONTEXT)?;
        Ok(())
    }

    /// Nothing more comes to the server, and its queue has `left` receives.
    #[track_caller]
    pub(super) fn expect_left(&self, left: usize) -> Outcome {
        self.ends[0].expect_none_for(Duration::from_millis(20))?;
        check_eq!(self.receives.len(), left, "receives that are left");
        Ok(())
    }
}
