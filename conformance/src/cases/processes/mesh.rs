//! Many processes, each connected to each.

use fabric::Domain;

use crate::prelude::*;

const NODES: usize = 8;
const LEN: usize = 30_000;

/// One process: its memory, and an end for each other one.
struct Node {
    /// What it sends, and what the others read.
    own: Guarded,
    /// One place for each other node: what it sent, what it wrote, and what was read of it.
    inbox: Guarded,
    window: Guarded,
    copies: Guarded,
    /// To which every other node adds.
    count: Guarded,
    ends: Vec<Option<End>>,
}

fn place(i: usize) -> std::ops::Range<usize> {
    i * LEN..(i + 1) * LEN
}

impl Node {
    fn new(rig: &Rig, domain: &Domain) -> Result<Self, Failed> {
        let buffer = |len| rig.buffer(domain, len, Access::ALL);
        let [inbox, window, copies] =
            [buffer(NODES * LEN)?, buffer(NODES * LEN)?, buffer(NODES * LEN)?];
        let ends = (0..NODES).map(|_| None).collect();
        Ok(Node { own: buffer(LEN)?, inbox, window, copies, count: buffer(8)?, ends })
    }

    fn to(&self, other: usize) -> Result<&End, Failed> {
        self.ends[other].as_ref().ok_or_else(|| Failed::new("an end for each other node", "none"))
    }
}

pub(super) fn mesh(rig: &Rig) -> Outcome {
    let processes = (1..NODES).map(|_| rig.process()).collect::<Result<Vec<_>, _>>()?;
    let others = processes.iter().map(|process| process.domain()).collect::<Result<Vec<_>, _>>()?;
    let domains: Vec<&Domain> = [rig.domain_a()].into_iter().chain(&others).collect();
    let nodes = domains.iter().map(|domain| Node::new(rig, domain));
    let mut nodes = nodes.collect::<Result<Vec<_>, _>>()?;
    for (i, near) in domains.iter().enumerate() {
        for (j, far) in domains.iter().enumerate().skip(i + 1) {
            let (a, b) = rig.pair_on(near, far)?;
            (nodes[i].ends[j], nodes[j].ends[i]) = (Some(a), Some(b));
        }
    }
    let pairs = || (0..NODES).flat_map(|i| (0..NODES).map(move |j| (i, j))).filter(|(i, j)| i != j);
    let rounds = rig.count(2, 50);
    for round in 0..rounds {
        let pattern = |node: usize| rig.pattern(round * NODES + node);
        for (i, node) in nodes.iter().enumerate() {
            node.own.put_pattern(.., pattern(i))?;
        }
        for (i, j) in pairs() {
            nodes[j].to(i)?.recv(nodes[j].inbox.slice(place(i)), 5)?;
        }
        for (i, j) in pairs() {
            let (near, far) = (&nodes[i], &nodes[j]);
            near.to(j)?.post_batch(&[
                Op::send(&near.own).immediate(i as u32).context(1),
                Op::write(&near.own, far.window.at(place(i).start)).context(2),
                Op::atomic(AtomicOp::Add, 1u64, far.count.at(0)).context(3),
                Op::read(near.copies.slice(place(j)), far.own.at(0)).context(4),
            ])?;
        }
        for (i, j) in pairs() {
            let mut done = nodes[i].to(j)?.take(5)?;
            // Receives and what this side began have no order between them.
            done.sort_by_key(|done| done.context);
            for (done, context) in done.iter().zip(1..) {
                check_eq!((done.context, done.status), (context, Status::Ok), "{i} to {j}");
            }
            check_eq!((done[4].len, done[4].immediate), (LEN, Some(j as u32)), "of {j} at {i}");
        }
        for (i, j) in pairs() {
            // What was written, its target's CPU sees behind a message.
            nodes[j].to(i)?.settle(nodes[i].to(j)?)?;
            for (what, buffer) in [
                ("sent", &nodes[i].inbox),
                ("written", &nodes[i].window),
                ("read", &nodes[i].copies),
            ] {
                let checked = buffer.check_pattern(place(j), pattern(j));
                checked.map_err(|failed| failed.with_dump(format!("{what}: {j} and {i}")))?;
            }
        }
    }
    for node in &nodes {
        check_eq!(node.count.get::<u64>(0)?, (rounds * (NODES - 1)) as u64, "the count");
    }
    Ok(())
}
