//! The parent of the soak: whom it kills and stops when, and what it says to the others.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use fabric_util::splitmix::SplitMix64;
use rustix::process::Signal;

use crate::member::{ID, LISTEN, SEED, STEADY};
use crate::process::{LONG, Process};
use crate::words::{Order, Place};
use crate::{Outcome, variable};

const MEMBERS: u32 = 6;
/// So many of them are never killed: those with the numbers from 1.
pub(crate) const STEADY_ONES: u32 = 2;

/// A member, and the place of those that follow it.
struct Seat {
    id: u32,
    steady: bool,
    process: Process,
    /// Once it said so.
    place: Option<Place>,
    /// The last one that it said by itself.
    last_word: String,
    stopped_until: Option<Instant>,
}

struct Parent {
    provider: String,
    seed: u64,
    random: SplitMix64,
    next_id: u32,
    seats: Vec<Seat>,
    kills: u64,
    stops: u64,
}

/// Says which one it was that failed.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("FABRIC_RDM_SEED={}", self.0);
        }
    }
}

pub(crate) fn run(provider: &str) {
    let by_clock = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64 >> 10;
    let seed = variable("FABRIC_RDM_SEED", by_clock);
    let seconds = variable("FABRIC_RDM_KILL_SECONDS", 10);
    println!("{provider}: {seconds} s, FABRIC_RDM_SEED={seed}");
    let _seed = Seed(seed);
    let mut parent = Parent {
        provider: provider.to_owned(),
        seed,
        random: SplitMix64::new(seed),
        next_id: 1,
        seats: Vec::new(),
        kills: 0,
        stops: 0,
    };
    for member in 0..MEMBERS {
        let seat = parent.seat(member < STEADY_ONES, None);
        parent.seats.push(seat);
    }
    parent.kill_for(Duration::from_secs(seconds));
    parent.all_end();
}

impl Parent {
    fn seat(&mut self, steady: bool, listen: Option<SocketAddr>) -> Seat {
        let id = self.next_id;
        self.next_id += 1;
        let mut variables = vec![
            (ID, id.to_string()),
            (SEED, self.seed.to_string()),
            (STEADY, u8::from(steady).to_string()),
        ];
        variables.extend(listen.map(|addr| (LISTEN, addr.to_string())));
        let name = format!("member {id}");
        let process = Process::start(&name, "member", &self.provider, &variables);
        Seat { id, steady, process, place: None, last_word: String::new(), stopped_until: None }
    }

    /// Says something to all that have a place.
    fn order_all(&mut self, order: &Order) {
        let line = order.to_string();
        for seat in self.seats.iter_mut().filter(|seat| seat.place.is_some()) {
            seat.process.order(&line);
        }
    }

    /// Hears all that members say.
    fn hear(&mut self) {
        if let Err(error) = self.hear_each() {
            self.fail(&error);
        }
    }

    fn hear_each(&mut self) -> Outcome {
        for at in 0..self.seats.len() {
            // After its last word comes its end.
            while !self.seats[at].last_word.starts_with("done") {
                match self.seats[at].process.line(Duration::ZERO)? {
                    Some(line) => self.on_line(at, &line)?,
                    None => break,
                }
            }
        }
        Ok(())
    }

