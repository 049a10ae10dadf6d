//! Half a round trip of tagged messages between two processes, polled: `pingpong server`, then `pingpong client ADDRESS [BYTES]`.

use std::error::Error;
use std::time::Instant;

use fabric::{Access, Domain, Hints};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Address, Completion, Endpoint, Kind, Peer, PeerEvent, RdmAttr, Recv, Send};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let is_server = args.next().as_deref() == Some("server");
    let domain = Domain::open(&Hints::default())?;
    let mut attr = RdmAttr::default();
    attr.max_strangers = 1;
    let endpoint = Endpoint::new(&domain, &attr)?;
    let (mut peer, len, rounds);
    if is_server {
        println!("{}", endpoint.address());
        (len, rounds) = (args.next().map_or(Ok(64), |len| len.parse())?, u64::MAX);
        peer = None;
    } else {
        let address: Address = args.next().ok_or("an address is missing")?.parse()?;
        peer = Some(endpoint.insert(&address)?);
        len = args.next().map_or(Ok(64), |len| len.parse())?;
        rounds = args.next().map_or(Ok(200_000), |len| len.parse())?;
    }
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let (source, inbox) = (domain.alloc(len, rights)?, domain.alloc(len, rights)?);
    let recv = Recv::new(Pattern::tagged(1), &inbox);
    endpoint.post_recv(&recv)?;
    let mut out = [Completion::default(); 8];
    let send = |peer: Peer| -> Result<(), Box<dyn Error>> {
        loop {
            match endpoint.post_send(peer, &Send::new(&source).tag(1).unsignaled()) {
                Ok(_) => return Ok(()),
                Err(fabric_rdm::PostError::Again(_)) => {
                    endpoint.poll(&mut [])?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    };
    let mut times = Vec::new();
    let mut round = 0;
    if let Some(peer) = peer {
        send(peer)?;
    }
    let mut start = Instant::now();
    while round < rounds {
        let count = endpoint.poll(&mut out)?;
        for done in &out[..count] {
            if !done.is_ok() {
                return Ok(());
            }
            if done.kind != Kind::Recv {
                continue;
            }
            peer = peer.or(done.peer);
            endpoint.post_recv(&recv)?;
            if let Some(peer) = peer {
                send(peer)?;
            }
            round += 1;
            if round % 1000 == 0 {
                times.push(start.elapsed().as_nanos() as f64 / 2000.0);
                start = Instant::now();
            }
        }
        if count == 0
            && is_server
            && let Some(PeerEvent::Down(..)) = endpoint.poll_event()?
        {
            return Ok(());
        }
    }
    times.sort_by(f64::total_cmp);
    println!("{len} B: {:.3} us half a round trip (median)", times[times.len() / 2] / 1000.0);
    Ok(())
}
