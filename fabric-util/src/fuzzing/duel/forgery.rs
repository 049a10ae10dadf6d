//! How the stream of one side is spoiled: bytes that change, go, come again or come from elsewhere, and frames that are whole
//! and almost right.

use fabric_core::{AtomicCall, AtomicOp, AtomicType, RemoteAddr, Status};

use super::Duel;
use super::side::AREAS;
use super::wire::Spoil;
use crate::choices::Choices;
use crate::stream::wire::frame::{Header, Kind};

impl Duel {
    /// Spoils what is on its way from this side, or from the one whose stream was spoiled before.
    pub(super) fn spoil(&mut self, side: usize, c: &mut Choices<'_>) {
        let from = *self.spoiled.get_or_insert(side);
        // What was completed until now came as it was sent.
        if self.flows[from].borrow().len() == 0 && !c.once_in(2) {
            self.sides[from].flush();
        }
        let (what, at) = (c.below(16), c.below(1 << 16));
        let forged;
        let how = match what {
            0..3 => Spoil::Flip(at, c.byte() | 1),
            3 => Spoil::Flip(at, 1 << c.below(8)),
            4 | 5 => Spoil::Cut(at, 1 + c.below(1 << 10)),
            6 | 7 => Spoil::Repeat(at, 1 + c.below(1 << 10)),
            8 => {
                let len = c.below(64);
                Spoil::Insert(at, c.bytes(len))
            }
            9 if c.once_in(8) => Spoil::End,
            _ => {
                forged = self.forge(from, c);
                // Behind what is there, which is between frames.
                Spoil::Insert(self.flows[from].borrow().len(), &forged)
            }
        };
        self.flows[from].borrow_mut().spoil(&how);
    }

    /// A frame that this side might have sent to the other.
    fn forge(&self, from: usize, c: &mut Choices<'_>) -> Vec<u8> {
        let to = &self.sides[1 - from];
        let (next, answered, acked, credit) = to.lock().link.expects();
        let near =
            |of: u32, c: &mut Choices<'_>| of.wrapping_add(c.below(5) as u32).wrapping_sub(1);
        let imm = (c.below(2) > 0).then_some(7);
        let area = c.below(AREAS.len());
        let spot = c.pick(&to.areas[area].spots());
        let addr = if c.once_in(8) { c.number() } else { c.below(spot.len + 1) as u64 };
        let place = RemoteAddr { key: spot.key, addr };
        let (op, ty) = (c.pick(&AtomicOp::ALL), c.pick(&AtomicType::ALL));
        let call = AtomicCall { op, ty, operand: 1, compare: 0 };
        let total = [8, 64, 5000, 1 << 20][c.below(4)];
        let statuses = [Status::TooLong, Status::RemoteAccess, Status::Internal];
        let kind = match c.below(15) {
            0 | 1 => Kind::Send { total, imm },
            2 | 3 => Kind::Write { total, imm, to: place },
            4 => Kind::Read { from: place },
            5 => Kind::Atomic { at: place, call, fetch: c.below(2) > 0 },
            6 => Kind::Data { more: c.below(2) > 0 },
            7 => Kind::ReadData { last: c.below(2) > 0 },
            8 => Kind::OldValue,
            9 => Kind::Ack,
            10 => Kind::Nak { status: c.pick(&statuses) },
            11 => Kind::NotReady,
            12 => [Kind::Resume, Kind::Ready][c.below(2)],
            13 => Kind::Lent { from: place, more: c.below(2) > 0 },
            _ => Kind::Bye,
        };
        let len = match kind {
            Kind::Send { total, .. } | Kind::Write { total, .. } if c.below(4) > 0 => total,
            Kind::Atomic { .. } | Kind::Ack | Kind::Nak { .. } | Kind::Bye => 0,
            Kind::NotReady | Kind::Resume | Kind::Ready => 0,
            Kind::OldValue => 8,
            _ => [0, 8, 64, 5000][c.below(4)],
        };
        let is_answer = matches!(
            kind,
            Kind::ReadData { .. } | Kind::OldValue | Kind::Nak { .. } | Kind::NotReady
        );
        let seq = near(if is_answer { answered } else { next }, c);
        let (ack, credit) = match c.below(4) {
            0 => (near(acked, c), near(credit, c)),
            _ => (acked, credit),
        };
        let mut bytes = Vec::new();
        let header = Header { kind, ask: c.below(2) > 0, len, ack, credit, seq };
        header.encode(&mut bytes);
        let payload = header.payload() as usize;
        bytes.resize(bytes.len() + payload.min(5000), 0x77);
        bytes
    }
}
