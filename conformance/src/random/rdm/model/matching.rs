//! Which receive takes which message: the rules of one endpoint, as a machine that is moved step by step.
//!
//! - A message that arrives is taken by the oldest open receive that takes it, or else waits.
//! - A receive that is posted takes, of those that wait, the oldest of its sender; a receive of many as long as it is open.
//! - Messages of one sender arrive in the order of their posts, and none is left out but at the end of a life of the pair.
//!
//! Between different senders there is no order, and when a message arrives is open. So a [`State`] has several next ones; the
//! [search](super::search) looks for a way through that has all that was seen. What was seen is known beforehand: a step that
//! contradicts it leads nowhere.

use std::collections::HashMap;

use super::record::{Moment, RdmMessage, RdmModel, RdmReceive, Sight, Time};

/// One endpoint and all that was seen of its messages.
pub(super) struct Scene<'a> {
    model: &'a RdmModel,
    at: usize,
    /// By sender, messages that were not canceled on their way, in the order of their posts.
    streams: Vec<Vec<usize>>,
    /// By message, the receive that took it, and as which one of its messages.
    takers: HashMap<usize, (usize, usize)>,
    /// By message, the claim that took it.
    claims: HashMap<usize, usize>,
}

/// Where the endpoint is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    /// So many of its moments are over.
    pub(super) done: usize,
    /// By sender, how many of its messages have arrived, or were lost.
    arrived: Vec<usize>,
    /// By sender, the life that messages were lost of, and one more.
    lost: Vec<usize>,
    /// By sender, whether it is down or removed.
    away: Vec<bool>,
    /// In the order of their posts.
    pub(super) open: Vec<Open>,
    /// In the order of their posts.
    pub(super) waiting: Vec<usize>,
    /// Messages of the endpoint to itself that were canceled before they arrived, and have not been passed over.
    withdrawn: Vec<usize>,
}

/// A receive that takes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Open {
    pub(super) receive: usize,
    used: usize,
    /// Messages that were seen.
    took: usize,
    /// Messages that were not.
    broken: usize,
}

impl<'a> Scene<'a> {
    pub(super) fn new(model: &'a RdmModel, at: usize) -> Self {
        let mut streams = vec![Vec::new(); model.links.len()];
        let mut claims = HashMap::new();
        for (number, message) in model.messages.iter().enumerate() {
            // One of its own is here until it is canceled.
            if message.to == at && (message.from == at || !model.ops[message.op].canceled) {
                streams[message.from].push(number);
                message.claim.into_iter().for_each(|claim| _ = claims.insert(number, claim));
            }
        }
        let mut takers = HashMap::new();
        for (number, receive) in model.receives.iter().enumerate() {
            if receive.at == at && receive.claim.is_none() {
                for (index, taking) in receive.took.iter().enumerate() {
                    takers.insert(taking.message, (number, index));
                }
            }
        }
        Scene { model, at, streams, takers, claims }
    }

    pub(super) fn moments(&self) -> &[(Time, Moment)] {
        &self.model.moments[self.at]
    }

    pub(super) fn start(&self) -> State {
        let ends = self.streams.len();
        State {
            done: 0,
            arrived: vec![0; ends],
            lost: vec![0; ends],
            away: vec![false; ends],
            open: Vec::new(),
            waiting: Vec::new(),
            withdrawn: Vec::new(),
        }
    }

    fn message(&self, number: usize) -> &RdmMessage {
        &self.model.messages[number]
    }

    fn receive(&self, number: usize) -> &RdmReceive {
        &self.model.receives[number]
    }

    fn takes(&self, receive: usize, message: usize) -> bool {
        let RdmMessage { from, spec, .. } = self.message(message);
        self.receive(receive).want.takes(*from, spec.tag)
    }

    /// States that can be next, those that are more likely last.
    pub(super) fn next(&self, state: &State) -> Vec<State> {
        let mut next = self.vanishings(state);
        for from in 0..self.streams.len() {
            next.extend(self.loses(state, from));
            next.extend(self.falls(state, from));
            next.extend(self.admits(state, from));
        }
        for from in 0..self.streams.len() {
            next.extend(self.arrives(state, from));
        }
        next.extend(self.moment(state));
        next
    }

