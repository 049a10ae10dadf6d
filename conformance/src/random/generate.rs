//! Making programs.
//!
//! A program is drawn step by step. The generator keeps a rough picture of what there is, only so that most of what it
//! draws makes sense: most messages meet a receive that is long enough, most accesses fit a region that has the
//! right. The rest is what it does not care about, and mistakes on purpose. Nothing here says what is correct; that is
//! the model's.

mod endpoints;
mod grants;
mod receives;

use fabric::provider::AtomicCall;
use fabric::provider::atomic::is_defined;
use fabric::{Access, AtomicOp, AtomicType};

use super::program::{
    DOMAINS, EndSpec, Lie, Local, MemorySpec, OpSpec, Part, Program, RegionSpec, Remote, Step, What,
};
use crate::pattern::Rng;

/// Operands at the ends of what integers and floats of each size can be: least and greatest, signs, NaN, infinity.
const EXTREMES: &[u64] = &[
    u64::MAX,
    1 << 63,
    (1 << 63) - 1,
    1 << 31,
    (1 << 31) - 1,
    0x8000,
    0x7fff,
    0x80,
    0x7f,
    f32::NAN.to_bits() as u64,
    f32::INFINITY.to_bits() as u64,
    f64::NAN.to_bits(),
    f64::NEG_INFINITY.to_bits(),
];

/// Lengths at which something changes: nothing, one byte, a word, what is sent inline and injected, copied or
/// received in place, a packet, a fragment; each with its neighbours.
const LENGTHS: &[usize] = &[
    0, 1, 3, 7, 8, 9, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025,
    2047, 2048, 2049, 4095, 4096, 4097, 8191, 16384, 65535, 65536, 65537, 262_143, 262_144,
    262_145, 524_289,
];
/// Sizes of memories; the small ones make operations meet.
const MEMORIES: &[usize] = &[256, 1024, 1024, 4096, 4096, 8192, 16384, 70_000, 600_000];
/// Bytes at the start of each memory where atomics meet, and little else does.
const WORDS: usize = 32;

/// The program number `number` of a seed.
pub fn generate(seed: u64, number: u64) -> Program {
    let mut rng = Rng::named(seed, &format!("program {number}"));
    let faults = if rng.below(2) == 0 { 0 } else { 1 + rng.below(3) };
    Generator::new(rng, faults).program()
}

struct Generator {
    rng: Rng,
    program: Program,
    /// Mistakes that end connections, still to be made.
    faults: usize,
    live: Vec<bool>,
    /// By where messages meet receives: lengths of the messages that have none, and of the receives that have none.
    messages: Vec<Vec<usize>>,
    receives: Vec<Vec<usize>>,
}

impl Generator {
    fn new(rng: Rng, faults: usize) -> Self {
        let (live, messages, receives) = (Vec::new(), Vec::new(), Vec::new());
        Generator { rng, program: Program::default(), faults, live, messages, receives }
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.rng.below(count) == 0
    }

    fn program(mut self) -> Program {
        self.endpoints();
        self.memory();
        let steps = 8 + self.rng.below(50);
        // Some receives come before the connection is established.
        if self.one_in(4) {
            self.receive();
        }
        for connection in 0..self.program.connections.len() {
            self.program.steps.push(Step::Connect(connection));
        }
        self.grants();
        for _ in 0..steps {
            self.step();
        }
        self.program
    }

    fn memory(&mut self) {
        for domain in 0..DOMAINS {
            let used = self.program.connections.iter().flatten().any(|end| end.domain == domain);
            for _ in 0..if used { 1 + self.rng.below(2) } else { 0 } {
                let len = *self.rng.pick(MEMORIES);
                self.program.memories.push(MemorySpec { domain, len });
            }
        }
        for memory in 0..self.program.memories.len() {
            let len = self.program.memories[memory].len;
            // The first one is for everything; the others lie somewhere in it, with some rights.
            self.region(RegionSpec { memory, start: 0, len, access: Access::ALL, grant: None });
            for _ in 0..self.rng.below(3) {
                let start = 8 * self.rng.below(len / 16);
                let len = 8 * (1 + self.rng.below((len - start) / 8));
                let spec = RegionSpec { memory, start, len, access: self.access(), grant: None };
                self.region(spec);
            }
            if self.one_in(4) {
                let start = 1 + self.rng.below(len / 2);
                let len = 1 + self.rng.below(len - start);
                let access = self.access().difference(Access::REMOTE_ATOMIC);
                self.region(RegionSpec { memory, start, len, access, grant: None });
            }
        }
    }

