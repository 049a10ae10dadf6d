//! One end of a measurement: a domain with its endpoints, connected to those of the other end, and their memory.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use fabric::{
    Access, Capabilities, CompletionQueue, Domain, Endpoint, Error, ErrorClass, Hints, Listener,
    Recv, Region, RemoteRegion,
};

use super::plan::{Mode, Plan, SPARE};
use super::problem::Outcome;
use super::process;

/// How long anything may take that goes on before and after the measurement; guests and loaded machines are slow.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Idle endpoints that share a completion queue.
const SHARERS: usize = 256;

pub(crate) struct Side {
    pub(crate) domain: Domain,
    pub(crate) region: Region,
    /// Of each thread.
    pub(crate) lanes: Vec<Lane>,
    /// What each idle connection takes of this process's memory, in bytes.
    pub(crate) idle_bytes: f64,
    /// What streams of `--inject` send.
    pub(crate) injected: Vec<u8>,
    idle: Vec<Endpoint>,
}

/// What one thread works with.
pub(crate) struct Lane {
    pub(crate) queue: CompletionQueue,
    pub(crate) ends: Vec<End>,
}

pub(crate) struct End {
    pub(crate) endpoint: Endpoint,
    /// Where its bytes begin, in the regions of both ends.
    pub(crate) base: usize,
}

/// The domain on the device that has this address.
pub(crate) fn open(plan: Option<&Plan>, address: Option<IpAddr>) -> Outcome<Domain> {
    let mut hints =
        Hints { capabilities: Capabilities::SEND | Capabilities::RMA, address, ..Hints::default() };
    if let Some(plan) = plan {
        if plan.op.is_atomic() {
            hints.capabilities |= Capabilities::ATOMIC;
        }
        hints.message = plan.size as u64;
        hints.inject = if plan.inject { plan.size as u64 } else { 0 };
        hints.send_depth = send_depth(plan) as u64;
        hints.recv_depth = recv_depth(plan) as u64;
        hints.endpoints = (plan.endpoints + plan.idle) as u64;
    }
    Ok(Domain::open(&hints)?)
}

fn send_depth(plan: &Plan) -> usize {
    // With latency: a few, so that a completion that comes late delays nothing.
    if plan.mode == Mode::Latency { 16 } else { plan.window() + 1 }
}

fn recv_depth(plan: &Plan) -> usize {
    receives(plan) + SPARE
}

/// Receives that are posted ahead for the data.
pub(crate) fn receives(plan: &Plan) -> usize {
    match plan.mode {
        Mode::Latency if plan.op.takes_receives() => 16,
        _ if plan.op.takes_receives() => plan.window(),
        _ => 0,
    }
}

impl Side {
    pub(crate) fn new(plan: &Plan, address: IpAddr) -> Outcome<Self> {
        let domain = open(Some(plan), Some(address))?;
        let region = domain.alloc(plan.memory() * plan.endpoints, Access::ALL)?;
        region.fill(0)?;
        let room = send_depth(plan) + recv_depth(plan);
        let mut lanes = Vec::new();
        for thread in 0..plan.threads {
            let queue = domain.completion_queue(room * plan.of_thread(thread).count())?;
            let end = |number: usize| -> Outcome<End> {
                let builder = domain.endpoint().send_depth(send_depth(plan));
                let builder =
                    builder.recv_depth(recv_depth(plan)).send_segments(1).recv_segments(1);
                let builder = if plan.inject { builder.inject(plan.size.max(1)) } else { builder };
                let endpoint = builder.build(&queue)?;
                Ok(End { endpoint, base: number * plan.memory() })
            };
            let ends = plan.of_thread(thread).map(end).collect::<Outcome<Vec<_>>>()?;
            lanes.push(Lane { queue, ends });
        }
        let injected = vec![0; if plan.inject { plan.size } else { 0 }];
        let side = Side { domain, region, lanes, idle_bytes: 0.0, injected, idle: Vec::new() };
        for lane in &side.lanes {
            for (place, end) in lane.ends.iter().enumerate() {
                for slot in 0..recv_depth(plan) {
                    let slot = slot % plan.slots();
                    end.endpoint.post_recvs(&[side.receive(plan, end, place, slot)])?;
                }
            }
        }
        Ok(side)
    }

