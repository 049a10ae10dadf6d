//! A process of the soak: its orders, and what it does when.

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use fabric::{Access, Region};
use fabric_rdm::{Endpoint, Kind, RdmAttr};
use fabric_util::splitmix::{SplitMix64, mix};

use crate::bounds::Bounds;
use crate::buffers::Buffers;
use crate::content::{MAX_LEN, MEMORY, PLACES, area};
use crate::ending::Phase;
use crate::oracle::Posted;
use crate::process::{heard, own_domain, say};
use crate::roster::Roster;
use crate::words::{Order, Place};
use crate::{Outcome, text, variable};

pub(crate) const ID: &str = "FABRIC_KILLS_ID";
pub(crate) const SEED: &str = "FABRIC_KILLS_SEED";
pub(crate) const STEADY: &str = "FABRIC_KILLS_STEADY";
pub(crate) const LISTEN: &str = "FABRIC_KILLS_LISTEN";

pub(crate) struct Member {
    pub(crate) id: u32,
    /// It is never killed.
    pub(crate) steady: bool,
    pub(crate) endpoint: Endpoint,
    pub(crate) attr: RdmAttr,
    pub(crate) max_inject: usize,
    pub(crate) random: SplitMix64,
    pub(crate) roster: Roster,
    /// For the others.
    pub(crate) memory: Region,
    pub(crate) plain: Buffers,
    pub(crate) readable: Buffers,
    pub(crate) inboxes: Buffers,
    pub(crate) one_sided: Buffers,
    /// By context, which grows with each post.
    pub(crate) posted: BTreeMap<u64, Posted>,
    /// Those that have no completion if they end well.
    pub(crate) silent: BTreeMap<u64, Posted>,
    pub(crate) next_context: u64,
    pub(crate) sent: u64,
    /// Completions: those that ended well, and others.
    pub(crate) counts: HashMap<Kind, [u64; 2]>,
    pub(crate) next_cut: Instant,
    pub(crate) phase: Phase,
    bounds: Bounds,
    orders: Receiver<String>,
    /// It posts no receives until then.
    deaf_until: Instant,
}

/// Members that live, and those that are dead and not removed, or whose messages have not met receives: more than there are.
/// For one more there would be no memory.
const ALL_AT_A_TIME: u64 = 50;

/// Settings with which everything is short.
fn settings(random: &mut SplitMix64) -> RdmAttr {
    let mut attr = RdmAttr::default();
    attr.max_open = 2 + random.below(4) as u32;
    attr.send_depth = 24 + random.below(40) as u32;
    attr.recv_depth = 40;
    attr.slots = [16, 32, 64][random.below(3)];
    attr.slot_len = [1 << 10, 4 << 10, 8 << 10][random.below(3)];
    attr.connection_depth = [8, 16, 64][random.below(3)];
    attr.rendezvous = [16 << 10, 32 << 10, 128 << 10][random.below(3)];
    attr.window.places.window = [4, 8, 32][random.below(3)];
    attr.window.places.total = ALL_AT_A_TIME * attr.window.places.window;
    attr.window.places.reserved = 1;
    attr.window.bytes.window = [8 << 10, 64 << 10, 256 << 10][random.below(3)];
    attr.window.bytes.total = ALL_AT_A_TIME * attr.window.bytes.window;
    attr.window.bytes.reserved = 1 << 10;
    // A member that is dead is waited for so long, by those that had no connection to it.
    attr.timeouts.connect = Duration::from_secs(15);
    attr
}

/// The role.
pub(crate) fn run() {
    // A panic of any thread is the end, also of the endpoint's own.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        hook(info);
        say("failed: it panicked");
        std::process::exit(101);
    }));
    let mut member = Member::new().unwrap();
    if let Err(expected) = member.live() {
        eprintln!(
            "member {} of {:?}: expected {expected}\n{}",
            member.id,
            member.attr,
            member.state()
        );
        say(&format!("failed: expected {expected}"));
        std::process::exit(101);
    }
}

impl Member {
    fn new() -> Outcome<Self> {
        let id = variable(ID, 1) as u32;
        let mut random = SplitMix64::new(mix(variable(SEED, 1) ^ u64::from(id) << 32));
        let domain = own_domain();
        let mut attr = settings(&mut random);
        attr.listen = std::env::var(LISTEN).ok().map(|addr| addr.parse().unwrap());
        let mut endpoint = Endpoint::new(&domain, &attr);
        if endpoint.is_err() && attr.listen.is_some() {
            // The port may be another one's by now.
            attr.listen = None;
            endpoint = Endpoint::new(&domain, &attr);
        }
        let endpoint = endpoint.map_err(text)?;
        let memory = domain.alloc(MEMORY, Access::ALL).map_err(text)?;
        let readable = Access::REMOTE_READ | Access::GRANTS_ONLY;
        let now = Instant::now();
        let member = Member {
            id,
            steady: variable(STEADY, 0) == 1,
            max_inject: endpoint.max_inject().map_err(text)?,
            random,
            roster: Roster::default(),
            plain: Buffers::new(&domain, 12, MAX_LEN, Access::empty())?,
            readable: Buffers::new(&domain, 12, MAX_LEN, readable)?,
            inboxes: Buffers::new(&domain, 40, MAX_LEN, Access::LOCAL_WRITE)?,
            one_sided: Buffers::new(&domain, 24, PLACES[2], Access::LOCAL_WRITE)?,
            memory,
            posted: BTreeMap::new(),
            silent: BTreeMap::new(),
            next_context: 1,
            sent: 0,
            counts: HashMap::new(),
            next_cut: now + Duration::from_secs(2),
            phase: Phase::Traffic,
            bounds: Bounds::new(attr.max_open),
            orders: heard(),
            deaf_until: now,
            attr,
            endpoint,
        };
        let place = Place::of(&member.endpoint, &member.memory);
        say(&format!("at {place}"));
        Ok(member)
    }

