//! The connections for leases of a node.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use fabric::{
    Completion, CompletionQueue, ConnectRequest, Domain, Endpoint, EndpointBuilder, EndpointId,
    OpKind,
};
use fabric_util::byte_quota::ByteQuota;
use fabric_util::log_line;
use fabric_util::sync::Mutex;

use super::control::{Control, DEPTH, LeaseContext, ROOM, UserConnection};
use super::message::MAX_LEN;
use super::receives::Receives;
use crate::error::Result;
use crate::handshake::{Handshake, reject};
use crate::oneshot::Oneshot;
use crate::options::{Options, build};
use crate::peer_log::PeerLog;
use crate::pool::Pool;
use crate::reactor::ReactorHandle;
use crate::router::Router;
use crate::wakers::Wakers;

/// Messages are taken for so long, however many come, before expired leases are ended again.
const MAX_SERVE_TIME: Duration = Duration::from_millis(1);
/// Connections for leases that a node has room for, as far as the device has.
const MAX_CONTROLS: usize = 1024;

/// Matches a connection for leases with the application's: the token that both give, and the address that both come from.
type ControlKey = (u64, IpAddr);

/// A connection for leases that a peer will make, or not.
pub(crate) struct ExpectedControl {
    leases: Arc<Leases>,
    key: ControlKey,
    pub(super) oneshot: Arc<Oneshot<ConnectRequest>>,
}

impl Drop for ExpectedControl {
    fn drop(&mut self) {
        let oneshot = self.leases.expected.lock().remove(&self.key);
        drop(oneshot); // not under the lock
    }
}

/// The connections for leases of a node, and receives of some that are gone.
#[derive(Default)]
struct Controls {
    by_id: HashMap<EndpointId, KnownControl>,
    /// By the application's connection.
    of_user: HashMap<EndpointId, EndpointId>,
}

struct KnownControl {
    control: Weak<Control>,
    receives: Arc<Receives>,
    user: EndpointId,
}

impl Controls {
    fn add(&mut self, control: &Arc<Control>) {
        let (id, user) = (control.endpoint.id(), control.user_id);
        let receives = control.receives.clone();
        self.of_user.insert(user, id);
        self.by_id.insert(id, KnownControl { control: Arc::downgrade(control), receives, user });
    }

    fn get(&self, id: EndpointId) -> Option<(Option<Arc<Control>>, Arc<Receives>)> {
        let known = self.by_id.get(&id)?;
        Some((known.control.upgrade(), known.receives.clone()))
    }

    /// That of an endpoint, or beside it.
    fn control(&self, id: EndpointId) -> Option<Arc<Control>> {
        let id = self.of_user.get(&id).unwrap_or(&id);
        self.by_id.get(id)?.control.upgrade()
    }

    /// Forgets a connection that is gone, if its receives are over.
    fn forget(&mut self, id: EndpointId) {
        let is_gone =
            |known: &KnownControl| known.control.strong_count() == 0 && known.receives.are_over();
        if self.by_id.get(&id).is_some_and(is_gone)
            && let Some(known) = self.by_id.remove(&id)
        {
            self.of_user.remove(&known.user);
        }
    }

    /// Gives up the receives that have not ended, with their buffers; says how many.
    fn leak(&self) -> usize {
        self.by_id.values().map(|known| known.receives.leak()).sum()
    }
}

/// The leases of a node.
pub(crate) struct Leases {
    context: Arc<LeaseContext>,
    options: Options,
    queue: CompletionQueue,
    controls: Mutex<Controls>,
    /// Connections that peers are about to make.
    expected: Mutex<HashMap<ControlKey, Arc<Oneshot<ConnectRequest>>>>,
}

impl Leases {
    pub(crate) fn new(
        domain: &Domain,
        options: &Options,
        pool: &Pool,
        router: &Arc<Router>,
        reactor: &Arc<ReactorHandle>,
        peer_log: &Arc<PeerLog>,
    ) -> Result<Arc<Self>> {
        let endpoints = domain.info().limits.cq_capacity / ROOM;
        let queue = match options.leases {
            true => domain.completion_queue(ROOM * endpoints.min(MAX_CONTROLS))?,
            false => domain.completion_queue(1)?,
        };
        let policy = options.policy.clone();
        let total = policy.max_total_bytes.unwrap_or(options.pool.bytes as u64 / 2);
        let context = LeaseContext {
            domain: domain.clone(),
            pool: pool.clone(),
            quota: ByteQuota::new(total, policy.max_bytes_per_address),
            policy,
            connection_keys: options.connection_keys,
            decision: options.lease_decision.clone(),
            router: router.clone(),
            reactor: reactor.clone(),
            peer_log: peer_log.clone(),
        };
        Ok(Arc::new(Leases {
            context: Arc::new(context),
            options: options.clone(),
            queue,
            controls: Mutex::default(),
            expected: Mutex::default(),
        }))
    }

    /// The completions of all connections for leases.
    pub(crate) fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    /// How many connections can carry leases.
    pub(crate) fn max_connections(&self) -> usize {
        self.queue.capacity() / ROOM
    }

    /// An endpoint for leases.
    fn endpoint(&self) -> Result<Endpoint> {
        let builder = control_endpoint(self.options.any_endpoint(&self.context.domain));
        build(builder, &self.queue, |needed| {
            let max = self.queue.capacity() / needed;
            format!(
                "a node carries leases on at most {max} connections here: NodeBuilder::leases(false) takes none, \
                 or make another node"
            )
        })
    }

