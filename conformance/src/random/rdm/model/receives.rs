//! What the completion of a receive says, whatever the others are.

use fabric_rdm::{Kind, Status};

use super::ending::SeenEnd;
use super::record::{Moment, RdmModel, Taking};
use crate::check::{Failed, Outcome};

impl RdmModel {
    /// A receive, or one message of a receive of many, has ended.
    pub(in super::super) fn ended_receive(
        &mut self,
        at: usize,
        number: usize,
        seen: &SeenEnd,
    ) -> Outcome {
        let wrong = |expected: &str| {
            Err(Failed::new(format!("e{at}, receive {number}: {expected}"), format!("{seen:?}")))
        };
        let Some(receive) = self.receives.get(number).filter(|one| one.at == at && !one.ended)
        else {
            return wrong("one end of what was posted here");
        };
        match (seen.kind, seen.status, seen.message) {
            (Kind::Released, Status::Ok, _) if receive.min_free.is_some() => {
                self.released(number, seen)
            }
            (Kind::Recv, Status::Ok | Status::Truncated, Some(message)) => {
                self.took(number, message, seen)
            }
            (Kind::Recv, Status::Canceled | Status::PeerLost, _) => self.broke(number, seen),
            _ => wrong("an end that a receive can have, with a message that was sent"),
        }
    }

    fn took(&mut self, number: usize, index: usize, seen: &SeenEnd) -> Outcome {
        let receive = &self.receives[number];
        let wrong = |expected: String| {
            let at = receive.at;
            Err(Failed::new(format!("e{at}, receive {number}: {expected}"), format!("{seen:?}")))
        };
        let Some(message) = self.messages.get(index) else {
            return wrong("a message that was sent".to_owned());
        };
        let is_it = (message.to, Some(message.from)) == (receive.at, seen.peer)
            && (message.spec.tag, message.spec.len) == (seen.tag, seen.message_len);
        if !is_it {
            return wrong(format!("what is known of message {index}: {message:?}"));
        }
        if message.met.is_some() || self.ops[message.op].canceled {
            return wrong(format!("message {index} once, or not if it was canceled: {message:?}"));
        }
        let fits = match receive.claim {
            Some(claim) => {
                self.claims[claim].from == message.from
                    && self.claims[claim].message.is_none_or(|known| known == index)
            }
            None => receive.want.takes(message.from, message.spec.tag) && message.claim.is_none(),
        };
        if !fits || receive.canceled && receive.min_free.is_none() {
            return wrong(format!("not message {index}: {:?}, {receive:?}", message.spec));
        }
        let is_within =
            seen.offset <= receive.room && (seen.offset == 0 || receive.min_free.is_some());
        let room = receive.room.saturating_sub(seen.offset);
        let status = if message.spec.len > room { Status::Truncated } else { Status::Ok };
        if !is_within || seen.len != message.spec.len.min(room) || seen.status != status {
            return wrong(format!("all of {} bytes in {room}, {status:?}", message.spec.len));
        }
        self.take_note(number, index, seen);
        Ok(())
    }

    /// Notes that a receive has a message.
    fn take_note(&mut self, number: usize, message: usize, seen: &SeenEnd) {
        let now = self.tick();
        self.messages[message].met = Some((number, now));
        let receive = &mut self.receives[number];
        receive.ended = receive.min_free.is_none();
        let (at, claim) = (receive.at, receive.claim);
        let taking = Taking { message, offset: seen.offset, len: seen.len };
        // Messages without bytes are before those that begin where they are.
        let key = |one: &Taking| (one.offset, one.len > 0);
        let place = receive.took.partition_point(|other| key(other) <= key(&taking));
        receive.took.insert(place, taking);
        match claim {
            Some(claim) => self.name_claim(claim, Some(message)),
            None => self.add(at, Moment::Took { receive: number, message }),
        }
    }

    /// A receive ended without a message.
    fn broke(&mut self, number: usize, seen: &SeenEnd) -> Outcome {
        let receive = &self.receives[number];
        let at = receive.at;
        let from = match receive.claim {
            Some(claim) => Some(self.claims[claim].from),
            None => receive.want.from,
        };
        let is_lossy = match from {
            Some(from) => self.is_lossy(at, from),
            None => (0..self.settings.ends).any(|from| self.is_lossy(at, from)),
        };
        let is_single = receive.min_free.is_none();
        let was_canceled = is_single && receive.canceled;
        let is_right = match seen.status {
            Status::Canceled => was_canceled || is_lossy,
            _ => !was_canceled && is_lossy,
        };
        if !is_right || seen.len != 0 {
            let expected = format!("e{at}, receive {number}: to end well, {receive:?}");
            return Err(Failed::new(expected, format!("{seen:?}")));
        }
        let receive = &mut self.receives[number];
        receive.broken += usize::from(!was_canceled);
        receive.ended = is_single;
        if is_single && receive.claim.is_none() {
            self.add(at, Moment::Over(number));
        }
        Ok(())
    }

    /// A receive of many is over.
    fn released(&mut self, number: usize, seen: &SeenEnd) -> Outcome {
        let receive = &self.receives[number];
        let at = receive.at;
        let used = receive.used();
        let is_whole = receive.broken == 0;
        let follow = receive.took.iter().try_fold(0, |end, taking| {
            let is_next = taking.offset == end || !is_whole && taking.offset > end;
            is_next.then_some(taking.offset + taking.len)
        });
        let is_right = follow.is_some_and(|end| seen.len >= end && (seen.len == used || !is_whole));
        let is_lossy = receive.want.from.is_some_and(|from| self.is_lossy(at, from));
        let may_end =
            receive.is_full(seen.len.min(receive.room), 1) || receive.canceled || is_lossy;
        if !is_right || !may_end {
            let expected =
                format!("e{at}, receive {number}: its one end, {used} bytes used, {receive:?}");
            return Err(Failed::new(expected, format!("{seen:?}")));
        }
        self.receives[number].ended = true;
        self.add(at, Moment::Over(number));
        Ok(())
    }
}
