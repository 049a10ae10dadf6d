//! Refusals that a device does not report to its owner: they are looked for whenever a region goes.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use fabric::Status;

use crate::rig::{SOON, Side, join, listen, open_region};

/// Long before a probe would notice anything.
const NOTICED: Duration = Duration::from_secs(30);

/// However quickly regions go one after the other, the refusal that the first of them caused is seen.
pub(crate) fn noticed_while_regions_go() {
    const LEN: usize = 4 << 20; // of many packets
    const READS: u64 = 32; // so many that some are under way when the region goes, however fast the device is
    let liveness = Duration::from_secs(60);
    let (from, to) = (Side::new(liveness), Side::new(liveness));
    join(&listen(&to.domain), &from.endpoint, &to.endpoint);
    let (room, target) = (open_region(&from.domain, LEN), open_region(&to.domain, LEN));
    for context in 0..READS {
        from.endpoint.read(room.slice(..), target.remote().at(0), context).unwrap();
    }
    assert_eq!(from.queue.wait_one(SOON).unwrap().status, Status::Ok);
    let (ended, went, start) =
        (AtomicBool::new(false), AtomicU32::new(0), std::time::Instant::now());
    thread::scope(|scope| {
        scope.spawn(|| {
            drop(target);
            while !ended.load(Ordering::Relaxed) {
                drop(open_region(&to.domain, 64));
                went.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_micros(200));
            }
        });
        let ends = [&to, &from].map(|side| side.endpoint.wait_disconnected(Some(NOTICED)));
        ended.store(true, Ordering::Relaxed);
        println!("{} regions went, {:?}", went.load(Ordering::Relaxed), start.elapsed());
        assert!(ends.iter().all(Result::is_ok), "{ends:?}");
    });
}