    /// The next message of a sender, if it was posted by now.
    fn coming(&self, state: &State, from: usize) -> Option<usize> {
        let mut rest = self.streams[from][state.arrived[from]..].iter();
        let message = *rest.find(|message| !state.withdrawn.contains(message))?;
        let posted = self.model.ops[self.message(message).op].posted;
        let is_posted = self.moments().get(state.done).is_none_or(|moment| moment.0 > posted);
        is_posted.then_some(message)
    }

    /// What follows when the sender's messages up to this one have had their turn.
    fn past(&self, state: &State, from: usize, message: usize) -> State {
        let mut next = state.clone();
        let place = self.streams[from].iter().position(|one| *one == message);
        next.arrived[from] = place.map_or(next.arrived[from], |place| place + 1);
        next.withdrawn.retain(|one| *one > message || from != self.at);
        next
    }

    fn life(&self, message: usize) -> usize {
        self.model.ops[self.message(message).op].life
    }

    /// The next message of a sender arrives.
    fn arrives(&self, state: &State, from: usize) -> Option<State> {
        let message = self.coming(state, from)?;
        if state.away[from] || state.lost[from] == self.life(message) + 1 {
            return None;
        }
        let mut next = self.past(state, from, message);
        match state.open.iter().position(|open| self.takes(open.receive, message)) {
            Some(at) => self.meets(&mut next, at, message).then_some(next),
            None if self.is_seen_before(state, message) => None,
            None => {
                let place = next.waiting.partition_point(|waiting| *waiting < message);
                next.waiting.insert(place, message);
                Some(next)
            }
        }
    }

    /// Whether it was taken by a receive that is open or over already.
    fn is_seen_before(&self, state: &State, message: usize) -> bool {
        let Some((receive, _)) = self.takers.get(&message) else { return false };
        let posted = self.receive(*receive).posted;
        self.moments().get(state.done).is_none_or(|moment| moment.0 > posted)
    }

    /// An open receive takes a message, which has left those that wait. Whether that is what was seen.
    fn meets(&self, state: &mut State, at: usize, message: usize) -> bool {
        let open = &mut state.open[at];
        let receive = self.receive(open.receive);
        let len = self.message(message).spec.len.min(receive.room - open.used);
        match self.takers.get(&message) {
            Some((taker, index)) => {
                let is_it = *taker == open.receive && *index == open.took;
                if !is_it || receive.took[*index].offset != open.used {
                    return false;
                }
                open.took += 1;
            }
            // It never came whole, or its receive did not live to see it.
            None => {
                let is_whole = !self.model.is_doubtful(self.message(message))
                    && !self.model.may_be_dropped(self.message(message));
                let is_seen = is_whole || open.broken == receive.broken;
                if is_seen && !self.is_unseen(receive) || self.claims.contains_key(&message) {
                    return false;
                }
                open.broken += 1;
            }
        }
        open.used += len;
        if receive.is_full(open.used, open.took + open.broken) {
            state.open.remove(at);
        }
        true
    }

    /// Whether it may have ended unseen, as the endpoint was dropped.
    fn is_unseen(&self, receive: &RdmReceive) -> bool {
        self.model.is_dropped(self.at) && !receive.ended
    }

    /// The next message of a sender is lost.
    fn loses(&self, state: &State, from: usize) -> Option<State> {
        let number = self.coming(state, from)?;
        let message = self.message(number);
        let may_be = self.model.is_doubtful(message) || self.model.may_be_dropped(message);
        let is_seen = self.takers.contains_key(&number) || self.claims.contains_key(&number);
        (may_be && !is_seen).then(|| {
            let mut next = self.past(state, from, number);
            next.lost[from] = self.life(number) + 1;
            next
        })
    }

    /// A peer is down: receives from it alone end.
    fn falls(&self, state: &State, from: usize) -> Option<State> {
        let cut = self.model.cut_at(self.at, from)?;
        let is_before = self.moments().get(state.done).is_some_and(|moment| moment.0 < cut);
        if state.away[from] || is_before {
            return None;
        }
        let mut next = state.clone();
        next.away[from] = true;
        self.ends_directed(&mut next, from).then_some(next)
    }

    /// A peer that was removed connects: the event comes later.
    fn admits(&self, state: &State, from: usize) -> Option<State> {
        let of_it = |(_, moment): &(Time, Moment)| match moment {
            Moment::Admitted(of) => (*of == from).then_some(true),
            Moment::Removed(of) | Moment::Inserted(of) | Moment::Revived(of) => {
                (*of == from).then_some(false)
            }
            _ => None,
        };
        let is_next = || self.moments()[state.done..].iter().find_map(of_it) == Some(true);
        (state.away[from] && is_next()).then(|| {
            let mut next = state.clone();
            next.away[from] = false;
            next
        })
    }

