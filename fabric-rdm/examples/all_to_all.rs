//! Every rank sends a block to every rank, as the transpose of a matrix or a shuffle does: `all_to_all`, alone or by a launcher.

mod ranks;

use fabric_rdm::matching::Pattern;
use fabric_rdm::{Kind, Recv, Send};
use ranks::{Outcome, PATIENCE, Rank};

/// Bytes that each rank has for each: long enough that they are read from the sender's memory.
const BLOCK: usize = 256 << 10;

fn main() -> Outcome {
    ranks::run("all-to-all", program)
}

fn program(rank: Rank) -> Outcome {
    let Rank { number, endpoint, peers, .. } = &rank;
    let (outbox, inbox) = (rank.memory(peers.len() * BLOCK)?, rank.memory(peers.len() * BLOCK)?);
    let block = |at: usize| at * BLOCK..(at + 1) * BLOCK;
    for to in 0..peers.len() {
        outbox.write_at(to * BLOCK, &vec![(16 * number + to) as u8; BLOCK])?;
    }
    for (from, peer) in peers.iter().enumerate() {
        let recv = Recv::new(Pattern::tagged(1).from(*peer), inbox.slice(block(from)));
        endpoint.post_recv(&recv.unsignaled())?;
    }
    // Each begins with the rank behind it, so that no rank gets all at once. A rank sends to itself as to others.
    for step in 0..peers.len() {
        let to = (number + step) % peers.len();
        endpoint.post_send(peers[to], &Send::new(outbox.slice(block(to))).tag(1).unsignaled())?;
    }
    let all = peers.len() as u64;
    endpoint.counter(Kind::Recv).wait_for(all, 0, Some(PATIENCE))?;
    endpoint.counter(Kind::Send).wait_for(all, 0, Some(PATIENCE))?;
    for from in 0..peers.len() {
        let expected = (16 * from + number) as u8;
        assert!(inbox.to_vec(block(from))?.iter().all(|byte| *byte == expected));
    }
    println!("rank {number} has a block of each of {all}");
    rank.leave()
}
