//! What the two sides of a duel do, by a fuzzer's choices.

use std::rc::Rc;

use fabric_core::{
    Access, AtomicCall, AtomicOp, AtomicType, RemoteAddr, SendFlags, SendOp, atomic,
};

use super::Duel;
use super::books::{Expected, FRESH, Order, Parcel};
use super::memory::{Guarded, Spot, pattern};
use super::side::AREAS;
use crate::choices::Choices;
use crate::stream::limits;

/// Where something changes in how bytes are carried: nothing, what a header has, an inject, what is copied, what is received
/// where it belongs, and one fragment.
const LENGTHS: [usize; 12] =
    [0, 1, 8, 56, 128, 256, 2048, 4096, 4096 + 512, 20_000, 100_000, 260_000];
/// One operation in so many is one that the peer must refuse.
const WILD: u8 = 64;

impl Duel {
    /// How long something is.
    pub(super) fn length(&mut self, c: &mut Choices<'_>) -> usize {
        let len = match c.pick(&LENGTHS) {
            long @ 20_000.. => long + c.below(16),
            short => (short + c.below(9)).saturating_sub(4),
        };
        let len = if self.budget < len { len % 64 } else { len };
        self.budget = self.budget.saturating_sub(len);
        len
    }

    fn flags(c: &mut Choices<'_>) -> SendFlags {
        let bits = c.byte();
        let of = |bit: u8, flag| if bits & bit != 0 { flag } else { SendFlags::empty() };
        of(1, SendFlags::FENCE)
            | of(2, SendFlags::DELIVERY_COMPLETE)
            | of(16, SendFlags::LAZY)
            | if bits & 12 == 12 { SendFlags::empty() } else { SendFlags::SIGNALED }
    }

    /// Something to send, in some segments; an inject in one. Every operation has other bytes.
    fn source(&mut self, c: &mut Choices<'_>, len: usize, is_inject: bool) -> Shipment {
        self.count = self.count.wrapping_add(1);
        let bytes: Rc<[u8]> = pattern(self.count, len).into();
        let lens = if is_inject { vec![len] } else { cut(c, len) };
        let mut rest = &bytes[..];
        let memory = lens.into_iter().map(|len| {
            let (now, behind) = rest.split_at(len);
            rest = behind;
            Guarded::of(now)
        });
        let memory = memory.collect();
        let kept = bytes.clone();
        let expected = if is_inject { Expected::Injected } else { Expected::Source(kept) };
        Shipment { bytes, memory, expected }
    }

    /// A place of the peer's that allows this, in an area that does; now and then any.
    fn spot(&mut self, side: usize, c: &mut Choices<'_>, need: Access) -> (usize, Spot) {
        if c.once_in(WILD) {
            self.is_violent = true;
            let area = c.below(AREAS.len());
            return (area, c.pick(&self.sides[1 - side].areas[area].spots()));
        }
        let areas = &self.sides[1 - side].areas;
        let allowed: Vec<_> = (0..areas.len())
            .filter(|at| areas[*at].is_open())
            .flat_map(|at| areas[at].spots().into_iter().map(move |spot| (at, spot)))
            .filter(|(_, spot)| spot.access.contains(need))
            .collect();
        if allowed.is_empty() {
            self.is_violent = true;
            return (0, areas[0].spots()[0]);
        }
        c.pick(&allowed)
    }

    /// Where in a spot so many bytes go; gives the offset, and the length that fits. Now and then it does not.
    fn place(&mut self, c: &mut Choices<'_>, spot: Spot, len: usize) -> (u64, usize) {
        if c.once_in(WILD) && len > 0 {
            self.is_violent = true;
            return ((spot.len + 1 - c.below(len.min(spot.len + 1))) as u64, len);
        }
        let len = len.min(spot.len);
        (c.below(spot.len - len + 1) as u64, len)
    }

    /// Whether the peer's rules allow it, as far as this side knows.
    fn is_allowed(
        &self,
        side: usize,
        area: usize,
        spot: Spot,
        at: u64,
        len: usize,
        need: Access,
    ) -> bool {
        let fits = at.checked_add(len as u64).is_some_and(|end| end <= spot.len as u64);
        fits && spot.access.contains(need) && self.sides[1 - side].areas[area].is_open()
    }

