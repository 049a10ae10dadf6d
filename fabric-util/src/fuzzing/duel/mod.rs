//! Two connections against each other, over a stream in memory: what both do, and how the stream of one is spoiled, a
//! fuzzer chooses.
//!
//! What must hold, whatever it chooses: nothing panics; what was posted ends exactly once; no byte changes outside of what
//! operations and regions have, nor in memory that is the application's again; a stream that is spoiled ends at worst this
//! connection, and others of the domain go on. What came over a stream that was not spoiled came as it was posted; and where
//! nothing was refused, closed or ended all of it came.
//!
//! - `program`: operations, receives, regions; `forgery`: how a stream is spoiled;
//! - `side`: a connection, its provider and its application; `books`: what became of what that posted; `memory`: between guards;
//! - `wire`: the stream; `bystander`: another connection of the domain.

mod books;
mod bystander;
mod forgery;
mod memory;
mod program;
mod side;
mod wire;

use std::cell::RefCell;
use std::rc::Rc;

use crate::choices::Choices;
use crate::fault::MaybeFaulty;
use crate::progress::Progress;
use crate::splitmix::SplitMix64;
use crate::stream::{Deferral, Greeting};
use bystander::Bystander;
use side::{DuelSide, Firsts};
use wire::Flow;

/// In the first byte: whose receives are shared, over which stream faults are injected, whether numbers are about to wrap
/// around, and whether the domains have another connection.
const SHARES: [u8; 2] = [1, 2];
const FAULTS: [u8; 2] = [4, 8];
const WRAPS: u8 = 16;
const BYSTANDER: u8 = 32;

/// Bytes that a program may post in all, so that it ends soon.
const BUDGET: usize = 1 << 20;
/// Turns after which a connection that nothing limits must be at rest.
const RESTLESS: usize = 100_000;

/// Both sides.
struct Duel {
    sides: [DuelSide; 2],
    /// By the side that writes.
    flows: [Rc<RefCell<Flow>>; 2],
    bystander: Option<Bystander>,
    /// The side whose stream is spoiled.
    spoiled: Option<usize>,
    /// Something was refused, closed or ended.
    is_violent: bool,
    budget: usize,
    count: u8,
}

/// Runs a program.
pub fn duel(bytes: &[u8]) {
    let mut c = Choices::new(bytes);
    let Some(mut duel) = Duel::new(&mut c) else { return };
    while !c.are_over() {
        duel.step(&mut c);
    }
    duel.finish();
}

/// Programs to start from: a few hundred random ones reach what there is to reach without guessing.
pub fn duel_seeds() -> Vec<Vec<u8>> {
    let mut numbers = SplitMix64::new(1);
    let program = |number: usize| (0..16 + number * 2).map(|_| numbers.next_u64() as u8).collect();
    (0..128).map(program).collect()
}

impl Duel {
    fn new(c: &mut Choices<'_>) -> Option<Self> {
        let mode = c.byte();
        let mut sides =
            [DuelSide::new(1, mode & SHARES[0] != 0)?, DuelSide::new(1, mode & SHARES[1] != 0)?];
        if mode & WRAPS != 0 {
            // Not by one: that many receives mean that they are shared.
            let mut first = || 0u32.wrapping_sub(2 + c.below(16) as u32);
            let firsts = [(); 2].map(|()| Firsts { sends: first(), receives: first() });
            sides[0].count_from(firsts[0], firsts[1]);
            sides[1].count_from(firsts[1], firsts[0]);
        }
        let bystander = match mode & BYSTANDER {
            0 => None,
            _ => Some(Bystander::new(&sides[c.below(2)])?),
        };
        let (flows, ends) = Flow::pair();
        let mut seeds = FAULTS.map(|bit| (mode & bit != 0).then(|| u64::from(c.byte())));
        let [near, mut far] = ends.map({
            let mut at = 0;
            move |end| {
                at += 1;
                MaybeFaulty::new(end, seeds[at - 1].take())
            }
        });
        sides[0].connect(near);
        let mut greeting = Greeting::default();
        while greeting.read(&mut far) != Ok(true) {
            sides[0].turn(64);
        }
        sides[1].accept(far, &greeting);
        let (spoiled, is_violent, budget, count) = (None, false, BUDGET, 0);
        Some(Duel { sides, flows, bystander, spoiled, is_violent, budget, count })
    }

