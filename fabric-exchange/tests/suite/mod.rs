//! What every implementation does: the cases, each with a job of its own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use fabric_exchange::{
    Exchange, ExchangeError, Job, Limits, MAX_KEY_BYTES, Membership, MissingRanks, Result,
};

/// For what comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// For what does not.
const SOON: Duration = Duration::from_millis(30);
/// Keys of a job, of the places that are tested.
pub(crate) const KEYS: u32 = 48;

/// Where jobs meet.
pub(crate) type Place<'a> = &'a (dyn Fn(&Membership) -> Result<Exchange> + Sync);

/// The bounds of the places that are tested.
pub(crate) fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.job_keys = KEYS;
    limits
}

/// Runs in a job of this name.
type Case = fn(Place<'_>, &str);

const CASES: &[(&str, Case)] = &[
    ("blobs come as they were put", blobs),
    ("a get waits for the put", a_get_waits),
    ("a key has one value", conflicts),
    ("what does not come is named", time_outs),
    ("bounds hold", bounds),
    ("a rank joins once", joins),
    ("a barrier opens with the last rank", barriers),
    ("who is missing at a barrier is named", missing),
    ("a gather gives each rank's bytes", gathers),
    ("a gather can be tried again", gathers_again),
    ("an incarnation sees nothing of another", incarnations),
    ("a rank that is lost is named", lost),
    ("a rank that panics is lost", panics),
    ("a rank that left is named", left),
    ("threads of one rank do not wait for each other", threads),
    ("a call without time looks, however many wait", looks),
    ("a rank is in a barrier once", barriers_by_threads),
    ("a job that all have left is forgotten", forgotten),
];

/// Runs all of them.
pub(crate) fn run(place: Place<'_>) {
    for (name, case) in CASES {
        eprintln!("case: {name}");
        case(place, name);
    }
}

fn member(name: &str, incarnation: u64, size: u32, rank: u32) -> Membership {
    Membership::new(Job::new(name, incarnation, size).unwrap(), rank).unwrap()
}

fn join(place: Place<'_>, name: &str, size: u32, rank: u32) -> Exchange {
    place(&member(name, 0, size, rank)).unwrap()
}

fn all<const N: usize>(place: Place<'_>, name: &str) -> [Exchange; N] {
    std::array::from_fn(|rank| join(place, name, N as u32, rank as u32))
}

/// Each rank in a thread of its own.
fn each(ranks: &[Exchange], work: impl Fn(&Exchange) + Sync) {
    thread::scope(|scope| {
        for rank in ranks {
            scope.spawn(|| work(rank));
        }
    });
}

fn blobs(place: Place<'_>, name: &str) {
    let [first, second] = all(place, name);
    let long = "k".repeat(MAX_KEY_BYTES);
    let keys = ["a", "A", "a/b", "..", ".", "é \u{0}\n", "u", "g0.0", &long];
    for (at, key) in keys.iter().enumerate() {
        first.put(key, &[at as u8; 100]).unwrap();
    }
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(second.get(key, PATIENCE).unwrap(), [at as u8; 100], "{key:?}");
    }
    let largest = vec![0xa5; first.limits().blob_bytes as usize];
    second.put("largest", &largest).unwrap();
    second.put("empty", b"").unwrap();
    assert_eq!(first.get("largest", Duration::ZERO).unwrap(), largest);
    assert_eq!(first.get("empty", Duration::ZERO).unwrap(), b"");
    assert_eq!((first.rank(), second.rank(), first.size()), (0, 1, 2));
    assert_eq!(second.membership(), &member(name, 0, 2, 1));
}

fn a_get_waits(place: Place<'_>, name: &str) {
    let [first, second] = all(place, name);
    thread::scope(|scope| {
        let got = scope.spawn(|| first.get("later", PATIENCE));
        // It waits now, or begins to: either way it gets what is put then.
        assert!(second.get("other", SOON).is_err());
        second.put("later", b"here").unwrap();
        assert_eq!(got.join().unwrap().unwrap(), b"here");
    });
}