    fn access(&mut self) -> Access {
        match self.rng.below(6) {
            0 => Access::empty(),
            1 => Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            2 => Access::LOCAL_WRITE | Access::REMOTE_READ,
            3 => Access::REMOTE_READ,
            4 => Access::LOCAL_WRITE | Access::REMOTE_ATOMIC,
            _ => Access::ALL,
        }
    }

    fn region(&mut self, spec: RegionSpec) {
        let later = self.one_in(6);
        self.program.regions.push(spec);
        self.live.push(!later);
        if !later {
            self.program.steps.push(Step::Register(self.program.regions.len() - 1));
        }
    }

    fn step(&mut self) {
        let end = self.rng.below(2 * self.program.connections.len());
        let step = match self.rng.below(100) {
            0..45 => return self.post(end),
            45..65 => return self.receive(),
            65..75 => Step::Poll { end, max: 1 + self.rng.below(8) },
            75..82 => Step::Wait(end),
            82..87 => self.store(),
            87..91 => Step::Look(self.rng.below(self.program.memories.len())),
            91..93 => return self.registration(),
            93 => return self.letting_go(end),
            94 => return self.ending_a_grant(),
            95..97 if self.faults > 0 => {
                self.faults -= 1;
                self.ending(end)
            }
            _ => Step::Poll { end, max: 16 },
        };
        self.program.steps.push(step);
    }

    fn registration(&mut self) {
        let region = self.rng.below(self.program.regions.len());
        let step = if !self.live[region] {
            self.live[region] = true;
            Step::Register(region)
        } else {
            match self.rng.below(4) {
                0 => Step::Forget(region),
                1 => Step::Free(region),
                _ => Step::Close(region),
            }
        };
        self.program.steps.push(step);
    }

    /// Lets go a region that an unsignaled operation uses, now or a few steps later.
    fn letting_go(&mut self, end: usize) {
        let Some(mut op) = self.operation(end) else { return };
        op.unsignaled = true;
        let region = op.parts().iter().find(|part| part.len > 0).map(|part| part.region);
        self.program.steps.push(Step::Post { end, ops: vec![op] });
        let Some(region) = region else { return };
        self.a_few_steps();
        match self.rng.below(3) {
            0 => self.program.steps.push(Step::Close(region)),
            1 => self.program.steps.push(Step::Free(region)),
            _ => {
                self.program.steps.push(Step::Forget(region));
                self.a_few_steps();
                // The refusal ends a connection.
                if self.faults > 0 {
                    self.faults -= 1;
                    let end = self.reaching(region, end);
                    self.program.steps.push(Step::Probe { end, region });
                }
            }
        }
    }

    fn a_few_steps(&mut self) {
        for _ in 0..self.rng.below(3) {
            self.step();
        }
    }

    /// An end whose peer may have the region, rather of another connection than `using`.
    fn reaching(&mut self, region: usize, using: usize) -> usize {
        let memory = self.program.regions[region].memory;
        let domain = self.program.memories[memory].domain;
        let ends = 0..2 * self.program.connections.len();
        let reaches = |&end: &usize| self.end(end ^ 1).domain == domain && end / 2 != using / 2;
        let others: Vec<_> = ends.filter(reaches).collect();
        if others.is_empty() { using ^ 1 } else { *self.rng.pick(&others) }
    }

    fn store(&mut self) -> Step {
        let memory = self.rng.below(self.program.memories.len());
        let size = self.program.memories[memory].len;
        let len = self.len(size - WORDS);
        let at = WORDS + self.rng.below(size - WORDS - len + 1);
        Step::Store { memory, at, len, salt: self.salt() }
    }

    fn salt(&mut self) -> u64 {
        self.rng.next_u64() >> 40
    }

