//! Rank 0 holds parameters that the others read and add to, by one-sided operations: it makes no call for that.

mod ranks;

use fabric::{Access, AtomicOp, Op, RemoteRegion};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Kind, Recv, Send};
use ranks::{Outcome, PATIENCE, Rank};

const PARAMETERS: usize = 64;
const STEPS: u64 = 20;

/// The tag of the message that says where the parameters are, and of the one that says that a worker has ended.
const WHERE: u64 = 1;
const ENDED: u64 = 2;

fn main() -> Outcome {
    ranks::run(
        "parameter-server",
        |rank| if rank.number == 0 { server(rank) } else { worker(rank) },
    )
}

fn server(rank: Rank) -> Outcome {
    let (endpoint, workers) = (&rank.endpoint, &rank.peers[1..]);
    let parameters = endpoint.domain().alloc(8 * PARAMETERS, Access::ALL)?;
    let descriptor = parameters.remote().to_bytes();
    for worker in workers {
        endpoint.post_send(*worker, &Send::inject(&descriptor).tag(WHERE).unsignaled())?;
        let ended = Recv::new(Pattern::tagged(ENDED).from(*worker), parameters.slice(..0));
        endpoint.post_recv(&ended.unsignaled())?;
    }
    // The others do the work, and this rank sleeps.
    endpoint.counter(Kind::Recv).wait_for(workers.len() as u64, 0, Some(PATIENCE))?;
    for at in 0..PARAMETERS {
        assert_eq!(parameters.get::<u64>(8 * at)?, STEPS * workers.len() as u64);
    }
    println!(
        "{PARAMETERS} parameters were added to {STEPS} times by each of {} workers",
        workers.len()
    );
    rank.leave()
}

fn worker(rank: Rank) -> Outcome {
    let (endpoint, server) = (&rank.endpoint, rank.peers[0]);
    let inbox = endpoint.domain().alloc(RemoteRegion::BYTES, Access::LOCAL_WRITE)?;
    endpoint.post_recv(&Recv::new(Pattern::tagged(WHERE).from(server), &inbox))?;
    endpoint.wait_one(Some(PATIENCE))?;
    let parameters = RemoteRegion::from_bytes(&inbox.to_vec(..)?)?;
    let copy = rank.memory(8 * PARAMETERS)?;
    for step in 1..=STEPS {
        for at in 0..PARAMETERS as u64 {
            let add = Op::atomic(AtomicOp::Add, 1u64, parameters.at(8 * at));
            endpoint.post(server, &add.unsignaled())?;
        }
        endpoint.counter(Kind::Atomic).wait_for(step * PARAMETERS as u64, 0, Some(PATIENCE))?;
        endpoint.post(server, &Op::read(copy.slice(..), parameters.at(0)))?;
        endpoint.wait_one(Some(PATIENCE))?;
        // The own additions are there, those of others perhaps.
        assert!((0..PARAMETERS).all(|at| copy.get::<u64>(8 * at).is_ok_and(|value| value >= step)));
    }
    endpoint.post_send(server, &Send::inject(&[]).tag(ENDED))?;
    endpoint.wait_one(Some(PATIENCE))?;
    rank.leave()
}
