//! A process that is killed while it waits in a barrier. The test's program is that process, too.

use std::process::{Command, Stdio};
use std::time::Duration;

use fabric_exchange::{Exchange, ExchangeError, Job, JoinOptions, Membership, Rendezvous};

const PATIENCE: Duration = Duration::from_secs(60);
/// Where the process that is killed joins.
const PLACE: &str = "FABRIC_EXCHANGE_TEST_PLACE";

fn join(place: &Rendezvous, rank: u32) -> Exchange {
    let membership = Membership::new(Job::new("killed", 0, 3).unwrap(), rank).unwrap();
    Exchange::join(place, &membership, &JoinOptions::default()).unwrap()
}

/// If this is the process that is killed: it waits in the barrier.
pub(crate) fn is_child() -> bool {
    let Ok(place) = std::env::var(PLACE) else { return false };
    let ended = join(&place.parse().unwrap(), 1).barrier("all", PATIENCE * 10);
    panic!("it was not killed: {ended:?}");
}

/// Runs the test of this name as rank 1, and kills it when it has come to the barrier.
pub(crate) fn kill_in_a_barrier(test: &str, place: &Rendezvous) {
    let ranks = [0, 2].map(|rank| join(place, rank));
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--include-ignored", "--nocapture"])
        .env(PLACE, place.to_string())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let begun = std::time::Instant::now();
    loop {
        match ranks[0].barrier("all", Duration::from_millis(50)) {
            Err(ExchangeError::TimedOut { missing, .. }) if missing.first == [2] => break,
            Err(ExchangeError::TimedOut { .. }) if begun.elapsed() < PATIENCE => {}
            other => {
                child.kill().unwrap();
                panic!("rank 1 does not come: {other:?}");
            }
        }
    }
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| ranks[0].barrier("all", PATIENCE));
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success());
        let lost = Err(ExchangeError::RankLost { rank: 1 });
        assert_eq!(waits.join().unwrap(), lost);
        assert_eq!(ranks[1].barrier("other", PATIENCE), lost);
    });
}
