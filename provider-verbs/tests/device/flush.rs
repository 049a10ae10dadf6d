//! A device that refuses to move a queue pair to the error state, and so may be at work.

use std::time::{Duration, Instant};

use fabric::{Error, Op, Status};

use crate::calls::every_modify;
use crate::faults;
use crate::rig::{Side, join, listen, open_region, take};

const REFUSES: Duration = Duration::from_millis(700);
const SOON: Duration = Duration::from_secs(20);

/// Nothing ends before the device has stopped, and then everything does.
pub(crate) fn is_tried_again() {
    let (from, to) = (Side::new(Duration::from_secs(10)), Side::new(Duration::from_secs(10)));
    join(&listen(&to.domain), &from.endpoint, &to.endpoint);
    let (room, target) = (open_region(&from.domain, 64), open_region(&to.domain, 64));
    for context in 0..2 {
        from.endpoint.recv(&room, context).unwrap();
    }
    // It succeeds without a completion: only what is flushed behind it shows that it has.
    let source = open_region(&from.domain, 64);
    from.endpoint.post(&Op::write(&source, target.remote().at(0)).unsignaled()).unwrap();

    faults::fail(&every_modify());
    let begun = Instant::now();
    from.endpoint.disconnect();
    faults::go_on(REFUSES, 3);
    let early = from.queue.poll_one().unwrap();
    assert!(early.is_none(), "{early:?}");
    assert!(matches!(source.close(), Err(Error::Busy)), "the device may read from it");
    let (refused, start) = (faults::stop(), Instant::now());
    let max = begun.elapsed().as_millis() as usize / 17;
    assert!((3..=max).contains(&refused), "refused {refused} times, {max} at most");
    let ended = take(&from.queue, 2);
    let ended: Vec<_> = ended.iter().map(|one| (one.context, one.status)).collect();
    assert_eq!(ended, [(0, Status::Canceled), (1, Status::Canceled)]);
    while let Err(error) = source.close() {
        assert!(matches!(error, Error::Busy) && start.elapsed() < SOON, "{error}");
        assert!(from.queue.poll_one().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(2));
    }
    println!("all had ended {:.2?} after the device stopped", start.elapsed());
    assert!(start.elapsed() < SOON);
}