fn conflicts(place: Place<'_>, name: &str) {
    let [first, second] = all(place, name);
    first.put("key", b"value").unwrap();
    first.put("key", b"value").unwrap();
    second.put("key", b"value").unwrap();
    for (rank, bytes) in [(&first, &b"other"[..]), (&second, b""), (&second, b"value2")] {
        let conflict = ExchangeError::Conflict { key: "key".to_owned() };
        assert_eq!(rank.put("key", bytes), Err(conflict));
    }
    assert_eq!(second.get("key", Duration::ZERO).unwrap(), b"value");
}

fn time_outs(place: Place<'_>, name: &str) {
    let [first, _second] = all(place, name);
    for timeout in [Duration::ZERO, SOON] {
        let error = first.get("absent", timeout).unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, ExchangeError::TimedOut { waited, .. } if waited == timeout),
            "{text}"
        );
        assert!(text.contains("\"absent\"") && text.contains(&format!("{timeout:?}")), "{text}");
    }
}

fn bounds(place: Place<'_>, name: &str) {
    let [rank] = all(place, name);
    let max = rank.limits().blob_bytes as usize;
    let long = rank.put("key", &vec![0; max + 1]);
    assert!(matches!(long, Err(ExchangeError::TooLong { max: 4096, .. })), "{long:?}");
    let long = "k".repeat(MAX_KEY_BYTES + 1);
    for (key, is_empty) in [("", true), (&*long, false)] {
        let errors =
            [rank.put(key, b"x"), rank.get(key, PATIENCE).map(drop), rank.barrier(key, PATIENCE)];
        for error in errors.map(Result::unwrap_err) {
            let is_right = match error {
                ExchangeError::Invalid(_) => is_empty,
                ExchangeError::TooLong { found, max, .. } => found > max,
                _ => false,
            };
            assert!(is_right, "{key:?}: {error}");
        }
    }
    for key in 0..KEYS {
        rank.put(&key.to_string(), b"x").unwrap();
    }
    let full = rank.put("one more", b"x").unwrap_err();
    assert!(matches!(full, ExchangeError::Full { max, .. } if max == KEYS.into()), "{full}");
    rank.put("0", b"x").unwrap();
}

fn joins(place: Place<'_>, name: &str) {
    let first = join(place, name, 2, 0);
    let again = place(&member(name, 0, 2, 0)).unwrap_err();
    assert_eq!(again, ExchangeError::AlreadyJoined { rank: 0 });
    let other = place(&member(name, 0, 3, 1)).unwrap_err();
    assert_eq!(other, ExchangeError::SizeDiffers { own: 3, others: 2 });
    let second = join(place, name, 2, 1);
    second.leave().unwrap();
    let again = place(&member(name, 0, 2, 1)).unwrap_err();
    assert_eq!(again, ExchangeError::AlreadyJoined { rank: 1 });
    // It is another job to the next incarnation.
    let next = place(&member(name, 1, 3, 1)).unwrap();
    next.leave().unwrap();
    first.leave().unwrap();
}

fn barriers(place: Place<'_>, name: &str) {
    let ranks: [Exchange; 4] = all(place, name);
    let come = AtomicUsize::new(0);
    each(&ranks, |rank| {
        // More rounds than a job may have keys: those that all have passed are forgotten.
        for round in 1..=KEYS as usize + 2 {
            come.fetch_add(1, Ordering::SeqCst);
            rank.barrier("again", PATIENCE).unwrap();
            let come = come.load(Ordering::SeqCst);
            assert!(come >= 4 * round, "{come} had come in round {round}");
        }
        rank.barrier("other", PATIENCE).unwrap();
    });
}

