//! Handles in every order.

use fabric::{CompletionQueue, Domain, Endpoint, EventQueue, Listener, Region};

use crate::prelude::*;

/// Bytes of the region.
const LEN: usize = 64;
/// Operations in flight: a send, a write behind it, and a receive.
const PENDING: usize = 3;

/// All that one side has of a connection, with work in flight. Whatever is gone, the rest is used.
struct Handles {
    domain: Option<Domain>,
    queue: Option<CompletionQueue>,
    endpoint: Option<Endpoint>,
    region: Option<Region>,
    listener: Option<Listener>,
    events: Option<EventQueue>,
    /// Completions that the queue gave.
    taken: usize,
}

impl Handles {
    const COUNT: usize = 6;

    fn new(rig: &Rig, peer: &End, target: &Guarded) -> Result<Self, Failed> {
        let patience = Some(rig.connect_timeout());
        let domain = rig.target().open()?;
        let queue = domain.completion_queue(16)?;
        let endpoint = rig.builder(&domain).send_depth(8).recv_depth(8).build(&queue)?;
        let region = domain.alloc(LEN, Access::ALL)?;
        let listener = rig.listen(&domain)?;
        let theirs = rig.listen(peer.domain())?;
        endpoint.connect(theirs.local_addr(), &[])?;
        theirs.accept(patience)?.accept(peer, &[])?;
        endpoint.wait_connected(patience)?;
        peer.expect_connected()?;
        endpoint.recv(region.slice(..8), 0)?;
        // There is no receive for it.
        endpoint.send(region.slice(8..16), 1)?;
        endpoint.write(&region, target.at(0), 2)?;
        let events = Some(domain.events());
        Ok(Handles {
            domain: Some(domain),
            queue: Some(queue),
            endpoint: Some(endpoint),
            region: Some(region),
            listener: Some(listener),
            events,
            taken: 0,
        })
    }

    fn drop_one(&mut self, which: usize) {
        match which {
            0 => self.domain = None,
            1 => self.queue = None,
            2 => self.endpoint = None,
            3 => self.region = None,
            4 => self.listener = None,
            _ => self.events = None,
        }
    }

    /// Uses what is left.
    fn check(&mut self) -> Outcome {
        if let Some(domain) = &self.domain {
            domain.alloc(8, Access::LOCAL_WRITE)?.write_at(0, &[1; 8])?;
        }
        if let Some(endpoint) = &self.endpoint {
            check_eq!(endpoint.state(), EndpointState::Connected, "state before it is dropped");
        }
        if let Some(region) = &self.region {
            region.write_at(0, &[7; LEN])?;
            check_bytes!(region.to_vec(..)?, [7; LEN], "the region's bytes");
            match (&self.endpoint, region.close()) {
                (Some(_), Err(Error::Busy)) | (None, Ok(())) => {}
                (_, closed) => fail!("Busy as long as the endpoint is there", "{closed:?}"),
            }
        }
        if let Some(listener) = &self.listener {
            check!(listener.poll().is_none(), "no request");
        }
        if let Some(events) = &self.events {
            check_matches!(events.poll(), None, "an event of what this side did itself");
        }
        let Some(queue) = &self.queue else { return Ok(()) };
        while let Some(done) = queue.poll_one()? {
            check_eq!(done.status, Status::Canceled, "status of {done:?}");
            self.taken += 1;
        }
        let expected = if self.endpoint.is_some() { 0 } else { PENDING };
        check_eq!(self.taken, expected, "completions when the endpoint is there or gone");
        Ok(())
    }
}

pub(super) fn drop_orders(rig: &Rig) -> Outcome {
    let mut rng = rig.rng();
    let mut all = orders(Handles::COUNT);
    check_eq!(all.len(), 720, "orders of six handles");
    if rig.count(0, 1) == 0 {
        // A share of them, another with every seed.
        rng.shuffle(&mut all);
        all.truncate(24);
    }
    for order in all {
        let peer = rig.end(rig.domain_b())?;
        let target = peer.buffer(LEN)?;
        let mut side = Handles::new(rig, &peer, &target)?;
        side.check()?;
        for which in &order {
            side.drop_one(*which);
            side.check()?;
        }
        peer.expect_closed_by_peer()?;
        peer.expect_none_for(Duration::from_millis(1))?;
        target.check_filled(.., 0)?;
    }
    Ok(())
}

/// Every order of the numbers below `count`.
fn orders(count: usize) -> Vec<Vec<usize>> {
    let Some(last) = count.checked_sub(1) else { return vec![Vec::new()] };
    let longer = |order: Vec<usize>| {
        (0..count).map(move |at| {
            let mut order = order.clone();
            order.insert(at, last);
            order
        })
    };
    orders(last).into_iter().flat_map(longer).collect()
}
