//! What the end of a connection leaves in a queue.

use crate::prelude::*;

/// The next `count` completions of a queue, whose endpoints may be gone.
pub(super) fn take(
    rig: &Rig,
    queue: &RecordedQueue,
    count: usize,
) -> Result<Vec<Completion>, Failed> {
    let patience = Some(rig.scaled(Duration::from_secs(10)));
    (0..count).map(|_| Ok(queue.wait_one(patience)?)).collect()
}

/// Contexts and statuses of the receives among completions, or of the others.
pub(super) fn ends(done: &[Completion], receives: bool) -> Vec<(u64, Status)> {
    let of_side = done.iter().filter(|one| one.kind.is_receive() == receives);
    of_side.map(|one| (one.context, one.status)).collect()
}

/// Checks that operations completed in the order of their contexts, from 0 on: first those that went well, then those
/// that ended with the connection, in one of these ways. Gives how many went well.
pub(super) fn check_flushed<'a>(
    what: &str,
    count: usize,
    ways: &[Status],
    done: impl Iterator<Item = &'a Completion>,
) -> Result<usize, Failed> {
    let (mut good, mut all) = (0, 0);
    for one in done {
        check_eq!(one.context, all as u64, "context of the next of the {what}");
        all += 1;
        match one.status {
            Status::Ok if good == all - 1 => good += 1,
            status if ways.contains(&status) => {}
            status => fail!(format!("{what} to be Ok, then {ways:?}"), "{status:?} of {one:?}"),
        }
    }
    check_eq!(all, count, "how many {what} completed");
    Ok(good)
}

/// How operations end that the connection's end overtakes: by this side's doing, and by the peer's.
pub(super) const CLOSED: &[Status] = &[Status::Canceled];
pub(super) const PEER_CLOSED: &[Status] = &[Status::Canceled, Status::PeerLost];