    /// The receive of an endpoint that has this place in its lane; the context has it and the slot.
    pub(crate) fn receive(&self, plan: &Plan, end: &End, place: usize, slot: usize) -> Recv<'_> {
        let at = end.base + plan.inbound() + slot * plan.stride();
        let slice = self.region.slice(at..at + plan.size);
        Recv::new(slice, (place as u64) << 32 | slot as u64)
    }

    /// The endpoint of this number.
    fn end(&self, number: usize) -> &Endpoint {
        &self.lanes[number % self.lanes.len()].ends[number / self.lanes.len()].endpoint
    }

    /// Makes the idle endpoints, connecting each by `connect`, which gets its number too.
    fn add_idle(&mut self, plan: &Plan, connect: impl Fn(&Endpoint, usize) -> Outcome) -> Outcome {
        if plan.idle == 0 {
            return Ok(());
        }
        let before = process::resident_bytes();
        while self.idle.len() < plan.idle {
            let count = SHARERS.min(plan.idle - self.idle.len());
            // With the default depths: what an application pays that sets nothing.
            let queue = self.domain.completion_queue(count * self.domain.endpoint().room())?;
            for _ in 0..count {
                let endpoint = self.domain.endpoint().build(&queue)?;
                connect(&endpoint, plan.endpoints + self.idle.len())?;
                self.idle.push(endpoint);
            }
        }
        let grown = process::resident_bytes().saturating_sub(before);
        self.idle_bytes = grown as f64 / plan.idle as f64;
        Ok(())
    }

    /// Connects all endpoints to those of the other end, in the order of their numbers.
    pub(crate) fn connect(&mut self, plan: &Plan, to: SocketAddr, secret: u64) -> Outcome {
        let connect = |endpoint: &Endpoint, number: usize| -> Outcome {
            endpoint.connect(to, &greeting(secret, number))?;
            endpoint
                .wait_connected(Some(PATIENCE))
                .map_err(|error| format!("connection {number} to {to}: {error}"))?;
            Ok(())
        };
        for number in 0..plan.endpoints {
            connect(self.end(number), number)?;
        }
        self.add_idle(plan, connect)
    }

    /// Accepts for all endpoints.
    pub(crate) fn accept(&mut self, plan: &Plan, listener: &Listener, secret: u64) -> Outcome {
        let accept = |endpoint: &Endpoint, number: usize| -> Outcome {
            let deadline = Instant::now() + PATIENCE;
            loop {
                let patience = deadline.saturating_duration_since(Instant::now());
                let mut request = listener.accept(Some(patience)).map_err(|error| {
                    format!("waiting for connection {number} of the client: {error}")
                })?;
                if request.private_data() != greeting(secret, number) {
                    // A stranger, or one of an earlier client: it must not take the place.
                    request.reject(b"another fabric perf is being served")?;
                    continue;
                }
                request.accept(endpoint, &[])?;
                match endpoint.wait_connected(Some(PATIENCE)) {
                    Ok(_) => return Ok(()),
                    Err(error) => return Err(format!("connection {number}: {error}").into()),
                }
            }
        };
        for number in 0..plan.endpoints {
            accept(self.end(number), number)?;
        }
        self.add_idle(plan, accept)
    }

    /// Ends the connections in order: what is still in the send queues gets through first.
    pub(crate) fn shutdown(&self) -> Outcome {
        for end in self.lanes.iter().flat_map(|lane| &lane.ends) {
            match end.endpoint.shutdown(PATIENCE) {
                // The other end was faster.
                Err(error) if error.class() == ErrorClass::PeerLost => {}
                Err(Error::NotConnected) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

/// What a connection begins with.
fn greeting(secret: u64, number: usize) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&secret.to_le_bytes());
    bytes[8..].copy_from_slice(&(number as u64).to_le_bytes());
    bytes
}

/// The other end's region, which has the same layout as ours.
pub(crate) fn remote(plan: &Plan, bytes: &[u8]) -> Outcome<RemoteRegion> {
    let region = RemoteRegion::from_bytes(bytes)?;
    let need = (plan.memory() * plan.endpoints) as u64;
    if region.len() < need {
        let text = format!("the other end lends {} bytes, {need} are needed", region.len());
        return Err(text.into());
    }
    Ok(region)
}