    /// A message is no longer than the receive that it meets, if that is posted; now and then it is.
    fn fit_message(&mut self, side: usize, c: &mut Choices<'_>, len: usize) -> usize {
        let (me, peer) = (&self.sides[side].books, &self.sides[1 - side].books);
        let Some(landing) = peer.landings.get(me.parcels.len()) else { return len };
        if len > landing.len && c.once_in(WILD) {
            self.is_violent = true;
            return len;
        }
        len.min(landing.len)
    }

    pub(super) fn send(&mut self, side: usize, c: &mut Choices<'_>) {
        let (mut flags, imm) = (Self::flags(c) - SendFlags::DELIVERY_COMPLETE, immediate(c));
        let len = self.length(c);
        let len = self.fit_message(side, c, len);
        let is_inject = len <= limits().inject && c.once_in(2);
        flags.set(SendFlags::INJECT, is_inject);
        let Shipment { bytes, memory, expected } = self.source(c, len, is_inject);
        let order = Order { flags, memory, expected, is_message: true, status: None };
        self.pass_fence(side, flags);
        if self.sides[side].post(SendOp::Send { imm }, order) {
            self.sides[side].books.parcels.push(Parcel { bytes, imm, remote_write: false });
        }
    }

    pub(super) fn write(&mut self, side: usize, c: &mut Choices<'_>) {
        let (mut flags, imm) = (Self::flags(c), immediate(c));
        let need = Access::REMOTE_WRITE;
        let ((area, spot), len) = (self.spot(side, c, need), self.length(c));
        let (addr, len) = self.place(c, spot, len);
        let is_inject = len <= limits().inject && c.once_in(2);
        flags.set(SendFlags::INJECT, is_inject);
        let Shipment { bytes, memory, expected } = self.source(c, len, is_inject);
        let is_message = imm.is_some();
        let order = Order { flags, memory, expected, is_message, status: None };
        self.pass_fence(side, flags);
        let to = RemoteAddr { key: spot.key, addr };
        let is_allowed = self.is_allowed(side, area, spot, addr, len, need);
        if self.sides[side].post(SendOp::Write { to, imm }, order) {
            if is_allowed {
                self.change(side, area, spot.start + addr as usize, &bytes);
            }
            if is_message {
                self.sides[side].books.parcels.push(Parcel { bytes, imm, remote_write: true });
            }
        }
    }

    pub(super) fn read(&mut self, side: usize, c: &mut Choices<'_>) {
        let (flags, need) = (Self::flags(c) - SendFlags::DELIVERY_COMPLETE, Access::REMOTE_READ);
        let ((area, spot), len) = (self.spot(side, c, need), self.length(c));
        let (addr, len) = self.place(c, spot, len);
        let memory = cut(c, len).into_iter().map(|len| Guarded::new(len, FRESH)).collect();
        let at = spot.start + addr as usize;
        let model = &self.sides[1 - side].areas[area].model;
        let bytes = model.get(at..at + len).unwrap_or_default().to_vec();
        let is_open = vec![false; bytes.len()];
        let expected = Expected::Read { area, at, bytes, is_open, is_under_way: true };
        self.pass_fence(side, flags);
        let order = Order { flags, memory, expected, is_message: false, status: None };
        let from = RemoteAddr { key: spot.key, addr };
        self.sides[side].post(SendOp::Read { from }, order);
    }

