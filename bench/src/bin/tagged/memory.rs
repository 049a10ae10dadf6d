//! Memory of peers, as it is resident.

use std::time::Instant;

use fabric::{Domain, Hints};
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Address, Completion, Endpoint, EndpointIdentity, HostIdentity, Recv, Send};

use crate::end::{End, SOON, attr};
use crate::{Args, Outcome};

/// Bytes of this process that are in memory.
fn resident() -> Outcome<f64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: f64 = text.split(' ').nth(1).ok_or("statm(5) has no resident size")?.parse()?;
    Ok(pages * rustix::param::page_size() as f64)
}

/// Bytes of a peer that is known.
pub(crate) fn idle_peer(args: &Args) -> Outcome<f64> {
    let end = End::new(args)?;
    let rails = [([192, 0, 2, 1], 9).into()];
    let insert = |count: u32| -> Outcome {
        for _ in 0..count {
            let host = HostIdentity::from_bytes([7; 16]);
            end.endpoint.insert(&Address::new(EndpointIdentity::random()?, host, &rails)?)?;
        }
        Ok(())
    };
    // What the first ones need for all.
    insert(100)?;
    let before = resident()?;
    insert(args.peers)?;
    Ok((resident()? - before) / f64::from(args.peers))
}

/// Bytes of a peer that is connected.
pub(crate) fn open_peer(args: &Args) -> Outcome<f64> {
    const FEW: u32 = 16;
    let mut attr = attr(args);
    attr.max_open = args.peers + FEW;
    attr.max_strangers = args.peers + FEW;
    let domain = Domain::open(&Hints::default())?;
    let endpoint = Endpoint::new(&domain, &attr)?;
    let meet = |peers: u32, messages: u32| -> Outcome<crate::Other> {
        let args = Args { other: None, peers, depth: messages, ..*args };
        let mut other = args.spawn(endpoint.address())?;
        let inbox = domain.alloc(64, fabric::Access::LOCAL_WRITE)?;
        for _ in 0..peers * messages {
            endpoint.post_recv(&Recv::new(Pattern::tagged(1), &inbox))?;
        }
        let (mut left, until) = (peers * messages, Instant::now() + SOON);
        let mut out = [Completion::default(); 64];
        while left > 0 {
            if Instant::now() > until {
                return Err(format!("{left} messages have not come").into());
            }
            left -= endpoint.poll(&mut out)? as u32;
        }
        other.wait_ready()?;
        Ok(other)
    };
    // All slots, and what the first peers need for all, have been used.
    let _few = meet(FEW, 64)?;
    let before = resident()?;
    let _many = meet(args.peers, 1)?;
    Ok((resident()? - before) / f64::from(args.peers))
}

/// The other process: so many endpoints; each sends `depth` messages and stays.
pub(crate) fn connect(args: &Args, address: &Address) -> Outcome {
    let domain = Domain::open(&Hints::default())?;
    let mut attr = fabric_rdm::RdmAttr::default();
    (attr.slots, attr.connection_depth) = (16, 16);
    let mut endpoints = Vec::new();
    for _ in 0..args.peers {
        let endpoint = Endpoint::new(&domain, &attr)?;
        let peer = endpoint.insert(address)?;
        for context in 0..args.depth {
            endpoint.post_send(peer, &Send::inject(&[7; 64]).tag(1).context(context.into()))?;
        }
        endpoints.push(endpoint);
    }
    for endpoint in &endpoints {
        for _ in 0..args.depth {
            let done = endpoint.wait_one(Some(SOON))?;
            if !done.is_ok() {
                return Err(format!("{done:?}").into());
            }
        }
    }
    println!("ready");
    // Until it is killed.
    loop {
        std::thread::park();
    }
}
