//! Senders and a receiver beside each other, with everything on its way for as long as it likes.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

/// A message with so many bytes beside its envelope.
#[derive(Debug)]
enum ToReceiver {
    Message(u64),
    Notices(Notices),
}

/// One sender, its part at the receiver, and what is between them, in order.
struct Pair {
    sender: SendWindow,
    account: Account,
    to_receiver: VecDeque<ToReceiver>,
    to_sender: VecDeque<Grant>,
    /// Messages that arrived and did not meet a receive.
    unmatched: VecDeque<u64>,
    posted: u64,
    arrived: u64,
}

struct Net {
    limits: WindowLimits,
    receiver: ReceiveWindows,
    pairs: Vec<Pair>,
}

fn limits(total: u64, window: u64, reserved: u64) -> WindowLimits {
    WindowLimits {
        places: Resource { total, window, reserved },
        bytes: Resource { total: 100 * total, window: 50 * window, reserved: 0 },
    }
}

impl Net {
    fn new(limits: WindowLimits, senders: usize) -> Self {
        let mut net =
            Net { limits, receiver: ReceiveWindows::new(&limits).unwrap(), pairs: Vec::new() };
        for _ in 0..senders {
            net.pairs.push(Pair {
                sender: SendWindow::new(&limits),
                account: net.receiver.open().unwrap(),
                to_receiver: VecDeque::new(),
                to_sender: VecDeque::new(),
                unmatched: VecDeque::new(),
                posted: 0,
                arrived: 0,
            });
        }
        net.announce();
        net
    }

    fn announce(&mut self) {
        while let Some((account, grant)) = self.receiver.take_grant() {
            let pair = self.pairs.iter_mut().find(|pair| pair.account == account);
            if let Some(pair) = pair {
                pair.to_sender.push_back(grant);
            }
        }
        // What is granted is never more than there is; nor is what is unmatched.
        let (places, bytes) = self.receiver.granted();
        assert!(places <= self.limits.places.total && bytes <= self.limits.bytes.total);
        let unmatched: usize = self.pairs.iter().map(|pair| pair.unmatched.len()).sum();
        assert!(unmatched as u64 <= self.limits.places.total);
        for pair in &self.pairs {
            assert!(pair.unmatched.len() as u64 <= self.limits.places.window);
        }
    }

    fn post(&mut self, at: usize, bytes: u64) -> Result<Sending, Blocked> {
        let posted = self.post_alone(at, bytes);
        self.notices(at);
        posted
    }

    /// A post whose notices go later: the connection has no room for them.
    fn post_alone(&mut self, at: usize, bytes: u64) -> Result<Sending, Blocked> {
        let pair = &mut self.pairs[at];
        let posted = pair.sender.post(bytes);
        match posted {
            Ok(Sending::Eager) => pair.to_receiver.push_back(ToReceiver::Message(bytes)),
            Ok(Sending::EnvelopeOnly) => pair.to_receiver.push_back(ToReceiver::Message(0)),
            Err(_) => {}
        }
        pair.posted += u64::from(posted.is_ok());
        posted
    }

    fn notices(&mut self, at: usize) {
        let pair = &mut self.pairs[at];
        pair.to_receiver.extend(pair.sender.take_notice().map(ToReceiver::Notices));
    }

    /// Whether there was anything to deliver.
    fn deliver_to_receiver(&mut self, at: usize) -> bool {
        let pair = &mut self.pairs[at];
        let Some(what) = pair.to_receiver.pop_front() else { return false };
        match what {
            ToReceiver::Message(bytes) => {
                // Those of odd lengths meet a receive at once.
                if bytes % 2 == 1 {
                    assert!(self.receiver.admits(pair.account, bytes));
                    self.receiver.on_passed(pair.account, bytes);
                } else {
                    self.receiver.on_message(pair.account, bytes).unwrap();
                    pair.unmatched.push_back(bytes);
                }
                pair.arrived += 1;
            }
            ToReceiver::Notices(it) => self.receiver.on_notice(pair.account, it).unwrap(),
        }
        self.announce();
        true
    }

