//! What follows what, between two endpoints.

use fabric_rdm::matching::Pattern;
use fabric_rdm::{Recv, Send};

use crate::prelude::*;
use crate::rdm::{LENGTHS, RdmPair};

pub(super) fn mixed_sizes(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, to_a } = RdmPair::new(rig)?;
    let mut rng = rig.rng();
    for round in 0..rig.count(8, 200) {
        let mut lengths = LENGTHS.to_vec();
        rng.shuffle(&mut lengths);
        let sources = (0..).zip(&lengths).map(|(at, len)| a.patterned((*len).max(1), round + at));
        let sources = sources.collect::<Result<Vec<_>, _>>()?;
        let inboxes = lengths.iter().map(|len| b.buffer((*len).max(1)));
        let inboxes = inboxes.collect::<Result<Vec<_>, _>>()?;
        let recv = |at: usize| {
            let into = inboxes[at].slice(..lengths[at]);
            b.post_recv(&Recv::new(Pattern::tagged(1).from(to_a), into).context(at as u64))
        };
        // Some receives are there before, some are not.
        let before = rng.below(lengths.len());
        (0..before).try_for_each(|at| recv(at).map(drop))?;
        for (at, len) in lengths.iter().enumerate() {
            let send = Send::new(sources[at].slice(..*len)).tag(1).context(at as u64);
            a.when_room(|| a.post_send(to_b, &send))?;
        }
        (before..lengths.len()).try_for_each(|at| recv(at).map(drop))?;
        // They end in any order; each has its own message.
        let mut seen = vec![false; lengths.len()];
        for _ in &lengths {
            let done = b.next()?;
            let at = done.context as usize;
            check!(done.is_ok() && !std::mem::replace(&mut seen[at], true), "{done:?}");
            check_eq!(done.len, lengths[at] as u64, "the length of message {at}");
            inboxes[at].check_pattern(..lengths[at], rig.pattern(round + at))?;
            inboxes[at].check_guards()?;
        }
        for _ in &lengths {
            let done = a.next()?;
            check!(done.is_ok() && std::mem::take(&mut seen[done.context as usize]), "{done:?}");
        }
    }
    Ok(())
}

pub(super) fn eager_behind_rendezvous(rig: &Rig) -> Outcome {
    let RdmPair { a, b, to_b, to_a } = RdmPair::new(rig)?;
    let (long, inbox) = (a.patterned(1 << 20, 0)?, b.buffer(1 << 20)?);
    for round in 0..10 {
        a.post_send(to_b, &Send::new(&long).tag(1).context(1))?;
        a.post_send(to_b, &Send::inject(b"short").tag(1).context(2))?;
        if round % 2 == 0 {
            // Both are there before the first receive.
            thread::sleep(Duration::from_millis(1));
        }
        b.post_recv(&Recv::new(Pattern::tagged(1).from(to_a), inbox.slice(..)).context(1))?;
        b.post_recv(&Recv::new(Pattern::tagged(1).from(to_a), inbox.slice(..8)).context(2))?;
        let (first, second) = (b.next()?, b.next()?);
        let of = |context| if first.context == context { first } else { second };
        check!(of(2).len == 5 && of(1).len >= 1 << 20, "{first:?}, {second:?}");
        let (first, second) = (a.next()?, a.next()?);
        check!(first.is_ok() && second.is_ok(), "{first:?}, {second:?}");
    }
    Ok(())
}