    /// A connection for leases that is not connected, beside the application's.
    pub(super) fn add_control(&self, user: UserConnection) -> Result<Arc<Control>> {
        let control = Control::new(&self.context, self.endpoint()?, user);
        self.controls.lock().add(&control);
        control.post_receives()?;
        if control.user.end().is_some() {
            // It ended before the thread knew of this.
            control.finish();
        }
        Ok(control)
    }

    /// The peer at this address will make a connection for leases, with this token. `None` if another one there has the same token.
    pub(crate) fn expect(self: &Arc<Self>, token: u64, from: IpAddr) -> Option<ExpectedControl> {
        let (oneshot, key) = (Oneshot::new(), (token, from));
        let mut expected = self.expected.lock();
        if expected.contains_key(&key) {
            return None;
        }
        expected.insert(key, oneshot.clone());
        drop(expected);
        Some(ExpectedControl { leases: self.clone(), key, oneshot })
    }

    /// A peer makes a connection for leases.
    pub(crate) fn take_control(
        &self,
        mut request: ConnectRequest,
        handshake: &Handshake,
        wakers: &mut Wakers,
    ) {
        // The token alone is not enough: it is sent in clear.
        let oneshot = self.expected.lock().remove(&(handshake.token, request.peer_addr().ip()));
        match oneshot {
            Some(oneshot) => oneshot.send(request, wakers),
            None => reject(&mut request, "no connection waits for its leases"),
        }
    }

    /// Handles messages and ends leases that are over; returns when the next one expires.
    pub(crate) fn serve(&self) -> Option<Instant> {
        // Remaining messages are handled in the next round: arming the queue reports them.
        let begun = Instant::now();
        while let Ok(Some(completion)) = self.queue.poll_one() {
            self.complete(&completion);
            if begun.elapsed() >= MAX_SERVE_TIME {
                break;
            }
        }
        let now = Instant::now();
        let due = self.context.reactor.agenda.take_due(now);
        let control = |id| self.controls.lock().control(id);
        for id in due.disconnected {
            match control(id) {
                Some(control) => control.finish(),
                None => self.controls.lock().forget(id),
            }
        }
        for (id, lease) in due.leases {
            if let Some(control) = control(id) {
                control.on_lease_due(lease, now);
                control.check_answers();
            }
        }
        due.next
    }

    fn complete(&self, completion: &Completion) {
        let known = self.controls.lock().get(completion.endpoint);
        let Some((control, receives)) = known else { return };
        if !completion.kind.is_receive() {
            return control.iter().for_each(|control| control.on_room());
        }
        let context = completion.context as usize;
        let Some(buffer) = receives.ended(context) else { return };
        let Some(control) = control.filter(|_| completion.is_ok()) else {
            drop(buffer);
            self.controls.lock().forget(completion.endpoint);
            return;
        };
        if completion.kind != OpKind::Recv {
            return control.disconnect_peer("writes where it may not");
        }
        let mut bytes = [0; MAX_LEN];
        let len = completion.len.min(MAX_LEN);
        bytes[..len].copy_from_slice(&buffer[..len]);
        // It fails if the endpoint is closed, which an event reports.
        let _ = receives.post(&control.endpoint, context, buffer);
        control.on_message(&bytes[..len]);
        control.check_answers();
    }

    /// How many connections for leases are in the books.
    #[cfg(any(test, fuzzing))]
    pub(super) fn known(&self) -> usize {
        self.controls.lock().by_id.len()
    }

    /// The node ends: takes remaining receives of closed connections. Those without a completion keep their memory, which
    /// the peer could still write to.
    pub(crate) fn end(&self, is_refused: bool) {
        while let Ok(Some(completion)) = self.queue.poll_one() {
            self.complete(&completion);
        }
        let left = self.controls.lock().leak();
        if left > 0 && !is_refused {
            log_line!(
                Error,
                "fabric-async: the memory of {left} receives for leases leaks: they were not completed, so it may still be in use"
            );
        }
    }
}

/// What one of these endpoints is made with.
fn control_endpoint(builder: EndpointBuilder<'_>) -> EndpointBuilder<'_> {
    let builder = builder.send_depth(DEPTH).send_segments(1).inject(fabric::MIN_INJECT);
    builder.recv_depth(DEPTH).recv_segments(1)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::{Node, block_on};

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no sockets")]
    fn a_connection_that_is_gone_is_in_no_books() {
        let (server, client) = (Node::builder().build().unwrap(), Node::builder().build().unwrap());
        let ip = server.domain().info().addresses[0];
        let listener = block_on(server.listen(std::net::SocketAddr::new(ip, 0))).unwrap();
        let to = listener.local_addr();
        let connecting =
            std::thread::spawn(move || (block_on(client.connect(to)).unwrap(), client));
        let conn = block_on(listener.accept()).unwrap();
        let leases = &server.inner.leases;
        assert_eq!(leases.known(), 1);
        drop(connecting.join());
        let until = Instant::now() + Duration::from_secs(30);
        let are_over =
            || leases.controls.lock().by_id.values().all(|known| known.receives.are_over());
        // The peer is gone first, so nothing of the connection is under way when it is dropped.
        while conn.end().is_none() || !are_over() {
            assert!(Instant::now() < until, "the connection ends");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(conn);
        while leases.known() > 0 {
            assert!(Instant::now() < until, "it is forgotten");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