    fn deliver_to_sender(&mut self, at: usize) -> bool {
        let delivered = self.grant_alone(at);
        if delivered {
            self.notices(at);
        }
        delivered
    }

    /// The same, with notices that go later.
    fn grant_alone(&mut self, at: usize) -> bool {
        let pair = &mut self.pairs[at];
        let Some(grant) = pair.to_sender.pop_front() else { return false };
        pair.sender.on_grant(grant).unwrap();
        true
    }

    /// Any unmatched message: matching is by tag.
    fn matched(&mut self, at: usize, which: usize) {
        let pair = &mut self.pairs[at];
        if pair.unmatched.is_empty() {
            return;
        }
        let bytes = pair.unmatched.remove(which % pair.unmatched.len()).unwrap();
        self.receiver.on_matched(pair.account, bytes);
        self.announce();
    }

    /// As a connection that is parked, and then there again.
    fn park_and_resume(&mut self, at: usize) {
        while self.deliver_to_receiver(at) || self.deliver_to_sender(at) {}
        self.pairs[at].sender.park();
        self.receiver.park(self.pairs[at].account);
        self.announce();
        assert!(!self.pairs[at].sender.is_open() && self.pairs[at].to_sender.is_empty());
        self.receiver.resume(self.pairs[at].account);
        self.announce();
    }

    fn settle(&mut self) {
        let pairs = self.pairs.len();
        while (0..pairs).any(|at| self.deliver_to_receiver(at) || self.deliver_to_sender(at)) {}
    }
}

/// Posts as many as go; as many as that was, and why no more did.
fn post_all(net: &mut Net, at: usize) -> (u64, Blocked) {
    let before = net.pairs[at].posted;
    // Each time with what was granted on asking.
    let mut blocked = net.post(at, 0).err();
    loop {
        let posted = net.pairs[at].posted;
        while blocked.is_none() {
            blocked = net.post(at, 0).err();
        }
        net.settle();
        blocked = net.post(at, 0).err();
        if let Some(why) = blocked
            && net.pairs[at].posted == posted
        {
            return (posted - before, why);
        }
    }
}

#[test]
fn window_again() {
    let mut net = Net::new(limits(100, 8, 2), 2);
    net.settle();
    assert_eq!(post_all(&mut net, 0), (8, Blocked::Window));
    assert_eq!(post_all(&mut net, 1), (8, Blocked::Window), "the other has its own");
    net.matched(0, 3);
    net.settle();
    assert_eq!(post_all(&mut net, 0), (1, Blocked::Window));
}

#[test]
fn others_have_the_places() {
    let mut net = Net::new(limits(12, 8, 2), 3);
    net.settle();
    assert_eq!(post_all(&mut net, 0), (8, Blocked::Window));
    assert_eq!(post_all(&mut net, 1), (2, Blocked::Places), "what is reserved for it");
    assert_eq!(post_all(&mut net, 2), (2, Blocked::Places));
    net.matched(0, 0);
    net.settle();
    assert_eq!(post_all(&mut net, 1), (1, Blocked::Places), "it asked first");
    assert_eq!(post_all(&mut net, 2), (0, Blocked::Places));
    net.matched(0, 0);
    net.settle();
    assert_eq!(post_all(&mut net, 2), (1, Blocked::Places));
}

#[test]
fn what_is_not_used_is_given_back() {
    let mut net = Net::new(limits(12, 8, 2), 3);
    net.settle();
    // Two messages, and a grant ahead for more, which are not sent.
    for _ in 0..2 {
        net.post(0, 0).unwrap();
        net.settle();
    }
    assert!(net.receiver.granted().0 > 6);
    assert_eq!(post_all(&mut net, 1), (8, Blocked::Window));
    assert!(net.post(0, 0).is_err() || net.pairs[0].sender.is_open(), "it has some, or can ask");
    net.matched(0, 0);
    net.settle();
    net.post(0, 0).unwrap();
}

