//! The long run: whether a message ever overtakes the write before it.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cases::crowd::joined;
use crate::prelude::*;

const PAIRS: usize = 1_000_000;
/// Pairs under way, and parts of the target: a part is written again when what it held has been looked at.
const PARTS: usize = 32;
const PART: usize = 400_000;
/// Pair i writes the pattern from byte 8 (i mod `TURNS`) on.
const TURNS: usize = 1000;

pub(super) fn witness(rig: &Rig) -> Outcome {
    let (a, b) = rig.pair()?;
    let bytes = rig.pattern(0).bytes(PART + 8 * TURNS);
    let source = a.holding(&bytes)?;
    let target = b.buffer(PARTS * PART)?;
    let seed = rig.rng().next_u64();
    let seen = AtomicUsize::new(0);
    thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let outcome = look(&b, &target, &bytes, seed, &seen);
            if outcome.is_err() {
                // The other thread should not wait for what is looked at no more.
                b.disconnect();
                seen.store(PAIRS, Ordering::Release);
            }
            outcome
        });
        let written = write(rig, &a, &source, &target, seed, &seen);
        let looked = joined(looking);
        // The thread that looks knows better what went wrong.
        looked.and(written)
    })?;
    Ok(())
}

/// What pair `i` takes of the pattern, and where within its part that goes.
fn place(seed: u64, i: usize) -> (Range<usize>, usize) {
    const LENS: [usize; 8] = [8, 64, 257, 2049, 4097, 9000, 70_000, 300_000];
    let mut rng = Rng::new(seed.wrapping_add(i as u64));
    // Long ones seldom, or nothing else would be copied.
    let kinds = if i.is_multiple_of(100) { LENS.len() } else { 5 };
    let max = LENS[rng.below(kinds)];
    let len = 1 + rng.below(max);
    let from = 8 * (i % TURNS);
    (from..from + len, rng.below(PART - len + 1))
}

fn write(
    rig: &Rig,
    a: &End,
    source: &Guarded,
    target: &Guarded,
    seed: u64,
    seen: &AtomicUsize,
) -> Outcome {
    for i in 0..PAIRS {
        rig.eventually(|| {
            check!(i < seen.load(Ordering::Acquire) + PARTS, "pair {} looked at", i - PARTS);
            Ok(())
        })?;
        let (from, at) = place(seed, i);
        let write = Op::write(source.slice(from), target.at(i % PARTS * PART + at));
        let send = Op::send(Slices::none()).immediate(i as u32).context(i as u64);
        a.post_batch(&[write.unsignaled(), send])?;
        if let Some(done) = i.checked_sub(PARTS) {
            a.expect_ok(done)?;
        }
    }
    a.expect_each(PAIRS - PARTS..PAIRS)
}

fn look(b: &End, target: &Guarded, bytes: &[u8], seed: u64, seen: &AtomicUsize) -> Outcome {
    let mut model = vec![0; target.len()];
    b.recv_empty(0..PARTS)?;
    for i in 0..PAIRS {
        b.expect(Done::recv(i, 0).immediate(i as u32))?;
        let (from, at) = place(seed, i);
        let part = i % PARTS * PART;
        let written = part + at..part + at + from.len();
        // The write, and what lies around it within its part.
        let around =
            written.start.saturating_sub(64).max(part)..(written.end + 64).min(part + PART);
        model[written].copy_from_slice(&bytes[from]);
        check_bytes!(target.bytes(around.clone())?, model[around], "write {i} at its message");
        if i + PARTS < PAIRS {
            b.recv(Slices::none(), (i + PARTS) as u64)?;
        }
        seen.store(i + 1, Ordering::Release);
    }
    Ok(())
}
