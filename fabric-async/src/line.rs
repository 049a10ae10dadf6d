//! A line of futures that wait for room, first come, first served.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard};
use std::task::Waker;

use crate::lock;

/// A line. Whoever makes room calls [`wake_first`](Line::wake_first); who is first tries again, and leaves or stays.
#[derive(Debug, Default)]
pub(crate) struct Line {
    state: Mutex<State>,
    /// Those who wait; so that nobody locks for an empty line.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the front of `places`.
    first: u64,
    /// `None`: left.
    places: VecDeque<Option<Waker>>,
}

impl State {
    fn skip_left(&mut self) {
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
    }
}

/// A place in a line; none at first.
#[derive(Debug, Default)]
pub(crate) struct Ticket(Option<u64>);

impl Ticket {
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.0.is_some()
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Whether nobody waits, as far as this thread has heard.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    /// Whether it is this one's turn.
    #[inline]
    pub(crate) fn may_pass(&self, ticket: &Ticket) -> bool {
        match ticket.0 {
            None => self.is_empty(),
            Some(number) => self.lock().first == number,
        }
    }

    /// Takes a place, or renews the waker of the one there is. The caller looks for room once more afterwards.
    pub(crate) fn join(&self, ticket: &mut Ticket, waker: &Waker) {
        let mut state = self.lock();
        let number = match ticket.0 {
            Some(number) => number,
            None => {
                let number = state.first + state.places.len() as u64;
                state.places.push_back(None);
                self.waiting.fetch_add(1, Ordering::Relaxed);
                ticket.0 = Some(number);
                number
            }
        };
        let index = (number - state.first) as usize;
        let old = state.places.get_mut(index).and_then(|place| match place {
            Some(old) if old.will_wake(waker) => None,
            place => place.replace(waker.clone()),
        });
        drop(state);
        drop(old);
        fence(Ordering::SeqCst);
    }

    /// Gives up the place; who is first then tries.
    pub(crate) fn leave(&self, ticket: &mut Ticket) {
        let Some(number) = ticket.0.take() else { return };
        let mut state = self.lock();
        let index = (number - state.first) as usize;
        let left = state.places.get_mut(index).and_then(Option::take);
        let was_first = index == 0;
        state.skip_left();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        drop(state);
        drop(left);
        if was_first {
            self.wake_first();
        }
    }

    /// Who is to be woken when there may be room.
    #[inline]
    pub(crate) fn first(&self) -> Option<Waker> {
        // Pairs with `join`: who joins looks for room afterwards, who makes room looks for a line afterwards.
        fence(Ordering::SeqCst);
        if self.is_empty() { None } else { self.lock().places.front().cloned().flatten() }
    }

    /// There may be room.
    #[inline]
    pub(crate) fn wake_first(&self) {
        if let Some(waker) = self.first() {
            waker.wake();
        }
    }

    /// Everybody: nothing will ever come, so they are to look again.
    pub(crate) fn all(&self, wakers: &mut impl Extend<Waker>) {
        wakers.extend(self.lock().places.iter().flatten().cloned());
    }
}

/// Counts how often it is woken.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Count(pub(crate) AtomicUsize);

#[cfg(test)]
impl std::task::Wake for Count {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn first_come_first_served_and_who_leaves_hands_on() {
        let line = Line::default();
        let counts: Vec<Arc<Count>> = (0..4).map(|_| Arc::default()).collect();
        let mut tickets: Vec<Ticket> = (0..4).map(|_| Ticket::default()).collect();
        assert!(line.may_pass(&tickets[0]));
        for (ticket, count) in tickets.iter_mut().zip(&counts) {
            line.join(ticket, &count.clone().into());
        }
        assert!(!line.is_empty() && !line.may_pass(&Ticket::default()));
        let woken = || counts.iter().map(|c| c.0.load(Ordering::Relaxed)).collect::<Vec<_>>();
        line.leave(&mut tickets[1]);
        assert_eq!(woken(), [0, 0, 0, 0]);
        line.wake_first();
        assert_eq!(woken(), [1, 0, 0, 0]);
        assert!(line.may_pass(&tickets[0]) && !line.may_pass(&tickets[2]));
        line.leave(&mut tickets[0]);
        assert_eq!(woken(), [1, 0, 1, 0]);
        assert!(line.may_pass(&tickets[2]));
        line.leave(&mut tickets[2]);
        line.leave(&mut tickets[3]);
        line.leave(&mut tickets[3]);
        assert!(line.is_empty());
    }
}
