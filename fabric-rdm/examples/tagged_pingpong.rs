//! Half a round trip of tagged messages between two processes that poll: `tagged_pingpong server [BYTES]`,
//! then `tagged_pingpong client ADDRESS [BYTES]`.

use std::error::Error;
use std::time::{Duration, Instant};

use fabric::{Access, Domain, Hints, Region};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{
    Address, Completion, Endpoint, Kind, Peer, PeerEvent, PostError, RdmAttr, Recv, Send,
};

const USAGE: &str = "tagged_pingpong server [BYTES], or tagged_pingpong client ADDRESS [BYTES]";
/// It ends after so many rounds, or after so long.
const ROUNDS: u64 = 20_000;
const TIME: Duration = Duration::from_secs(2);
/// Rounds that are timed together.
const BATCH: u64 = 500;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let (address, len) = match args[..] {
        ["server"] => (None, "64"),
        ["server", len] => (None, len),
        ["client", address] => (Some(address.parse::<Address>()?), "64"),
        ["client", address, len] => (Some(address.parse()?), len),
        _ => return Err(USAGE.into()),
    };
    let (len, domain) = (len.parse()?, Domain::open(&Hints::default())?);
    let mut attr = RdmAttr::default();
    attr.max_strangers = 1; // the server does not know the client before
    let endpoint = Endpoint::new(&domain, &attr)?;
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let (source, inbox) = (domain.alloc(len, rights)?, domain.alloc(len, rights)?);
    match address {
        None => {
            println!("{}", endpoint.address());
            play(&endpoint, None, &source, &inbox, u64::MAX).map(drop)
        }
        Some(address) => {
            let server = endpoint.insert(&address)?;
            send(&endpoint, server, &source)?;
            let mut times = play(&endpoint, Some(server), &source, &inbox, ROUNDS)?;
            times.sort_by(f64::total_cmp);
            let median = times[times.len() / 2];
            println!("{len} bytes: half a round trip takes {median:.2} us (median)");
            Ok(())
        }
    }
}

fn send(endpoint: &Endpoint, to: Peer, source: &Region) -> Result<(), PostError> {
    let send = Send::new(source).tag(1).unsignaled();
    loop {
        match endpoint.post_send(to, &send) {
            // The answer was faster than the word that there is a place for one more.
            Err(PostError::Again(_)) => endpoint.progress()?,
            posted => return posted.map(drop),
        }
    }
}

/// Answers each message; gives the microseconds of half a round.
fn play(
    endpoint: &Endpoint,
    mut peer: Option<Peer>,
    source: &Region,
    inbox: &Region,
    rounds: u64,
) -> Result<Vec<f64>, Box<dyn Error>> {
    let recv = Recv::new(Pattern::tagged(1), inbox);
    endpoint.post_recv(&recv)?;
    let (mut times, mut round, mut start) = (Vec::new(), 0, Instant::now());
    let (begin, is_server) = (start, rounds == u64::MAX);
    let mut out = [Completion::default(); 8];
    while round < rounds && (is_server || times.is_empty() || begin.elapsed() < TIME) {
        let count = endpoint.poll(&mut out)?;
        for done in out[..count].iter().filter(|done| done.kind == Kind::Recv && done.is_ok()) {
            peer = peer.or(done.peer);
            // The answer is far: there is time to post its receive.
            match peer.map(|peer| send(endpoint, peer, source)) {
                // The client has ended, and wants no more answers.
                Some(Err(PostError::PeerDown(_))) if is_server => return Ok(times),
                sent => sent.transpose()?,
            };
            endpoint.post_recv(&recv)?;
            round += 1;
            if round % BATCH == 0 {
                times.push(start.elapsed().as_secs_f64() * 1e6 / (2 * BATCH) as f64);
                start = Instant::now();
            }
        }
        if count == 0 && is_server {
            // The client has ended.
            while let Some(event) = endpoint.poll_event()? {
                if let PeerEvent::Down(..) = event {
                    return Ok(times);
                }
            }
        }
    }
    Ok(times)
}