/// The first that is asked to give back has used all by then: another one is asked.
#[test]
fn one_gives_back_where_another_has_nothing() {
    let mut net = Net::new(limits(10, 4, 2), 3);
    net.settle();
    for at in [0, 1] {
        net.post(at, 0).unwrap();
        net.post(at, 0).unwrap();
        net.settle();
    }
    assert_eq!(net.receiver.granted().0, 10, "four each, and what is reserved for the third");
    net.post(0, 0).unwrap();
    net.post(0, 0).unwrap();
    net.post(2, 0).unwrap();
    net.post(2, 0).unwrap();
    while net.deliver_to_receiver(2) {}
    net.settle();
    assert_eq!(post_all(&mut net, 2), (2, Blocked::Window));
}

/// What is reserved for one more is what another one has and does not use, as soon as that is asked for.
#[test]
fn one_that_has_all_makes_room_for_a_newcomer() {
    let mut net = Net::new(limits(9, 8, 1), 1);
    net.settle();
    assert_eq!(post_all(&mut net, 0), (8, Blocked::Window));
    (0..8).for_each(|_| net.matched(0, 0));
    net.settle();
    let second = net.receiver.open().unwrap();
    assert!(net.receiver.open().is_err(), "one has 8 places, another one has 1");
    net.announce();
    net.settle();
    let third = net.receiver.open().unwrap();
    assert!(third != second);
}

fn notice(unused: u64, wants: bool) -> Notices {
    Notices { places: Notice { unused, wants }, bytes: Notice::default() }
}

/// Three peers: the first waits, the others have all, and the second has been asked to give back.
fn one_waits() -> (ReceiveWindows, [Account; 3]) {
    let mut receiver = ReceiveWindows::new(&limits(9, 4, 1)).unwrap();
    let [a, b, c] = [(); 3].map(|()| receiver.open().unwrap());
    for account in [b, c] {
        receiver.on_notice(account, notice(0, true)).unwrap();
    }
    while receiver.take_grant().is_some() {}
    assert_eq!(receiver.granted().0, 9, "four for two of them");
    assert!(!receiver.is_short(), "no peer waits");
    receiver.on_message(a, 0).unwrap();
    receiver.on_notice(a, notice(0, true)).unwrap();
    recalled(&mut receiver, b);
    (receiver, [a, b, c])
}

/// The next grant asks this one to give back.
fn recalled(receiver: &mut ReceiveWindows, from: Account) {
    let (asked, grant) = receiver.take_grant().unwrap();
    assert!(asked == from && grant.places.recall);
}

/// One gives back all that it has, and another one is served by that.
fn gives_back(receiver: &mut ReceiveWindows, from: Account, to: Account) {
    receiver.on_notice(from, notice(4, false)).unwrap();
    let (served, grant) = receiver.take_grant().unwrap();
    assert!(served == to && grant.places.granted > 1);
}

/// One that has all it may have, and waits for more since its question was late, gives back to the one before it.
#[test]
fn one_that_waits_gives_back_what_it_does_not_use() {
    let (mut receiver, [a, b, c]) = one_waits();
    // It has used all by then.
    (0..4).for_each(|_| receiver.on_message(b, 0).unwrap());
    receiver.on_notice(c, notice(0, true)).unwrap();
    recalled(&mut receiver, c);
    gives_back(&mut receiver, c, a);
}

/// One that does not answer when it is to give back keeps none waiting that others could serve.
#[test]
fn one_that_does_not_answer_is_passed_over() {
    let (mut receiver, [a, _, c]) = one_waits();
    assert!(receiver.take_grant().is_none() && receiver.is_short());
    receiver.recall_more();
    recalled(&mut receiver, c);
    assert!(!receiver.is_short(), "all were asked");
    gives_back(&mut receiver, c, a);
}

