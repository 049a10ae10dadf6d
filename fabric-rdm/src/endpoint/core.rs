//! The endpoint under its lock: links by peer, and one turn of progress.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use fabric::{Completion as RawCompletion, Listener};
use fabric_core::{Error, Event, Result, cold_path, unlikely};

use super::appointments::Appointments;
use super::attempts::Attempts;
use super::completion::Completion;
use super::held::HeldRequests;
use super::link::PeerLink;
use super::own::Own;
use super::shared::Shared;
use super::shortage::Shortage;
use super::slots::Posting;
use crate::address::Address;
use crate::connection::{DeathCause, PeerConnection};
use crate::peers::{Peer, Peers};

/// Completions that are taken from `fabric` at a time.
const BATCH: usize = 64;
/// So many times in one turn.
const TURNS: usize = 16;

pub(super) struct Core {
    pub(super) peers: Peers<Option<Box<PeerLink>>>,
    pub(super) shared: Shared,
    pub(super) listener: Listener,
    /// The endpoint itself among its peers.
    pub(super) own: Own,
    raw: Box<[RawCompletion]>,
    /// Peers with a connection, or an attempt at one.
    pub(super) open: Vec<Peer>,
    /// How many attempts there are, and may be.
    pub(super) attempts: Attempts,
    /// Those that wait until there are fewer.
    pub(super) waiting: VecDeque<Peer>,
    /// When room is looked for again, if any wait for it.
    pub(super) next_room: Duration,
    /// Requests that wait for the same.
    pub(super) held: HeldRequests,
    /// When those come again for which there is no room either.
    pub(super) appointments: Appointments,
    /// A want of descriptors and the like: attempts wait.
    pub(super) shortage: Shortage,
    /// Requests wait that can be answered, and were not in the last turn.
    pub(super) more_requests: bool,
    /// The next place is for an attempt, if one waits, and not for a request.
    pub(super) is_own_turn: bool,
    /// When state machines have to be called.
    pub(super) timers: BTreeSet<(Duration, Peer)>,
    /// When one more peer is to give back places that others wait for.
    pub(super) next_recall: Option<Duration>,
}

impl Core {
    pub(super) fn new(shared: Shared, listener: Listener) -> Result<Self> {
        Ok(Core {
            listener,
            own: Own::default(),
            raw: vec![RawCompletion::default(); BATCH].into(),
            open: Vec::new(),
            attempts: Attempts::new(shared.attr.max_open),
            appointments: Appointments::new(shared.attr.timeouts.connect / 2),
            peers: Peers::new(shared.attr.max_peers)?,
            shared,
            waiting: VecDeque::new(),
            next_room: Duration::ZERO,
            held: HeldRequests::default(),
            shortage: Shortage::new(),
            more_requests: false,
            is_own_turn: false,
            timers: BTreeSet::new(),
            next_recall: None,
        })
    }

    /// A peer's link, which is made if there is none.
    #[inline]
    pub(super) fn link(&mut self, peer: Peer) -> Result<(&mut PeerLink, &mut Shared)> {
        let (address, state) = self.peers.get_mut(peer)?;
        let link = match state {
            Some(link) => link,
            None => state.insert(new_link(&mut self.shared, peer, address)?),
        };
        Ok((link, &mut self.shared))
    }

    /// Why a peer is down.
    pub(super) fn death_of(&mut self, peer: Peer) -> Option<DeathCause> {
        match self.own.peer == Some(peer) {
            true => self.own.death,
            false => self.find_link(peer).and_then(|(link, _)| link.connection.death()),
        }
    }

    /// A peer's link, if it has one.
    pub(super) fn find_link(&mut self, peer: Peer) -> Option<(&mut PeerLink, &mut Shared)> {
        let (_, state) = self.peers.get_mut(peer).ok()?;
        Some((state.as_mut()?, &mut self.shared))
    }

    /// One turn: what `fabric` has for the endpoint, and what follows. Whether there was anything.
    pub(super) fn progress(&mut self) -> bool {
        let mut found = self.take_arrived();
        if !found {
            // Where it fails, the queue is over.
            let _ = self.shared.slots.on_idle();
        }
        if unlikely(self.more_requests) {
            found = true;
            self.on_requests();
        }
        while let Some(event) = self.shared.events.poll() {
            cold_path();
            found = true;
            self.on_event(event);
        }
        self.tick();
        self.pump();
        found
    }

    /// What has come arrives. Its senders may know that it has, so this is before what depends on that. Whether there was any.
    pub(super) fn take_arrived(&mut self) -> bool {
        let mut found = false;
        // Others have their turn, however fast a peer is.
        for _ in 0..TURNS {
            let taken = self.take_completions();
            found |= taken > 0;
            if taken < BATCH {
                break;
            }
        }
        found
    }

