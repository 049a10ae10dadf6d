//! What a rig has made, for a dump when its case does not come to an end.

use std::fmt::Write;
use std::net::SocketAddr;
use std::panic::Location;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use fabric::{Domain, Endpoint};

use crate::check::{Failed, Outcome};

/// How long a dump may take: where a case hangs, a lock may be held for good.
const DUMP_TIME: Duration = Duration::from_secs(3);

/// Seen by the case's thread and by the runner that watches it.
#[derive(Default)]
pub(crate) struct Watch {
    domains: Mutex<Vec<(String, Domain)>>,
    endpoints: Mutex<Vec<(String, Weak<Endpoint>)>>,
    place: Mutex<Option<(&'static Location<'static>, Instant)>>,
    damage: Mutex<Option<Failed>>,
}

impl Watch {
    pub(crate) fn add_domain(&self, name: &str, domain: &Domain) {
        lock(&self.domains).push((name.to_owned(), domain.clone()));
    }

    pub(crate) fn domains(&self) -> usize {
        lock(&self.domains).len()
    }

    pub(crate) fn add_endpoint(&self, name: &str, endpoint: &Arc<Endpoint>) {
        let mut endpoints = lock(&self.endpoints);
        endpoints.retain(|(_, endpoint)| endpoint.strong_count() > 0);
        endpoints.push((name.to_owned(), Arc::downgrade(endpoint)));
    }

    /// Notes where the case waits.
    pub(crate) fn blocked_at(&self, place: &'static Location<'static>) {
        *lock(&self.place) = Some((place, Instant::now()));
    }

    /// Notes that guard bytes of a buffer changed; the first one counts.
    pub(crate) fn damaged(&self, damage: Failed) {
        lock(&self.damage).get_or_insert(damage);
    }

    /// Fails if guard bytes of a buffer changed.
    pub(crate) fn intact(&self) -> Outcome {
        lock(&self.damage).take().map_or(Ok(()), Err)
    }

    /// Lets the domains go, so that they close in the case's own time.
    pub(crate) fn clear(&self) {
        let domains = std::mem::take(&mut *lock(&self.domains));
        // Outside the lock: closing may hang, and a dump must still be possible.
        drop(domains);
    }

    /// Where everything stands, as text. Never hangs, whatever the case's threads hold.
    pub(crate) fn dump(self: &Arc<Self>) -> String {
        let (send, receive) = mpsc::channel();
        let watch = self.clone();
        thread::spawn(move || {
            // A part at a time, so that what came before a lock that is held is not lost; a receiver that has
            // given up is no concern of this thread's.
            watch.describe(|part| drop(send.send(part)));
        });
        let until = Instant::now() + DUMP_TIME;
        let mut text = String::new();
        loop {
            match receive.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(part) => text += &part,
                Err(mpsc::RecvTimeoutError::Disconnected) => return text,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    return text + "(the rest of the dump waits for a lock that is held)\n";
                }
            }
        }
    }

    fn describe(&self, mut send: impl FnMut(String)) {
        if let Some((place, since)) = *lock(&self.place) {
            let (file, line) = (place.file(), place.line());
            send(format!("last wait: {file}:{line}, begun {:.1?} ago\n", since.elapsed()));
        }
        let endpoints = lock(&self.endpoints).clone();
        for (name, endpoint) in endpoints {
            let Some(endpoint) = endpoint.upgrade() else { continue };
            let addr =
                |addr: Option<SocketAddr>| addr.map_or("none".to_owned(), |addr| addr.to_string());
            let (local, peer) = (addr(endpoint.local_addr()), addr(endpoint.peer_addr()));
            send(indented(&format!("endpoint on {name}, {local} to {peer}"), &endpoint.dump()));
        }
        let domains = lock(&self.domains).clone();
        for (name, domain) in domains {
            send(indented(&format!("domain {name}"), &domain.dump()));
        }
    }
}

fn indented(title: &str, body: &str) -> String {
    let mut text = format!("{title}:\n");
    for line in body.lines() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {line}");
    }
    text
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// What is kept under such locks is whole between statements; a panic of a case does not spoil it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