/// What was wanted is not asked for when it has come; what is given back can be asked for again.
#[test]
fn a_sender_asks_for_what_it_lacks_now() {
    let grant = |granted, recall| Grant {
        places: Allowance { granted, freed: 0, recall },
        bytes: Allowance::default(),
    };
    let mut sender = SendWindow::new(&limits(9, 4, 1));
    assert_eq!(sender.post(0), Err(Blocked::Places));
    sender.on_grant(grant(2, false)).unwrap();
    assert_eq!(sender.take_notice(), None);
    sender.on_grant(grant(2, true)).unwrap();
    // One that could not be sent stays, and is said once.
    let unsent = sender.notice();
    assert_eq!(sender.notice(), unsent);
    assert_eq!(sender.take_notice(), unsent);
    assert_eq!(sender.notice(), None);
    let said = unsent.unwrap().places;
    assert_eq!(said, Notice { unused: 2, wants: false });
    assert_eq!(sender.post(0), Err(Blocked::Places));
    assert!(sender.take_notice().unwrap().places.wants);
    sender.on_grant(grant(2, true)).unwrap();
    assert_eq!(sender.post(0), Err(Blocked::Places));
    assert!(sender.take_notice().unwrap().places.wants, "the receiver may have forgotten it");
}

/// The oldest message of a peer is never matched, and those behind it are.
#[test]
fn tag_b_behind_a() {
    let mut net = Net::new(limits(5, 8, 2), 2);
    net.settle();
    net.post(0, 0).unwrap();
    post_all(&mut net, 1);
    for _ in 0..100 {
        net.settle();
        let (posted, _) = post_all(&mut net, 0);
        assert!(posted > 0);
        for _ in 0..posted {
            net.matched(0, 1);
        }
    }
}

#[test]
fn without_bytes_the_envelope_goes() {
    let mut net = Net::new(limits(10, 4, 2), 1);
    net.settle();
    assert_eq!(net.post(0, 10), Ok(Sending::EnvelopeOnly));
    net.settle();
    assert_eq!(net.post(0, 200), Ok(Sending::Eager), "it asked for the whole window");
    net.settle();
    assert_eq!(net.post(0, 1), Ok(Sending::EnvelopeOnly));
}

#[test]
fn a_peer_that_leaves_gives_all_back() {
    let mut net = Net::new(limits(8, 8, 2), 1);
    net.settle();
    post_all(&mut net, 0);
    net.receiver.close(net.pairs[0].account);
    assert_eq!(net.receiver.granted().0, 8, "its messages are there");
    assert!(net.receiver.open().is_err());
    (0..3).for_each(|_| net.matched(0, 0));
    let other = net.receiver.open().unwrap();
    assert_ne!(other, net.pairs[0].account);
    (0..5).for_each(|_| net.matched(0, 0));
    assert_eq!(net.receiver.granted().0, 2, "of the other one");
    assert_eq!(net.receiver.open().unwrap(), net.pairs[0].account, "the number is used again");
}