    fn on_line(&mut self, at: usize, line: &str) -> Outcome {
        let from = self.seats[at].id;
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "at" => self.on_place(at, Place::parse(rest)),
            "cut" => self.order_one(rest.parse().unwrap(), &Order::Cut(from)),
            "sent" => {
                let (to, count) = rest.split_once(' ').unwrap();
                let order = Order::Sent(from, count.parse().unwrap());
                self.order_one(to.parse().unwrap(), &order);
            }
            "failed:" => return Err(format!("member {from}: {rest}")),
            _ => self.seats[at].last_word = line.to_owned(),
        }
        Ok(())
    }

    fn order_one(&mut self, to: u32, order: &Order) {
        let line = order.to_string();
        let seat = self.seats.iter_mut().find(|seat| seat.id == to);
        // It may be dead by now.
        seat.into_iter().for_each(|seat| seat.process.order(&line));
    }

    /// A new one is there: it and the others learn of each other.
    fn on_place(&mut self, at: usize, place: Place) {
        self.seats[at].place = Some(place);
        let peer = |seat: &Seat| {
            let (id, steady) = (seat.id, seat.steady);
            seat.place.clone().map(|place| Order::Peer { id, steady, place })
        };
        let own = peer(&self.seats[at]).unwrap();
        let others: Vec<_> = self.seats.iter().filter_map(peer).collect();
        for (order, other) in others.iter().map(|order| (order, order.clone())) {
            if let Order::Peer { id, .. } = other
                && id != self.seats[at].id
            {
                self.order_one(id, &own);
            }
            self.seats[at].process.order(&order.to_string());
        }
    }

    /// The state of all, and the end.
    fn fail(&mut self, error: &str) -> ! {
        self.order_all(&Order::Dump);
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            // The others go on meanwhile.
            let _ = self.hear_each();
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("over {}, after {} kills: {error}", self.provider, self.kills);
    }

    fn kill_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        let mut next_kill = Instant::now() + Duration::from_millis(500);
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
            self.hear();
            let now = Instant::now();
            for seat in &mut self.seats {
                if seat.stopped_until.is_some_and(|until| until <= now) {
                    seat.process.signal(Signal::CONT);
                    seat.stopped_until = None;
                }
            }
            if now < next_kill {
                continue;
            }
            next_kill = now + Duration::from_millis(100 + self.random.below(400) as u64);
            if self.random.once_in(4) {
                self.stop_one(now);
            }
            self.kill_one();
        }
        for seat in &mut self.seats {
            if seat.stopped_until.take().is_some() {
                seat.process.signal(Signal::CONT);
            }
        }
    }

    fn stop_one(&mut self, now: Instant) {
        let at = self.random.below(self.seats.len());
        let time = Duration::from_millis(self.random.below(300) as u64);
        self.seats[at].process.signal(Signal::STOP);
        self.seats[at].stopped_until = Some(now + time);
        self.stops += 1;
    }

    /// Kills one, also one that has only begun, and starts another one; often where the first one listened.
    fn kill_one(&mut self) {
        let mortals = self.seats.len() - STEADY_ONES as usize;
        let at = STEADY_ONES as usize + self.random.below(mortals);
        let place = self.seats[at].place.as_ref();
        let addr = place.and_then(|place| place.address.rails().next());
        let again = self.random.once_in(2);
        let new = self.seat(false, addr.filter(|_| again));
        let Seat { id, process, place, .. } = std::mem::replace(&mut self.seats[at], new);
        let last_lines = process.kill();
        self.kills += 1;
        // What it did in its last moment explains what others see.
        for line in last_lines {
            if let Some(of) = line.strip_prefix("cut ") {
                self.order_one(of.parse().unwrap(), &Order::Cut(id));
            } else if line.starts_with("failed") {
                self.fail(&format!("member {id}: {line}"));
            }
        }
        if place.is_some() {
            self.order_all(&Order::Dead(id));
        }
    }

    /// Waits until all have said this word.
    fn all_say(&mut self, word: &str) {
        let until = Instant::now() + LONG;
        loop {
            self.hear();
            let silent = self.seats.iter().find(|seat| !seat.last_word.starts_with(word));
            let Some(name) = silent.map(|seat| seat.process.name.clone()) else { return };
            if Instant::now() > until {
                self.fail(&format!("{name} does not say {word}"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn all_end(&mut self) {
        let until = Instant::now() + LONG;
        while self.seats.iter().any(|seat| seat.place.is_none()) {
            assert!(Instant::now() < until, "a member that does not begin");
            std::thread::sleep(Duration::from_millis(2));
            self.hear();
        }
        for (order, word) in [
            (Order::Drain, "drained"),
            (Order::Exchange, "exchanged"),
            (Order::Settle, "settled"),
            (Order::End, "done"),
        ] {
            self.order_all(&order);
            self.all_say(word);
        }
        println!("over {}: {} kills, {} stops", self.provider, self.kills, self.stops);
        for seat in self.seats.drain(..) {
            println!("    {} {}", seat.process.name, seat.last_word);
            seat.process.ends_well();
        }
    }
}
