//! Rank 0 has tasks, the others ask for them when they are free: tags say what a message is.

mod ranks;

use fabric::Region;
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Endpoint, Peer, Recv, Send};
use ranks::{Outcome, PATIENCE, Rank};

/// Kinds of messages.
const ASK: u64 = 1;
const TASK: u64 = 2;
const RESULT: u64 = 3;
const NO_MORE: u64 = 4;

const TASKS: u64 = 100;

fn main() -> Outcome {
    ranks::run("work-queue", |rank| if rank.number == 0 { master(rank) } else { worker(rank) })
}

/// Receives the next message of a pattern, and says its tag, its sender and its number.
fn next(
    endpoint: &Endpoint,
    inbox: &Region,
    pattern: Pattern,
) -> Outcome<(u64, Option<Peer>, u64)> {
    endpoint.post_recv(&Recv::new(pattern, inbox))?;
    let done = endpoint.wait_one(Some(PATIENCE))?;
    if !done.is_ok() {
        return Err(format!("a receive ended: {}", done.status).into());
    }
    Ok((done.tag.unwrap_or(0), done.peer, inbox.get(0)?))
}

fn send(endpoint: &Endpoint, to: Peer, tag: u64, number: u64) -> Outcome {
    endpoint.post_send(to, &Send::inject(&number.to_ne_bytes()).tag(tag).unsignaled())?;
    Ok(())
}

fn master(rank: Rank) -> Outcome {
    let (endpoint, workers) = (&rank.endpoint, rank.peers.len() - 1);
    let inbox = rank.memory(8)?;
    let (mut given, mut sum, mut ended) = (0, 0, 0);
    while ended < workers {
        // What a worker asks or answers, in the order in which it came.
        let (tag, from, number) = next(endpoint, &inbox, Pattern::tagged(0).ignoring(u64::MAX))?;
        match (tag, from) {
            (RESULT, _) => sum += number,
            (ASK, Some(worker)) if given < TASKS => {
                send(endpoint, worker, TASK, given)?;
                given += 1;
            }
            (ASK, Some(worker)) => {
                send(endpoint, worker, NO_MORE, 0)?;
                ended += 1;
            }
            _ => return Err(format!("a message with tag {tag}").into()),
        }
    }
    assert_eq!(sum, (0..TASKS).map(|number| number * number).sum::<u64>());
    println!("{TASKS} tasks are done by {workers} workers, the sum is {sum}");
    rank.leave()
}

fn worker(rank: Rank) -> Outcome {
    let (endpoint, master) = (&rank.endpoint, rank.peers[0]);
    let inbox = rank.memory(8)?;
    let mut done = 0;
    loop {
        send(endpoint, master, ASK, 0)?;
        let any = Pattern::tagged(0).ignoring(u64::MAX).from(master);
        let (tag, _, number) = next(endpoint, &inbox, any)?;
        if tag == NO_MORE {
            break;
        }
        send(endpoint, master, RESULT, number * number)?;
        done += 1;
    }
    println!("rank {} did {done} tasks", rank.number);
    rank.leave()
}