    /// Of a peer that is down one of the messages that wait is gone, as it had not come whole. Its sender does not know either.
    fn vanishings(&self, state: &State) -> Vec<State> {
        let may_vanish = |number: &usize| {
            let message = self.message(*number);
            let is_seen = self.takers.contains_key(number) || self.claims.contains_key(number);
            state.away[message.from] && !is_seen && self.model.is_doubtful(message)
        };
        let without = |number: usize| {
            let mut next = state.clone();
            next.waiting.retain(|waiting| *waiting != number);
            next
        };
        state.waiting.iter().copied().filter(may_vanish).map(without).collect()
    }

    /// Receives from one peer alone end. Whether they were seen to.
    fn ends_directed(&self, state: &mut State, from: usize) -> bool {
        let mut is_right = true;
        state.open.retain(|open| {
            let receive = self.receive(open.receive);
            if receive.want.from != Some(from) {
                return true;
            }
            let is_many = receive.min_free.is_some();
            let is_seen = if is_many { receive.ended } else { receive.broken > 0 };
            is_right &= is_seen || self.is_unseen(receive);
            false
        });
        is_right
    }

    /// The next moment, if it is as it was seen.
    fn moment(&self, state: &State) -> Vec<State> {
        let Some((time, moment)) = self.moments().get(state.done) else { return Vec::new() };
        let mut next = state.clone();
        next.done += 1;
        let is_right = match moment {
            Moment::Posted(receive) => return self.posted(next, *receive),
            Moment::Canceled(receive, answer) => {
                let open = next.open.len();
                next.open.retain(|open| open.receive != *receive);
                (next.open.len() < open) == *answer
            }
            Moment::Withdrawn(message) => {
                next.waiting.retain(|waiting| waiting != message);
                let is_behind = !self.has_arrived(state, *message) && self.waits_behind(*message);
                next.withdrawn.extend(is_behind.then_some(*message));
                is_behind || state.waiting.contains(message)
            }
            Moment::Probed(want, None, _) => !state.waiting.iter().any(|number| {
                let RdmMessage { from, spec, .. } = self.message(*number);
                want.takes(*from, spec.tag)
            }),
            Moment::Probed(want, Some(sight), claim) => {
                let found = state.waiting.iter().position(|number| {
                    let RdmMessage { from, spec, .. } = self.message(*number);
                    *from == sight.from && want.takes(*from, spec.tag)
                });
                found.is_some_and(|at| self.found(&mut next, at, sight, *claim))
            }
            Moment::Took { message, .. } => self.is_gone(state, *message),
            Moment::Over(receive) => !state.open.iter().any(|open| open.receive == *receive),
            Moment::Matched(message) => {
                let claim = self.claims.get(message).map(|claim| &self.model.claims[*claim]);
                let is_used = claim.is_none_or(|claim| claim.used.is_some_and(|used| used < *time));
                self.is_gone(state, *message) && is_used
            }
            Moment::Arrived(message) => self.has_arrived(state, *message),
            Moment::Fallen(from) => state.away[*from],
            Moment::Admitted(from) => !state.away[*from],
            Moment::Removed(from) => self.removed(&mut next, *from),
            Moment::Inserted(from) | Moment::Revived(from) => {
                next.away[*from] = false;
                true
            }
        };
        is_right.then_some(next).into_iter().collect()
    }

    /// A receive is posted, and takes what it can, of several senders in any order: those that lead to what was seen.
    fn posted(&self, mut state: State, receive: usize) -> Vec<State> {
        state.open.push(Open { receive, used: 0, took: 0, broken: 0 });
        let at = state.open.len() - 1;
        let (mut done, mut left) = (Vec::new(), vec![state]);
        while let Some(state) = left.pop() {
            let oldest = self.oldest(&state, receive);
            if state.open.get(at).is_none() || oldest.is_empty() {
                done.push(state);
                continue;
            }
            for number in oldest {
                let mut next = state.clone();
                next.waiting.retain(|waiting| *waiting != number);
                if self.meets(&mut next, at, number) {
                    left.push(next);
                }
            }
        }
        done.retain_mut(|state| self.may_stay(state, at));
        done
    }