    /// Takes all that is in the queue by now. What a peer that never pauses sends meanwhile is not waited for.
    pub(super) fn take_queued(&mut self) {
        for _ in 0..=self.shared.queue.capacity() / BATCH {
            if self.take_completions() == 0 {
                break;
            }
        }
    }

    #[inline]
    fn take_completions(&mut self) -> usize {
        let taken = self.shared.queue.poll(&mut self.raw).unwrap_or(0); // in a forked child
        if taken > 0 {
            self.on_completions(taken);
        }
        taken
    }

    #[inline(never)] // not to be in the way of a poll that finds none
    fn on_completions(&mut self, count: usize) {
        for at in 0..count {
            let completion = self.raw[at];
            match Posting::of(&completion) {
                Posting::Slot(slot) => self.on_slot(slot, &completion),
                Posting::Sent(number) => self.on_sent(number, &completion),
            }
        }
    }

    #[inline(never)] // as above
    fn on_event(&mut self, event: Event) {
        match event {
            Event::Connected { endpoint, .. } if self.own.has_end(endpoint) => {
                self.on_own_connected(endpoint);
            }
            Event::ConnectFailed { endpoint, error } if self.own.has_end(endpoint) => {
                self.on_own_connect_failed(&error);
            }
            Event::Connected { endpoint, data } => self.on_connected(endpoint, &data),
            Event::ConnectFailed { endpoint, error } => self.on_connect_failed(endpoint, &error),
            // What came by a connection before its end, or before its peer asked for another one, is in the queue by now.
            Event::Disconnected { endpoint, .. } => {
                self.take_queued();
                match self.own.has_end(endpoint) {
                    true => self.on_own_disconnected(),
                    false => self.on_disconnected(endpoint),
                }
            }
            Event::ConnectRequest { .. } => self.on_requests(),
            Event::DeviceLost => self.on_device_lost(),
            _ => {}
        }
    }

    /// Looks at the links that changed, until none has.
    #[inline]
    pub(super) fn pump(&mut self) {
        if self.shared.windows.has_grant() || !self.shared.dirty.is_empty() {
            self.pump_changed();
        }
    }

    #[inline(never)] // not to be in the way of each poll
    fn pump_changed(&mut self) {
        loop {
            while let Some((account, grant)) = self.shared.windows.take_grant() {
                let peer = self.shared.account_of(account);
                if let Some((link, shared)) = peer.and_then(|peer| self.find_link(peer)) {
                    link.add_grant(grant);
                    link.mark(shared);
                }
            }
            let Some(peer) = self.shared.dirty.pop_front() else { return };
            if let Some((link, _)) = self.find_link(peer) {
                link.dirty = false;
                self.settle(peer);
            }
        }
    }

    /// Takes completions; says how many.
    pub(super) fn take(&mut self, out: &mut [Completion]) -> usize {
        let (taken, frees) = self.shared.take(out);
        if frees {
            // Places that the peers are to know of.
            self.pump();
        }
        taken
    }

    /// The state as text.
    pub(super) fn dump(&self) -> String {
        let Shared { sends, recvs, arrivals, deliveries, windows, dropped, .. } = &self.shared;
        let Shared { attempts, connected, .. } = &self.shared;
        let mut text = format!(
            "{} peers, {} connections ({connected} so far, {attempts} attempts at one); {} sends, {} receives ({} in the matcher), {} messages without a receive, \
             {} deliveries; dropped {dropped}; granted {:?}\n",
            self.peers.len(),
            self.open.len(),
            sends.len(),
            recvs.len(),
            self.shared.matcher.posted_len(),
            arrivals.len(),
            deliveries.len(),
            windows.granted(),
        );
        if self.own.peer.is_some() {
            text += &self.own.dump();
        }
        for (peer, address, link) in self.peers.iter() {
            let Some(link) = link else { continue };
            let posted: usize = link.conns.iter().map(|conn| conn.posted.len()).sum();
            text += &format!(
                "{peer} {}: {:?} {:?}, {} outstanding, {} queued, {posted} posted, {} awaiting, {} incoming\n",
                address.identity(),
                link.connection.phase(),
                link.connection.death(),
                link.live,
                link.queue.len(),
                link.awaiting.len(),
                link.incoming.len(),
            );
        }
        text
    }

    /// What a call has to fail with that needs the device.
    pub(super) fn check_device(&self) -> Result<()> {
        if self.shared.device_lost { Err(Error::DeviceLost) } else { Ok(()) }
    }
}

#[cold]
fn new_link(shared: &mut Shared, peer: Peer, address: &Address) -> Result<Box<PeerLink>> {
    let connection = PeerConnection::new(shared.me, address.identity(), shared.attr.timeouts)
        .after(shared.removed_attempts);
    let account = shared.open_account(peer)?;
    Ok(Box::new(PeerLink::new(peer, connection, account)))
}