fn missing(place: Place<'_>, name: &str) {
    let ranks: [Exchange; 3] = all(place, name);
    let error = ranks[1].barrier("x", SOON).unwrap_err();
    let ExchangeError::TimedOut { missing, what, .. } = &error else { panic!("{error}") };
    assert_eq!((&missing.first[..], missing.count), (&[0, 2][..], 2));
    assert!(what.contains("\"x\"") && error.to_string().contains("ranks 0, 2"), "{error}");
    let error = ranks[0].barrier("x", Duration::ZERO).unwrap_err();
    assert!(error.to_string().ends_with("missing is rank 2"), "{error}");
    // The two count as having come.
    ranks[2].barrier("x", PATIENCE).unwrap();
    ranks[0].barrier("x", Duration::ZERO).unwrap();
    ranks[1].barrier("x", Duration::ZERO).unwrap();
    let next = ranks[1].barrier("x", SOON).unwrap_err();
    assert!(next.to_string().contains("ranks 0, 2"), "the next of this name: {next}");
}

fn gathers(place: Place<'_>, name: &str) {
    let ranks: [Exchange; 3] = all(place, name);
    each(&ranks, |rank| {
        // More parts than a job may have keys: those that all have taken are forgotten.
        for round in 0..KEYS as u8 {
            let own = [rank.rank() as u8, round].repeat(rank.rank() as usize);
            let all = rank.all_gather(&own, PATIENCE).unwrap();
            assert_eq!(all, [vec![], vec![1, round], vec![2, round, 2, round]]);
        }
    });
}

fn gathers_again(place: Place<'_>, name: &str) {
    let [first, second] = all(place, name);
    let error = first.all_gather(b"first", SOON).unwrap_err();
    let ExchangeError::TimedOut { missing, .. } = &error else { panic!("{error}") };
    assert_eq!((&missing.first[..], missing.count), (&[1][..], 1));
    let changed = first.all_gather(b"changed", SOON).unwrap_err();
    assert!(matches!(changed, ExchangeError::Conflict { .. }), "{changed}");
    let both = [b"first".to_vec(), b"second".to_vec()];
    assert_eq!(second.all_gather(b"second", PATIENCE).unwrap(), both);
    assert_eq!(first.all_gather(b"first", PATIENCE).unwrap(), both);
}

fn incarnations(place: Place<'_>, name: &str) {
    let old = place(&member(name, 4, 2, 0)).unwrap();
    old.put("key", b"old").unwrap();
    assert!(old.barrier("x", Duration::ZERO).is_err());
    let new = place(&member(name, 5, 2, 0)).unwrap();
    assert!(matches!(new.get("key", SOON), Err(ExchangeError::TimedOut { .. })));
    new.put("key", b"new").unwrap();
    assert_eq!(old.get("key", Duration::ZERO).unwrap(), b"old");
    old.abandon().unwrap();
    let other = place(&member(name, 5, 2, 1)).unwrap();
    assert_eq!(other.get("key", PATIENCE).unwrap(), b"new");
    assert!(matches!(other.barrier("y", SOON), Err(ExchangeError::TimedOut { .. })));
}

fn lost(place: Place<'_>, name: &str) {
    let [first, second, third] = all(place, name);
    second.put("there", b"x").unwrap();
    let is_lost = |error| assert_eq!(error, ExchangeError::RankLost { rank: 1 });
    thread::scope(|scope| {
        let waits = [
            scope.spawn(|| first.barrier("x", PATIENCE)),
            scope.spawn(|| third.get("y", PATIENCE).map(drop)),
        ];
        second.abandon().unwrap();
        for wait in waits {
            is_lost(wait.join().unwrap().unwrap_err());
        }
    });
    is_lost(first.get("absent", PATIENCE).unwrap_err());
    is_lost(first.all_gather(b"", PATIENCE).unwrap_err());
    is_lost(third.barrier("z", PATIENCE).unwrap_err());
    assert_eq!(first.get("there", PATIENCE).unwrap(), b"x");
    first.put("still", b"y").unwrap();
    assert_eq!(third.get("still", PATIENCE).unwrap(), b"y");
}

fn panics(place: Place<'_>, name: &str) {
    let [first, second] = all(place, name);
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _second = second;
        panic!("as it is meant to");
    }));
    assert!(panicked.is_err());
    assert_eq!(first.barrier("x", PATIENCE), Err(ExchangeError::RankLost { rank: 1 }));
}

