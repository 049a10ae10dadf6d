//! This library, at a level of security.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fabric::{
    Access, Catalog, Choice, CompletionQueue, Domain, Endpoint, Hints, Identity, Listener, OpKind,
    Region, RemoteRegion, Secret, Security,
};

use crate::authority::Authority;
use crate::{LONG, Outcome, Way, each};

const SOON: Option<Duration> = Some(Duration::from_secs(10));
/// Transfers under way.
const WINDOW: usize = 4;
/// Receives that are posted ahead.
const AHEAD: usize = 8;

/// What the thread that answers is to do.
#[derive(Default)]
struct Signals {
    /// Poll, instead of sleeping.
    polls: AtomicBool,
    is_over: AtomicBool,
}

/// Two domains, connected, and a thread that answers messages.
pub(crate) struct Level {
    name: &'static str,
    domain: Domain,
    queue: CompletionQueue,
    endpoint: Endpoint,
    memory: Region,
    target: RemoteRegion,
    server: SocketAddr,
    signals: Arc<Signals>,
    serving: Option<JoinHandle<()>>,
}

/// The highest level that a provider offers.
pub(crate) fn offered(provider: &str) -> Outcome<Security> {
    let domain = Catalog::builtin().open_with(&Choice::parse(provider)?, &Hints::default())?;
    Ok(domain.info().security)
}

impl Level {
    /// The ends prove themselves by certificates, or by a secret, where they do.
    pub(crate) fn new(provider: &str, security: Security, by_identity: bool) -> Outcome<Self> {
        let name = match (security, by_identity) {
            (Security::Open, _) => "fabric open",
            (Security::Authenticated, _) => "fabric authenticated",
            (_, false) => "fabric encrypted",
            (_, true) => "fabric encrypted, identities",
        };
        let has_secret = security > Security::Open && !by_identity;
        let secret = has_secret.then(|| Secret::new(&[7; 32])).transpose()?;
        let identity = by_identity.then(identity).transpose()?;
        let hints = Hints { security, secret, identity, ..Hints::default() };
        let open = || Catalog::builtin().open_with(&Choice::parse(provider)?, &hints);
        let (domain, there) = (open()?, open()?);
        let addr = *there.info().addresses.first().ok_or("the device has no address")?;
        let queue = domain.completion_queue(1024)?;
        let memory = domain.alloc(LONG, Access::ALL)?;
        let listener = there.listen(SocketAddr::new(addr, 0))?;
        let server = listener.local_addr();
        let region = there.alloc(LONG, Access::ALL)?;
        let target = region.remote();
        let signals = Arc::<Signals>::default();
        let to_server = signals.clone();
        let serving = thread::spawn(move || {
            if let Err(error) = serve(&there, &listener, &region, &to_server) {
                eprintln!("encryption: {name}: {error}");
            }
        });
        let endpoint = connect(&domain, &queue, server)?;
        for _ in 0..AHEAD {
            endpoint.recv(memory.slice(..64), 0)?;
        }
        let serving = Some(serving);
        Ok(Level { name, domain, queue, endpoint, memory, target, server, signals, serving })
    }

    fn next(&self, polls: bool) -> Outcome<fabric::Completion> {
        let done = loop {
            if !polls {
                break self.queue.wait_one(SOON)?;
            }
            if let Some(done) = self.queue.poll_one()? {
                break done;
            }
        };
        if done.is_ok() { Ok(done) } else { Err(format!("{done:?}").into()) }
    }
}

/// Of a member, which trusts the others of its authority.
fn identity() -> Outcome<Identity> {
    let authority = Authority::new()?;
    let member = authority.certify("member")?;
    Ok(Identity::from_pem(member.as_bytes(), authority.certificate().as_bytes())?)
}

fn connect(domain: &Domain, queue: &CompletionQueue, to: SocketAddr) -> Outcome<Endpoint> {
    let endpoint = domain.endpoint().build(queue)?;
    endpoint.connect(to, &[])?;
    endpoint.wait_connected(SOON)?;
    Ok(endpoint)
}

/// Accepts all that come; those after the first leave at once. Sends back what the first sends.
fn serve(domain: &Domain, listener: &Listener, region: &Region, signals: &Signals) -> Outcome {
    let queue = domain.completion_queue(1024)?;
    let first = domain.endpoint().build(&queue)?;
    listener.accept(SOON)?.accept(&first, &[])?;
    first.wait_connected(SOON)?;
    for _ in 0..AHEAD {
        first.recv(region.slice(..64), 0)?;
    }
    let other = domain.completion_queue(1024)?;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !signals.is_over.load(Ordering::Relaxed) {
                let Ok(mut request) = listener.accept(Some(Duration::from_millis(50))) else {
                    continue;
                };
                let Ok(endpoint) = domain.endpoint().build(&other) else { return };
                let _ = request.accept(&endpoint, &[]);
                let _ = endpoint.wait_disconnected(SOON);
            }
        });
        while !signals.is_over.load(Ordering::Relaxed) {
            let done = if signals.polls.load(Ordering::Relaxed) {
                queue.poll_one()?
            } else {
                queue.wait_one(Some(Duration::from_millis(10))).ok()
            };
            let Some(done) = done else { continue };
            if done.kind == OpKind::Recv && done.is_ok() {
                first.recv(region.slice(..64), 0)?;
                first.send(region.slice(..64), 1)?;
            }
        }
        Ok(())
    })
}

impl Way for Level {
    fn name(&self) -> &'static str {
        self.name
    }

    fn set_up(&mut self, count: usize) -> Outcome<Duration> {
        let queue = self.domain.completion_queue(1024)?;
        let begun = Instant::now();
        for _ in 0..count {
            drop(connect(&self.domain, &queue, self.server)?);
        }
        Ok(each(begun, count))
    }

    fn messages(&mut self, count: usize) -> Outcome<Duration> {
        self.signals.polls.store(true, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(20));
        let begun = Instant::now();
        for _ in 0..count {
            self.endpoint.send(self.memory.slice(..64), 1)?;
            while self.next(true)?.kind != OpKind::Recv {}
            self.endpoint.recv(self.memory.slice(..64), 0)?;
        }
        let each = each(begun, count);
        self.signals.polls.store(false, Ordering::Relaxed);
        // Of the sends, whose completions may come after the answers.
        while self.queue.poll_one()?.is_some() {}
        Ok(each / 2)
    }

    fn transfers(&mut self, count: usize) -> Outcome<Duration> {
        let begun = Instant::now();
        let mut under_way = 0;
        for i in 0..count {
            self.endpoint.write(self.memory.slice(..), self.target.at(0), i as u64)?;
            under_way += 1;
            while under_way == WINDOW || i + 1 == count && under_way > 0 {
                under_way -= usize::from(self.next(false)?.kind == OpKind::Write);
            }
        }
        Ok(each(begun, count))
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        self.signals.is_over.store(true, Ordering::Relaxed);
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}
