//! A queue pair that the device does not let go of: its memory stays.

use std::time::Duration;

use fabric::{Access, Status};

use crate::faults;
use crate::rig::{SOON, Side, join, listen};

const LEN: usize = 8 << 20;

/// Bytes that are pinned for devices.
fn pinned() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:")).unwrap();
    1024 * line.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
}

/// Drops an endpoint with receives in flight, and their region; says how much stays pinned.
fn drops(fails: bool) -> usize {
    let (from, to) = (Side::new(Duration::from_secs(10)), Side::new(Duration::from_secs(10)));
    join(&listen(&to.domain), &from.endpoint, &to.endpoint);
    let before = pinned();
    let region = to.domain.alloc(LEN, Access::ALL).unwrap();
    to.endpoint.recv(&region, 1).unwrap();
    to.endpoint.recv(&region, 2).unwrap();
    // One ends before, and is found after.
    from.endpoint.send(from.domain.alloc(64, Access::ALL).unwrap().slice(..), 3).unwrap();
    assert_eq!(from.queue.wait_one(SOON).unwrap().status, Status::Ok);
    if fails {
        // Nor does it flush what is in flight.
        faults::fail(&[("ibv_modify_qp", 0), ("ibv_destroy_qp", 0)]);
    }
    drop(to.endpoint);
    if fails {
        assert_eq!(faults::stop(), 2, "no queue pair was destroyed");
    } else {
        let ended: Vec<_> = (0..2).map(|_| to.queue.wait_one(SOON).unwrap()).collect();
        let ended: Vec<_> = ended.iter().map(|one| (one.context, one.status)).collect();
        assert_eq!(ended, [(1, Status::Ok), (2, Status::Canceled)]);
    }
    drop((region, to.queue, to.domain));
    pinned().saturating_sub(before)
}

pub(crate) fn keeps_its_memory() {
    assert_eq!(drops(false), 0);
    assert!(drops(true) >= LEN, "the memory was given back");
}