    /// A receive that was just posted, from a peer alone that is down, is refused if nothing waits for it. One of many messages ends
    /// with what waited.
    fn may_stay(&self, state: &mut State, at: usize) -> bool {
        let Some(open) = state.open.get(at) else { return true };
        let receive = self.receive(open.receive);
        if !receive.want.from.is_some_and(|from| state.away[from]) {
            return true;
        }
        let has_ended = open.took + open.broken > 0 && (receive.ended || self.is_unseen(receive));
        state.open.remove(at);
        has_ended
    }

    /// Of what waits and a receive takes, the oldest of each sender.
    fn oldest(&self, state: &State, receive: usize) -> Vec<usize> {
        let mut oldest: Vec<usize> = Vec::new();
        for number in state.waiting.iter().filter(|number| self.takes(receive, **number)) {
            let from = self.message(*number).from;
            if !oldest.iter().any(|other| self.message(*other).from == from) {
                oldest.push(*number);
            }
        }
        oldest
    }

    /// A probe found a waiting message. Whether it was that one.
    fn found(&self, state: &mut State, at: usize, sight: &Sight, claim: Option<usize>) -> bool {
        let number = state.waiting[at];
        let message = self.message(number);
        if (message.spec.tag, message.spec.len) != (sight.tag, sight.len) {
            return false;
        }
        let Some(claim) = claim else { return true };
        state.waiting.remove(at);
        match self.model.claims[claim].message {
            Some(claimed) => claimed == number,
            // It was lost before it was received.
            None => !self.takers.contains_key(&number),
        }
    }

    /// A peer is removed, with all that waits of it.
    fn removed(&self, state: &mut State, from: usize) -> bool {
        state.away[from] = true;
        let is_seen =
            |number: &usize| self.takers.contains_key(number) || self.claims.contains_key(number);
        let mut of_it = state.waiting.iter().filter(|number| self.message(**number).from == from);
        let is_right = !of_it.any(is_seen);
        state.waiting.retain(|number| self.message(*number).from != from);
        is_right && self.ends_directed(state, from)
    }

    /// Whether a message of the endpoint to itself may have waited for the end of a one-sided operation before it.
    fn waits_behind(&self, message: usize) -> bool {
        let posted = self.model.ops[self.message(message).op].posted;
        self.model.may_be_accessing(self.at, posted)
    }

    fn has_arrived(&self, state: &State, message: usize) -> bool {
        let from = self.message(message).from;
        self.streams[from][..state.arrived[from]].contains(&message)
    }

    /// Whether it has arrived, and does not wait.
    fn is_gone(&self, state: &State, message: usize) -> bool {
        self.has_arrived(state, message) && !state.waiting.contains(&message)
    }

    /// The next moment, and what there is, for a failure.
    pub(super) fn describe(&self, state: &State) -> String {
        let next = self.moments().get(state.done);
        let next = next.map_or("the end".to_owned(), |(_, moment)| self.describe_moment(moment));
        let mut text = format!("{next}, with these receives open:\n");
        for open in &state.open {
            let RdmReceive { want, room, .. } = self.receive(open.receive);
            text += &format!(
                "  receive {} of {want}, {} of {room} bytes used\n",
                open.receive, open.used
            );
        }
        text += "and these messages without one:\n";
        state.waiting.iter().for_each(|number| text += &self.describe_message(*number));
        text += "and to come:\n";
        for (from, stream) in self.streams.iter().enumerate() {
            for number in &stream[state.arrived[from]..] {
                text += &self.describe_message(*number);
            }
        }
        text
    }

    fn describe_message(&self, number: usize) -> String {
        let RdmMessage { from, spec, .. } = self.message(number);
        let taker = match self.takers.get(&number) {
            Some((receive, index)) => format!("seen in receive {receive} as its {index}"),
            None => "not seen in a receive".to_owned(),
        };
        format!("  message {number} of e{from}: {spec}; {taker}\n")
    }

    fn describe_moment(&self, moment: &Moment) -> String {
        match moment {
            Moment::Posted(number) => {
                let receive = self.receive(*number);
                format!(
                    "receive {number} of {} is posted, and takes {:?}",
                    receive.want, receive.took
                )
            }
            Moment::Took { receive, message } => {
                format!("receive {receive} has taken message {message}")
            }
            Moment::Probed(want, None, _) => format!("a probe for {want} finds nothing"),
            other => format!("{other:?}"),
        }
    }
}