    /// What a report of a failure needs.
    pub(crate) fn state(&self) -> String {
        let mut text = self.endpoint.dump();
        text += &format!("{} posted, {:?}\n", self.posted.len(), self.phase);
        for posted in self.posted.values().filter(|posted| !posted.is_receive()).take(20) {
            text +=
                &format!("    {posted:?}, for {:?}\n", posted.since.map(|since| since.elapsed()));
        }
        for other in self.roster.others.values().filter(|other| !other.removed) {
            text += &format!(
                "    {} {}: dead {}, cut {}, life {}, sent {:?}, came {} of {:?}\n",
                other.id,
                other.peer,
                other.dead,
                other.cut,
                other.life,
                other.messages,
                other.inbox.count,
                other.expected,
            );
        }
        text
    }

    /// Until it has to end, or something is not as expected.
    fn live(&mut self) -> Outcome {
        loop {
            while let Ok(line) = self.orders.try_recv() {
                if self.obey(Order::parse(&line))? {
                    return Ok(());
                }
            }
            let now = Instant::now();
            match self.phase {
                Phase::Traffic => self.turn(now)?,
                _ => self.end_step()?,
            }
            if now >= self.deaf_until
                && self.phase != Phase::Settling
                && self.phase != Phase::Settled
            {
                self.catch_all()?;
            }
            self.keep_house(now)?;
            self.make_progress()?;
            let mut bounds = std::mem::take(&mut self.bounds);
            let kept = bounds.check(self, now);
            self.bounds = bounds;
            kept?;
        }
    }

    /// Whether it has to end.
    fn obey(&mut self, order: Order) -> Outcome<bool> {
        match order {
            Order::Peer { id, steady, place } => {
                let (at, len) = area(id);
                // Another one's, long ago. Nothing of the new one comes before it is inserted.
                self.memory.write_at(at, &vec![0; len]).map_err(text)?;
                self.roster.insert(&self.endpoint, (id, steady, place))?;
            }
            Order::Dead(id) => {
                let wait = [0, self.random.below(3000)][self.random.below(2)];
                self.roster.died(id, Instant::now() + Duration::from_millis(wait as u64))?;
            }
            Order::Cut(id) => self.roster.was_cut(id),
            Order::Sent(id, count) => self.roster.get(id).expected = Some(count),
            Order::Drain => self.phase = Phase::Draining,
            Order::Exchange => self.begin_exchange(),
            Order::Settle => self.begin_settle()?,
            Order::Dump => eprintln!("member {}:\n{}", self.id, self.state()),
            Order::End => {
                let count = |which: usize| self.counts.values().map(|of| of[which]).sum::<u64>();
                let Roster { deaths, revivals, .. } = self.roster;
                let Bounds { resident, descriptors, .. } = self.bounds;
                say(&format!(
                    "done: {} ended well, {} not; saw {deaths} deaths, revived {revivals}; {} MiB, {descriptors} descriptors",
                    count(0),
                    count(1),
                    resident >> 20,
                ));
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn turn(&mut self, now: Instant) -> Outcome {
        for _ in 0..self.random.below(8) {
            self.post_one()?;
        }
        if self.random.once_in(500) {
            self.deaf_until = now + Duration::from_millis(self.random.below(200) as u64);
        }
        if now >= self.next_cut {
            self.cut_one()?;
        }
        Ok(())
    }

    /// Revives and removes those that are due.
    fn keep_house(&mut self, now: Instant) -> Outcome {
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        for id in self.roster.present() {
            let other = self.roster.get(id);
            let (revive, remove) = (is_due(other.revive_at), is_due(other.remove_at));
            if remove {
                self.has_to_end(id);
                self.roster.remove(&self.endpoint, id)?;
            } else if revive {
                self.roster.revive(&self.endpoint, id)?;
            }
        }
        Ok(())
    }

    /// Polls, waits, or leaves it to the endpoint's own thread.
    fn make_progress(&mut self) -> Outcome {
        match self.random.below(16) {
            0 => std::thread::sleep(Duration::from_millis(self.random.below(6) as u64)),
            1..8 => {
                let wait = Duration::from_micros(self.random.below(3000) as u64);
                if let Ok(done) = self.endpoint.wait_one(Some(wait)) {
                    self.completed(&done)?;
                }
            }
            _ => {}
        }
        self.take().map(drop)
    }
}