    /// A length up to `max`.
    fn len(&mut self, max: usize) -> usize {
        // Small ones are quick, and small memories make operations meet.
        let known = if self.one_in(12) { LENGTHS } else { &LENGTHS[..24] };
        let len = if self.one_in(3) { self.rng.below(2000) } else { *self.rng.pick(known) };
        len.min(max)
    }

    /// A region of a domain, those that are not registered at the moment included now and then.
    fn region_of(&mut self, domain: usize, need: Access) -> Option<usize> {
        let any = self.one_in(40);
        let fits = |region: &usize| {
            let spec = &self.program.regions[*region];
            let own = self.program.memories[spec.memory].domain == domain;
            let local = spec.grant.is_none();
            local && (any || own && self.live[*region] && spec.access.contains(need))
        };
        let fitting: Vec<_> = (0..self.program.regions.len()).filter(fits).collect();
        if fitting.is_empty() { None } else { Some(*self.rng.pick(&fitting)) }
    }

    /// Parts of regions with `len` bytes together, or about so.
    fn parts(&mut self, end: usize, len: usize, need: Access) -> Vec<Part> {
        let EndSpec { domain, segments, .. } = self.end(end);
        self.parts_of(domain, segments, len, need)
    }

    fn parts_of(&mut self, domain: usize, segments: usize, len: usize, need: Access) -> Vec<Part> {
        let count = if self.one_in(2) { 1 } else { 1 + self.rng.below(segments) };
        let count = if self.one_in(60) { segments + 1 } else { count };
        let mut left = len;
        let mut parts = Vec::new();
        for i in 0..count {
            let Some(region) = self.region_of(domain, need) else { continue };
            let size = self.program.regions[region].len;
            let take = if i + 1 == count { left } else { self.rng.below(left + 1) }.min(size);
            let at = self.offset(size - take);
            // Beyond the region, now and then.
            let at = if self.one_in(150) { size - take + 1 } else { at };
            left -= take;
            parts.push(Part { region, at, len: take });
        }
        parts
    }

    /// An offset up to `max`, away from the words of atomics if there is room.
    fn offset(&mut self, max: usize) -> usize {
        if max > WORDS && !self.one_in(20) {
            WORDS + self.rng.below(max - WORDS + 1)
        } else {
            self.rng.below(max + 1)
        }
    }

    fn end(&self, end: usize) -> EndSpec {
        self.program.connections[end / 2][end % 2]
    }

    fn post(&mut self, end: usize) {
        let count = if self.one_in(3) { 2 + self.rng.below(6) } else { 1 };
        let ops = (0..count).filter_map(|_| self.operation(end)).collect();
        self.program.steps.push(Step::Post { end, ops });
    }

    fn operation(&mut self, end: usize) -> Option<OpSpec> {
        let mut op = match self.rng.below(10) {
            0..3 => self.send(end),
            3..6 => self.write(end)?,
            6..8 => self.read(end)?,
            _ => self.atomic(end)?,
        };
        op.unsignaled = self.one_in(4);
        op.fence = self.one_in(5);
        op.delivery_complete = match op.what {
            What::Write(_) => self.one_in(5),
            _ => self.one_in(100),
        };
        let visible = matches!(op.what, What::Send | What::Write(_));
        if self.one_in(if visible { 5 } else { 100 }) {
            op.immediate = Some(self.rng.next_u64() as u32);
        }
        if op.takes_receive() {
            self.message(end, op.len(), op.what == What::Send);
        }
        Some(op)
    }

    fn send(&mut self, end: usize) -> OpSpec {
        let room = self.receives[self.meeting(end)].first().copied().unwrap_or(usize::MAX);
        let max = if self.fault(30) { usize::MAX } else { room };
        let len = self.len(max);
        let local = self.local(end, len);
        OpSpec::plain(What::Send, local)
    }

    fn local(&mut self, end: usize, len: usize) -> Local {
        let inject = self.end(end).inject;
        if len <= inject && self.one_in(2) || self.one_in(100) {
            Local::Inject { len, salt: self.salt() }
        } else {
            Local::Parts(self.parts(end, len, Access::empty()))
        }
    }

