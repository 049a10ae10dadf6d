//! The others, as a member knows them.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use fabric_rdm::{Endpoint, Peer};

use crate::arrivals::Inbox;
use crate::content::PLACES;
use crate::words::Place;
use crate::{Outcome, text};

/// A member, and which life of the pair with it: each ends with a loss that is revived, or with a removal.
pub(crate) type LifeId = (u32, u32);

/// How a life ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Life {
    /// The operation that was the oldest when the peer was lost.
    pub(crate) first: Option<u64>,
    /// The peer was removed here.
    pub(crate) removed: bool,
}

/// Operations whose effects can be counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effects {
    pub(crate) posted: u64,
    /// The last one that ended well, or how many did.
    pub(crate) certain: u64,
}

pub(crate) struct Other {
    pub(crate) id: u32,
    /// It is never killed.
    pub(crate) steady: bool,
    pub(crate) place: Place,
    pub(crate) peer: Peer,
    pub(crate) removed: bool,
    /// It was killed, as the parent says.
    pub(crate) dead: bool,
    /// One of both removed the other.
    pub(crate) cut: bool,
    pub(crate) life: u32,
    /// It was lost, and the parent has not said why.
    pub(crate) unexplained: Option<Instant>,
    /// And messages are missing, as after a removal by the other side alone.
    pub(crate) misses: bool,
    pub(crate) revive_at: Option<Instant>,
    pub(crate) remove_at: Option<Instant>,
    /// Messages to it, and how many ended well.
    pub(crate) messages: Effects,
    pub(crate) adds: Effects,
    pub(crate) writes: [Effects; PLACES.len()],
    pub(crate) inbox: Inbox,
    /// Messages of it that ended well there.
    pub(crate) expected: Option<u64>,
}

impl Other {
    /// Nothing may be lost between both.
    pub(crate) fn is_strict(&self) -> bool {
        !self.dead && !self.cut
    }
}

/// How long the parent may take to say why a peer was lost.
pub(crate) const EXPLAINED: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct Roster {
    pub(crate) others: BTreeMap<u32, Other>,
    /// Of all handles that there ever were.
    handles: HashMap<Peer, u32>,
    pub(crate) lives: HashMap<LifeId, Life>,
    pub(crate) deaths: u64,
    pub(crate) revivals: u64,
}

impl Roster {
    pub(crate) fn insert(
        &mut self,
        endpoint: &Endpoint,
        (id, steady, place): (u32, bool, Place),
    ) -> Outcome {
        let peer = endpoint.insert(&place.address).map_err(text)?;
        self.name(peer, id)?;
        let other = Other {
            id,
            steady,
            place,
            peer,
            removed: false,
            dead: false,
            cut: false,
            life: 0,
            unexplained: None,
            misses: false,
            revive_at: None,
            remove_at: None,
            messages: Effects::default(),
            adds: Effects::default(),
            writes: Default::default(),
            inbox: Inbox::default(),
            expected: None,
        };
        self.others.insert(id, other);
        Ok(())
    }

    fn name(&mut self, peer: Peer, id: u32) -> Outcome {
        match self.handles.insert(peer, id) {
            Some(old) => Err(format!("a handle of its own for {id}, not that of {old}")),
            None => Ok(()),
        }
    }

    pub(crate) fn get(&mut self, id: u32) -> &mut Other {
        self.others.get_mut(&id).unwrap()
    }

    /// Whom a handle names, or named.
    pub(crate) fn of(&self, peer: Option<Peer>) -> Option<u32> {
        self.handles.get(&peer?).copied()
    }

    pub(crate) fn life(&mut self, id: LifeId) -> &mut Life {
        self.lives.entry(id).or_default()
    }

    /// Something shows that a peer was lost: the parent has to say why.
    pub(crate) fn lost(&mut self, id: u32, revive_at: Instant) {
        let other = self.get(id);
        if other.is_strict() {
            other.unexplained.get_or_insert_with(Instant::now);
        }
        other.revive_at.get_or_insert(revive_at);
    }

    pub(crate) fn died(&mut self, id: u32, remove_at: Instant) -> Outcome {
        self.deaths += 1;
        let other = self.get(id);
        (other.dead, other.unexplained, other.remove_at) = (true, None, Some(remove_at));
        if other.misses && !other.cut {
            return Err(format!("that {id} keeps to the protocol, also if it is killed"));
        }
        Ok(())
    }

    pub(crate) fn was_cut(&mut self, id: u32) {
        let other = self.get(id);
        (other.cut, other.unexplained) = (true, None);
    }

    /// Takes a peer for alive again, if it is down.
    pub(crate) fn revive(&mut self, endpoint: &Endpoint, id: u32) -> Outcome {
        let other = self.get(id);
        other.revive_at = None;
        if endpoint.down(other.peer).map_err(text)?.is_some() {
            endpoint.revive(other.peer).map_err(text)?;
            other.life += 1;
            self.revivals += 1;
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, endpoint: &Endpoint, id: u32) -> Outcome {
        let other = self.get(id);
        endpoint.remove(other.peer).map_err(text)?;
        (other.removed, other.remove_at, other.revive_at) = (true, None, None);
        let life = (id, other.life);
        self.life(life).removed = true;
        // Its handle names no peer any more.
        match endpoint.down(self.get(id).peer) {
            Err(_) => Ok(()),
            Ok(_) => Err(format!("that {id} is removed")),
        }
    }

    /// Removes a peer that lives, and inserts it again.
    pub(crate) fn cut(&mut self, endpoint: &Endpoint, id: u32) -> Outcome {
        self.remove(endpoint, id)?;
        let other = self.get(id);
        let peer = endpoint.insert(&other.place.address).map_err(text)?;
        (other.peer, other.cut, other.removed, other.unexplained) = (peer, true, false, None);
        other.life += 1;
        self.name(peer, id)
    }

    /// Those that are inserted.
    pub(crate) fn present(&self) -> Vec<u32> {
        self.others.values().filter(|other| !other.removed).map(|other| other.id).collect()
    }

    pub(crate) fn check(&self) -> Outcome {
        let long_ago =
            |other: &&Other| other.unexplained.is_some_and(|at| at.elapsed() > EXPLAINED);
        match self.others.values().find(long_ago) {
            Some(other) => Err(format!("that {} is not lost: it lives", other.id)),
            None => Ok(()),
        }
    }
}