    /// One thing that one side does, or that happens to it.
    fn step(&mut self, c: &mut Choices<'_>) {
        let what = c.byte();
        let side = usize::from(what >> 7);
        match what & 0x3f {
            0..9 => self.send(side, c),
            9..17 => self.write(side, c),
            17..24 => self.read(side, c),
            24..30 => self.atomic(side, c),
            30..40 => self.receive(side, c),
            40..44 => self.change_rights(side, c),
            44..47 => self.spoil(side, c),
            47..49 => self.limit(side, c),
            49 => self.defer(side, c),
            50 => self.sides[side].is_deaf ^= true,
            51 if c.once_in(4) => self.end(side, c),
            52..55 => self.sides[side].flush(),
            _ => drop(self.turn(side, [1, 57, 600, 64 << 10][usize::from(what >> 4 & 3)])),
        }
        // Mostly what was posted goes at once.
        if what & 0x40 == 0 {
            self.sides[side].flush();
        }
    }

    /// A turn, and the application takes what was completed.
    fn turn(&mut self, side: usize, scratch: usize) -> Progress {
        let found = self.sides[side].turn(scratch);
        self.take_completions(side);
        found
    }

    fn take_completions(&mut self, side: usize) {
        let is_clean = self.spoiled != Some(1 - side);
        let [near, far] = &mut self.sides;
        let (me, peer) = if side == 0 { (near, far) } else { (far, near) };
        let parcels = is_clean.then_some(&peer.books.parcels[..]);
        me.take_completions(parcels, self.spoiled.is_none());
    }

    /// The stream of a side takes, and gives, no more than this at a time.
    fn limit(&mut self, side: usize, c: &mut Choices<'_>) {
        let mut flow = self.flows[side].borrow_mut();
        let mut limit = || c.pick(&[usize::MAX, 1, 7, 57, 600, 4096, 4500, 70_000]);
        (flow.capacity, flow.read_max) = (limit(), limit());
    }

    /// A side withholds what it may, for now.
    fn defer(&mut self, side: usize, c: &mut Choices<'_>) {
        let bits = c.byte();
        let what = Deferral { updates: bits & 1 != 0, answers: bits & 2 != 0 };
        self.sides[side].lock().link.defer(what);
        self.sides[side].host.may_defer.set(bits & 4 != 0);
    }

    fn end(&mut self, side: usize, c: &mut Choices<'_>) {
        if !self.sides[side].is_gone {
            self.is_violent = true;
            // What had been completed until now was not ended by this.
            self.take_completions(side);
            self.sides[side].end(c.below(5));
        }
    }

    /// Nothing is limited or withheld any more: moves everything.
    fn settle(&mut self) {
        for side in 0..2 {
            self.flows[side].borrow_mut().unlimit();
            self.sides[side].lock().link.defer(Deferral::default());
            self.sides[side].host.may_defer.set(false);
            self.sides[side].is_deaf = false;
        }
        for _ in 0..RESTLESS {
            let before = self.moved();
            let found = [0, 1].map(|side| self.turn(side, 64 << 10));
            if before == self.moved() && !found.contains(&Progress::More) {
                return;
            }
        }
        panic!("no rest: {} and {}", self.sides[0].dump(), self.sides[1].dump());
    }

    fn moved(&self) -> usize {
        self.flows.iter().map(|flow| flow.borrow().moved).sum()
    }

    fn finish(&mut self) {
        let is_whole = !self.is_violent && self.spoiled.is_none();
        if is_whole {
            self.finish_well();
        }
        self.settle();
        for side in 0..2 {
            self.sides[side].end(0);
        }
        self.settle();
        for side in 0..2 {
            self.sides[side].expire();
        }
        self.settle();
        for side in 0..2 {
            self.sides[side].check_end();
            assert!(!is_whole || self.sides[side].books.is_well(), "not all ended well");
            let is_clean = self.spoiled != Some(1 - side);
            self.sides[side].areas.iter().for_each(|area| area.check(is_clean, is_whole));
        }
        if self.spoiled.is_none() && !self.sides.iter().any(|side| side.is_gone) {
            for side in 0..2 {
                let (me, peer) = (&self.sides[side].books, &self.sides[1 - side].books);
                assert!(me.delivered <= peer.received, "sent, and not received");
            }
        }
        if let Some(bystander) = &mut self.bystander {
            bystander.check();
        }
    }

    /// Nothing stands against it, so everything must come.
    fn finish_well(&mut self) {
        let mut zeros = Choices::new(&[]);
        for side in 0..2 {
            while self.sides[side].books.landings.len() < self.sides[1 - side].books.parcels.len() {
                self.receive(side, &mut zeros);
            }
        }
        self.settle();
        for side in 0..2 {
            let (me, peer) = (&self.sides[side].books, &self.sides[1 - side].books);
            assert!(me.is_said(), "not completed: {}", self.sides[side].dump());
            assert_eq!(
                me.received,
                peer.parcels.len(),
                "not received: {}",
                self.sides[side].dump()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_the_seeds_go_well() {
        duel_seeds().iter().for_each(|seed| duel(seed));
    }
}