    /// Whether to make a mistake that ends the connection.
    fn fault(&mut self, one_in: usize) -> bool {
        let fault = self.faults > 0 && self.one_in(one_in);
        self.faults -= usize::from(fault);
        fault
    }

    /// A place of `len` bytes at the peer, with a right, or a lie about it; and the length that fits.
    fn place(&mut self, end: usize, len: usize, need: Access) -> Option<(Remote, usize)> {
        let wrong = self.fault(12);
        let useless = if wrong && self.one_in(3) { self.useless_grant(end, need) } else { None };
        if let Some(region) = useless {
            let size = self.program.regions[region].len;
            let len = len.min(size);
            return Some((Remote { region, at: self.offset(size - len), lie: None }, len));
        }
        let region = self.region_for(end, if wrong { Access::empty() } else { need })?;
        let size = self.program.regions[region].len;
        let len = len.min(size);
        let mut remote = Remote { region, at: self.offset(size - len), lie: None };
        if wrong {
            // Rather by a word: what reaches a little too far is easily overlooked.
            let bytes = if self.one_in(2) { 1 } else { 1 + self.rng.below(16) };
            remote.lie = Some(match self.rng.below(4) {
                0 => Lie::Key,
                1 => Lie::Before(8 * bytes),
                2 => Lie::After(8 * bytes),
                _ => Lie::Rights,
            });
            match remote.lie {
                Some(Lie::Before(_)) => remote.at = self.rng.below(8),
                Some(Lie::After(bytes)) => {
                    remote.at = size + self.rng.below(bytes) - len.min(8 * bytes)
                }
                _ => {}
            }
        } else if self.one_in(100) {
            remote.at = size + 1 - len.min(1);
        }
        Some((remote, len))
    }

    fn write(&mut self, end: usize) -> Option<OpSpec> {
        let len = self.len(usize::MAX);
        let (to, len) = self.place(end, len, Access::REMOTE_WRITE)?;
        let local = self.local(end, len);
        Some(OpSpec::plain(What::Write(to), local))
    }

    fn read(&mut self, end: usize) -> Option<OpSpec> {
        let len = self.len(usize::MAX);
        let (from, len) = self.place(end, len, Access::REMOTE_READ)?;
        let parts = self.parts(end, len, Access::LOCAL_WRITE);
        Some(OpSpec::plain(What::Read(from), Local::Parts(parts)))
    }

    fn atomic(&mut self, end: usize) -> Option<OpSpec> {
        let ty = *self.rng.pick(&AtomicType::ALL);
        let op = *self.rng.pick(&AtomicOp::ALL);
        let op = if is_defined(op, ty) || self.one_in(30) { op } else { AtomicOp::Swap };
        let size = ty.size();
        let (mut to, _) = self.place(end, size, Access::REMOTE_ATOMIC)?;
        let region = self.program.regions[to.region];
        if to.lie.is_none() {
            let words = WORDS.min(region.len) / size;
            to.at = size * self.rng.below(words.max(1));
            to.at += usize::from(self.one_in(80));
        } else {
            to.at -= to.at % size;
        }
        let call =
            AtomicCall { op, ty, operand: self.operand(), compare: self.rng.below(3) as u64 };
        let fetch = !self.one_in(3);
        let parts = if fetch { self.result(end, size)? } else { Vec::new() };
        Some(OpSpec::plain(What::Atomic { to, call, fetch }, Local::Parts(parts)))
    }

    /// The bits of an operand; elements take what they have room for.
    fn operand(&mut self) -> u64 {
        match self.rng.below(4) {
            0 | 1 => *self.rng.pick(EXTREMES),
            2 => self.rng.below(3) as u64,
            _ => self.rng.next_u64(),
        }
    }

    /// Where the result of an atomic goes.
    fn result(&mut self, end: usize, size: usize) -> Option<Vec<Part>> {
        let domain = self.end(end).domain;
        let region = self.region_of(domain, Access::LOCAL_WRITE)?;
        let len = self.program.regions[region].len;
        let at = self.offset(len.saturating_sub(size));
        Some(vec![Part { region, at, len: size }])
    }
}