    pub(super) fn atomic(&mut self, side: usize, c: &mut Choices<'_>) {
        let (flags, need) = (Self::flags(c) - SendFlags::DELIVERY_COMPLETE, Access::REMOTE_ATOMIC);
        let (op, ty, fetch) = (c.pick(&AtomicOp::ALL), c.pick(&AtomicType::ALL), c.once_in(2));
        if !atomic::is_defined(op, ty) {
            return;
        }
        let call = AtomicCall { op, ty, operand: c.number(), compare: u64::from(c.byte()) };
        let (area, spot) = self.spot(side, c, need);
        let size = ty.size();
        let addr = (c.below(spot.len / size) * size) as u64;
        let at = spot.start + addr as usize;
        let model = &self.sides[1 - side].areas[area].model;
        let Some(now) = model.get(at..at + size).map(<[u8]>::to_vec) else { return };
        let mut old = [0; 8];
        old[..size].copy_from_slice(&now);
        let new = call.apply(u64::from_le_bytes(old)).to_le_bytes();
        let memory = if fetch { vec![Guarded::new(size, FRESH)] } else { Vec::new() };
        let expected = if fetch { Expected::Old(now) } else { Expected::Injected };
        self.pass_fence(side, flags);
        let order = Order { flags, memory, expected, is_message: false, status: None };
        let is_allowed = self.is_allowed(side, area, spot, addr, size, need);
        let op = SendOp::Atomic { at: RemoteAddr { key: spot.key, addr }, call, fetch };
        if self.sides[side].post(op, order) && is_allowed {
            self.change(side, area, at, &new[..size]);
        }
    }

    /// A fenced operation starts behind the reads before it.
    fn pass_fence(&mut self, side: usize, flags: SendFlags) {
        if flags.contains(SendFlags::FENCE) {
            for read in self.sides[side].books.reads() {
                if let Expected::Read { is_under_way, .. } = read {
                    *is_under_way = false;
                }
            }
        }
    }

    /// An operation changes bytes of the peer's. What a read that is under way has of them is open.
    fn change(&mut self, side: usize, area: usize, at: usize, bytes: &[u8]) {
        for read in self.sides[side].books.reads() {
            let Expected::Read { area: of, at: from, is_open, .. } = read else { continue };
            if *of == area {
                let begin = at.max(*from);
                let end = (at + bytes.len()).min(*from + is_open.len());
                let both = begin..end.max(begin);
                both.for_each(|byte| is_open[byte - *from] = true);
            }
        }
        self.sides[1 - side].areas[area].write(at, bytes);
    }

    /// Posts a receive, as long as its message or longer; now and then not.
    pub(super) fn receive(&mut self, side: usize, c: &mut Choices<'_>) {
        let (me, peer) = (&self.sides[side].books, &self.sides[1 - side].books);
        let parcel = peer.parcels.get(me.landings.len());
        let need = parcel.filter(|one| !one.remote_write).map(|one| one.bytes.len());
        let len = match need {
            Some(need) if c.once_in(WILD) && need > 0 => {
                self.is_violent = true;
                c.below(need)
            }
            Some(need) => need + c.below(9),
            None => self.length(c),
        };
        let lens = cut(c, len);
        self.sides[side].receive(&lens);
    }

    /// Opens a part of an area to the peer alone, takes one back, or closes the whole.
    pub(super) fn change_rights(&mut self, side: usize, c: &mut Choices<'_>) {
        let (area, what) = (c.below(AREAS.len()), c.below(8));
        // What the peer has under way may then fail.
        let is_idle = self.sides[1 - side].books.is_idle();
        let me = &mut self.sides[side];
        let (id, area) = (me.id, &mut me.areas[area]);
        match what {
            0..5 => {
                let len = area.memory.len();
                let start = c.below(len / 8) * 8;
                let len = 8 + c.below(len - start - 7);
                area.grant(id, start, len, Access::from_bits_truncate(c.byte().into()));
            }
            5 | 6 => {
                area.revoke();
                self.is_violent |= !is_idle;
            }
            _ => {
                area.close();
                self.is_violent |= !is_idle;
            }
        }
    }
}

/// What an operation sends.
struct Shipment {
    bytes: Rc<[u8]>,
    memory: Vec<Guarded>,
    expected: Expected,
}

fn immediate(c: &mut Choices<'_>) -> Option<u32> {
    let byte = c.byte();
    (byte & 1 != 0).then_some(byte.into())
}

/// Cuts a length into segments.
fn cut(c: &mut Choices<'_>, len: usize) -> Vec<usize> {
    let (mut left, mut lens) = (len, Vec::new());
    for _ in 1..1 + c.below(5) {
        let now = c.below(left + 1);
        lens.push(now);
        left -= now;
    }
    lens.push(left);
    lens
}