#[test]
fn dishonest_peers_are_found() {
    let limits = limits(8, 4, 2);
    let mut receiver = ReceiveWindows::new(&limits).unwrap();
    let account = receiver.open().unwrap();
    assert_eq!(receiver.on_message(account, 0), Err(WindowError::Exceeded), "not announced yet");
    let (_, grant) = receiver.take_grant().unwrap();
    assert_eq!(receiver.on_message(account, 1), Err(WindowError::Exceeded), "bytes");
    receiver.on_message(account, 0).unwrap();
    let unused =
        |unused| Notices { places: Notice { unused, wants: false }, bytes: Notice::default() };
    assert_eq!(receiver.on_notice(account, unused(u64::MAX)), Err(WindowError::Exceeded));
    let mut sender = SendWindow::new(&limits);
    sender.on_grant(grant).unwrap();
    let with = |granted, freed| {
        let places = Allowance { granted, freed, recall: false };
        Grant { places, ..grant }
    };
    for (granted, freed) in [(1, 0), (5, 0), (u64::MAX, 0), (3, 1), (3, u64::MAX)] {
        assert_eq!(sender.on_grant(with(granted, freed)), Err(WindowError::Grant));
    }
    assert_eq!(sender.on_grant(with(4, 0)), Ok(true));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..Default::default() })]
    /// Whatever happens in whatever order, nothing is exceeded (`announce` looks); and once receives are there for all,
    /// every sender gets on.
    #[test]
    fn grants_never_exceed_slots_and_no_sender_is_stuck(
        (senders, window, reserved, pool) in (1..6usize, 1..8u64, 1..4u64, 0..12u64),
        steps in proptest::collection::vec((0..33, 0..6usize, 0..8usize, 0..120u64), 0..400),
    ) {
        let window = window.max(reserved);
        let mut net = Net::new(limits(senders as u64 * reserved + pool, window, reserved), senders);
        for (step, at, which, bytes) in steps {
            let at = at % senders;
            match step {
                0..5 => drop(net.post(at, bytes)),
                5..8 => drop(net.post_alone(at, bytes)),
                8..16 => _ = net.deliver_to_receiver(at),
                16..21 => _ = net.deliver_to_sender(at),
                21..24 => _ = net.grant_alone(at),
                24..32 => net.matched(at, which),
                _ => net.park_and_resume(at),
            }
        }
        (0..senders).for_each(|at| net.notices(at));
        // What was posted arrives, matched or not.
        net.settle();
        for at in 0..senders {
            prop_assert_eq!(net.pairs[at].posted, net.pairs[at].arrived);
        }
        // With one message of each left, all others of every sender get through.
        for _ in 0..3 {
            for at in 0..senders {
                while net.pairs[at].unmatched.len() > usize::from(reserved > 1) {
                    net.matched(at, 1);
                }
            }
            net.settle();
            for at in 0..senders {
                let blocked = net.post(at, 10).err();
                net.settle();
                let posted = blocked.is_none() || net.post(at, 10).is_ok();
                prop_assert!(posted, "sender {} is stuck", at);
                net.settle();
            }
        }
        // And nothing is lost of the pool: one alone can have all that its window allows.
        for at in 0..senders {
            while !net.pairs[at].unmatched.is_empty() {
                net.matched(at, 0);
            }
        }
        net.settle();
        let (posted, _) = post_all(&mut net, 0);
        prop_assert_eq!(posted, window.min(pool + reserved));
    }

    /// What a peer may say, to either side.
    #[test]
    fn nothing_panics(calls in proptest::collection::vec((0..8, any::<bool>(), any::<[u64; 4]>(), any::<bool>()), 0..60)) {
        let limits = limits(9, 4, 2);
        let mut sender = SendWindow::new(&limits);
        let mut receiver = ReceiveWindows::new(&limits).unwrap();
        let account = receiver.open().unwrap();
        for (call, is_small, numbers, flag) in calls {
            // Small numbers get far, large ones overflow.
            let [one, two, three, four] = numbers.map(|number| if is_small { number % 6 } else { number });
            let allowance = |granted, freed| Allowance { granted, freed, recall: flag };
            let notice = |unused| Notice { unused, wants: flag };
            match call {
                0 => _ = sender.post(one),
                1 => _ = sender.on_grant(Grant { places: allowance(one, two), bytes: allowance(three, four) }),
                2 => _ = sender.take_notice(),
                3 => sender.park(),
                4 => _ = receiver.on_message(account, one),
                5 => _ = receiver.on_notice(account, Notices { places: notice(one), bytes: notice(two) }),
                6 => receiver.on_matched(account, one),
                _ if flag => receiver.park(account),
                _ => receiver.resume(account),
            }
            while receiver.take_grant().is_some() {}
            prop_assert!(receiver.granted().0 <= 9);
        }
    }
}
