//! The end that serves: waits for a client, does what its plans say, one after the other, and waits for the next.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fabric_util::fair_table::FairTable;
use fabric_util::introductions::Introductions;
use fabric_util::log_limiter::{PeerEvent, PeerLog};
use fabric_util::mutual_proof::keys_from_env;
use fabric_util::proof::{self, HandshakeKeys, Prover};

use super::control::{Control, Done, Ready, Reply, Request};
use super::plan::{Mode, Plan};
use super::problem::{Outcome, Problem, describe};
use super::side::{Lane, PATIENCE, Side, remote};
use super::threads::{first_failure, join};
use super::waiter::Waiter;
use super::worker::Worker;
use super::{process, raw};

/// A client may be that slow between two plans.
const BETWEEN: Duration = Duration::from_secs(60);
/// Connections that have not said yet who they are.
const MAX_INTRODUCTIONS: usize = 16;
/// Clients that wait for their turn.
const MAX_CLIENTS: usize = 16;

/// Serves until it is killed, or one client.
pub(crate) fn serve(address: SocketAddr, once: bool) -> Outcome {
    let listener = TcpListener::bind(address)
        .map_err(|error| format!("cannot listen on {address}: {error}"))?;
    let keys = keys_from_env()?;
    println!("fabric perf listens on {}", listener.local_addr()?);
    if once {
        return client(wait_for_one(&listener, keys.as_ref())?);
    }
    let door = Arc::new(Door::new(keys));
    let admitting = door.clone();
    std::thread::Builder::new().name("door".to_owned()).spawn(move || admitting.run(&listener))?;
    loop {
        let (peer, control) = door.next();
        eprintln!("{peer} came");
        match client(control) {
            Ok(()) => eprintln!("it left"),
            Err(error) => eprintln!("error: {error}"),
        }
    }
}

/// Where clients introduce themselves, and wait for their turn. A stranger that says nothing keeps none waiting.
struct Door {
    /// Of the secret that clients have to prove.
    keys: Option<HandshakeKeys>,
    introductions: Introductions,
    clients: Mutex<FairTable<(SocketAddr, Control)>>,
    came: Condvar,
    numbered: AtomicU64,
    log: PeerLog,
}

impl Door {
    fn new(keys: Option<HandshakeKeys>) -> Self {
        let (introductions, log) = (Introductions::new(MAX_INTRODUCTIONS), PeerLog::default());
        let (clients, came, numbered) = Default::default();
        Door { keys, introductions, clients, came, numbered, log }
    }

    fn run(self: Arc<Self>, listener: &TcpListener) {
        loop {
            let (stream, peer) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    self.warn(None, &error.into());
                    // Where descriptors have run out the next one fails as well, for a while.
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            let introduction = match self.introductions.begin(&stream, peer) {
                Ok(introduction) => introduction,
                Err(error) => {
                    self.warn(Some(peer), &error.into());
                    continue;
                }
            };
            let door = self.clone();
            let introduce = move || {
                let _introduction = introduction;
                match Control::over(stream, door.keys.as_ref(), Prover::Acceptor) {
                    Ok(control) => door.add(peer, control),
                    Err(error) => door.warn(Some(peer), &error),
                }
            };
            if let Err(error) = std::thread::Builder::new().spawn(introduce) {
                self.warn(Some(peer), &error.into());
            }
        }
    }

    fn warn(&self, peer: Option<SocketAddr>, error: &Problem) {
        if let Some(suppressed) = self.log.check(PeerEvent::Admission, peer) {
            let peer = peer.map(|peer| format!("{peer}: ")).unwrap_or_default();
            eprintln!("error: {peer}{error}{suppressed}");
        }
    }

    fn add(&self, peer: SocketAddr, control: Control) {
        let number = self.numbered.fetch_add(1, Ordering::Relaxed);
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = clients.insert_up_to(MAX_CLIENTS, number, peer.ip(), (peer, control));
        drop(clients);
        if let Some((_, mut control)) = refused.unwrap_or_else(Some) {
            let busy = format!("{MAX_CLIENTS} clients wait already");
            let _ = control.say(&Reply::Failed(busy));
        }
        self.came.notify_one();
    }

    /// The next client, when there is one.
    fn next(&self) -> (SocketAddr, Control) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(client) = clients.pop_oldest() {
                return client;
            }
            clients = self.came.wait(clients).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A server that was started for one client is no process that stays for ever if none comes.
fn wait_for_one(listener: &TcpListener, keys: Option<&HandshakeKeys>) -> Outcome<Control> {
    listener.set_nonblocking(true)?;
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Control::over(stream, keys, Prover::Acceptor);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if start.elapsed() > PATIENCE {
                    return Err("no client came".into());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn client(mut control: Control) -> Outcome {
    // The client leaves first: what this end closed early would look to it like a failure.
    let mut last = None;
    while let Some(request) = control.hear_or_end(Some(BETWEEN))? {
        let Request::Run(plan, region) = request;
        drop(last.take());
        let outcome = plan.check().and_then(|()| match plan.raw {
            true => raw::serve(&plan, &mut control).map(|done| (done, None)),
            false => run(&plan, &region, &mut control).map(|(done, side)| (done, Some(side))),
        });
        match outcome {
            Ok((done, side)) => {
                control.say(&Reply::Done(done))?;
                last = side;
            }
            Err(error) => {
                // It may be gone, which may be the very error.
                let _ = control.say(&Reply::Failed(describe(&error)));
                return Err(error);
            }
        }
    }
    Ok(())
}

fn run(plan: &Plan, region: &[u8], control: &mut Control) -> Outcome<(Done, Side)> {
    let address = control.local_addr()?.ip().to_canonical();
    let mut side = Side::new(plan, address)?;
    let listener = side.domain.listen(SocketAddr::new(address, 0))?;
    let [a, b, c, d, e, f, g, h, ..] = proof::random()?;
    let secret = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    control.say(&Reply::Ready(Ready {
        address: listener.local_addr(),
        region: side.region.remote().to_bytes().to_vec(),
        secret,
        provider: side.domain.provider().to_owned(),
    }))?;
    side.accept(plan, &listener, secret)?;
    drop(listener);
    control.say(&Reply::Connected { idle_bytes: side.idle_bytes })?;
    if plan.mode == Mode::Idle {
        return Ok((process::idle(plan), side));
    }
    let remote = remote(plan, region)?;
    let failed = AtomicBool::new(false);
    let work = |lane: &Lane| {
        let waiter = Waiter::new(&lane.queue, plan.target, None, &failed);
        let mut worker = Worker::new((plan, &side, lane), remote, waiter, true);
        let outcome = match plan.mode {
            Mode::Latency if plan.op.is_one_way() => worker.echo(),
            _ => worker.sink(),
        };
        outcome.inspect_err(|_| failed.store(true, Ordering::Relaxed))
    };
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = side
            .lanes
            .iter()
            .map(|lane| scope.spawn(|| work(lane).map_err(|problem| describe(&problem))))
            .collect();
        threads.into_iter().map(join).collect()
    });
    first_failure(outcomes)?;
    Ok((Done::default(), side))
}