fn left(place: Place<'_>, name: &str) {
    let [first, second, third] = all(place, name);
    assert!(second.barrier("come", Duration::ZERO).is_err());
    assert!(second.all_gather(b"second", Duration::ZERO).is_err());
    second.leave().unwrap();
    let is_left = |error| assert_eq!(error, ExchangeError::RankLeft { rank: 1 });
    is_left(first.barrier("x", PATIENCE).unwrap_err());
    // To that it had come before, and this it had given.
    thread::scope(|scope| {
        scope.spawn(|| third.barrier("come", PATIENCE).unwrap());
        first.barrier("come", PATIENCE).unwrap();
        scope.spawn(|| third.all_gather(b"third", PATIENCE).unwrap());
        assert_eq!(first.all_gather(b"first", PATIENCE).unwrap()[1], b"second");
    });
    is_left(third.all_gather(b"third", PATIENCE).unwrap_err());
    // Another rank may put it.
    assert!(matches!(first.get("absent", SOON), Err(ExchangeError::TimedOut { .. })));
}

fn threads(place: Place<'_>, name: &str) {
    let [rank] = all(place, name);
    thread::scope(|scope| {
        let waits: Vec<_> = (0..40)
            .map(|at| {
                scope.spawn({
                    let rank = &rank;
                    move || rank.get(if at % 2 == 0 { "even" } else { "odd" }, PATIENCE).unwrap()
                })
            })
            .collect();
        // It comes through, however many wait.
        rank.put("even", b"x").unwrap();
        rank.put("odd", b"x").unwrap();
        for wait in waits {
            assert_eq!(wait.join().unwrap(), b"x");
        }
    });
}

fn looks(place: Place<'_>, name: &str) {
    let [first, second] = all(place, name);
    first.put("there", b"x").unwrap();
    thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| first.get("later", PATIENCE).unwrap());
        }
        // They wait, or begin to.
        thread::sleep(SOON * 10);
        let looked = first.get("there", Duration::ZERO);
        let late = first.get("absent", Duration::ZERO);
        let missing = first.barrier("x", Duration::ZERO);
        // It has come all the same.
        let passed = second.barrier("x", PATIENCE);
        second.put("later", b"x").unwrap();
        assert_eq!((looked.unwrap(), passed), (b"x".to_vec(), Ok(())));
        assert!(matches!(late, Err(ExchangeError::TimedOut { .. })), "{late:?}");
        let is_second = |missing: &MissingRanks| missing.first == [1];
        assert!(
            matches!(&missing, Err(ExchangeError::TimedOut { missing, .. }) if is_second(missing)),
            "{missing:?}"
        );
    });
    first.barrier("x", PATIENCE).unwrap();
}

fn barriers_by_threads(place: Place<'_>, name: &str) {
    let [first, second] = all(place, name);
    thread::scope(|scope| {
        let enter = || match first.barrier("x", PATIENCE) {
            Ok(()) => true,
            Err(error) => {
                assert!(matches!(&error, ExchangeError::Invalid(_)), "{error}");
                assert!(error.to_string().contains("another thread of this rank"), "{error}");
                // The other one is in it, and passes when all have come.
                second.barrier("x", PATIENCE).unwrap();
                false
            }
        };
        let threads = [scope.spawn(enter), scope.spawn(enter)];
        let have_passed = threads.map(|thread| thread.join().unwrap());
        assert_ne!(have_passed[0], have_passed[1]);
    });
    // The next ones are as they were.
    each(&[first, second], |rank| (0..3).for_each(|_| rank.barrier("x", PATIENCE).unwrap()));
}

fn forgotten(place: Place<'_>, name: &str) {
    let [first, second] = all(place, name);
    first.put("key", b"old").unwrap();
    first.leave().unwrap();
    second.leave().unwrap();
    let [first, second] = all(place, name);
    assert!(matches!(first.get("key", SOON), Err(ExchangeError::TimedOut { .. })));
    second.put("key", b"new").unwrap();
    assert_eq!(first.get("key", PATIENCE).unwrap(), b"new");
}
