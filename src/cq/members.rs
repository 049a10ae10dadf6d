//! The endpoints bound to a completion queue, and what a provider's completion means to them.

use std::sync::Arc;

use fabric_core::token::MAX_MEMBERS;
use fabric_core::{
    Completion, EndpointState, Error, Event, EventSink, Failure, OpKind, RawCompletion, Result,
    Side, Status, Token,
};
use fabric_util::inflight::Consumer;

use crate::counters::Ends;
use crate::eq::Hub;
use crate::registry::EndpointShared;
use crate::slot::{Keep, Released, Report, Slot};

/// An endpoint, as the queue knows it.
pub(super) struct Tenant {
    pub(super) shared: Arc<EndpointShared>,
    pub(super) send: Option<Consumer<Slot>>,
    pub(super) recv: Option<Consumer<Slot>>,
    /// What it has reserved.
    pub(super) room: usize,
}

impl Tenant {
    pub(super) fn side(&mut self, side: Side) -> Option<&mut Consumer<Slot>> {
        match side {
            Side::Send => self.send.as_mut(),
            Side::Recv => self.recv.as_mut(),
        }
    }
}

#[derive(Default)]
struct Member {
    generation: u32,
    tenant: Option<Tenant>,
}

/// The endpoints bound to the queue.
pub(super) struct Members {
    hub: Arc<Hub>,
    places: Vec<Member>,
    vacant: Vec<u32>,
    /// Completions whose token names nothing: a provider's mistake.
    pub(super) strays: u64,
}

impl Members {
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        Members { hub, places: Vec::new(), vacant: Vec::new(), strays: 0 }
    }

    /// Takes a tenant in, and gives the token of its first operation.
    pub(super) fn add(&mut self, tenant: Tenant) -> Result<Token> {
        let place = match self.vacant.pop() {
            Some(place) => place,
            None if self.places.len() < MAX_MEMBERS => {
                self.places.push(Member::default());
                (self.places.len() - 1) as u32
            }
            None => {
                let text = format!("the queue serves {MAX_MEMBERS} endpoints, the most it can");
                return Err(Error::NoMemory(Failure::new("make endpoint", text)));
            }
        };
        let member = &mut self.places[place as usize];
        member.tenant = Some(tenant);
        Ok(Token::new(place, member.generation, Side::Send, 0))
    }

    /// Lets a tenant go: from now on its tokens name nothing.
    pub(super) fn remove(&mut self, token: Token) -> Option<Tenant> {
        self.tenant(token)?;
        let member = &mut self.places[token.member() as usize];
        member.generation = Token::next_generation(member.generation);
        self.vacant.push(token.member());
        member.tenant.take()
    }

    #[inline]
    pub(super) fn tenant(&mut self, token: Token) -> Option<&mut Tenant> {
        find(&mut self.places, token)
    }

    /// Turns a provider's completion into those of the application, in order; each goes to `deliver` with
    /// what it held on to, which gives that back if the application has the completion now. Unsignaled
    /// operations that succeeded are retired on the way.
    #[inline]
    pub(super) fn resolve(
        &mut self,
        raw: &RawCompletion,
        released: &mut Released,
        deliver: impl FnMut(Completion, Keep) -> Option<Keep>,
    ) {
        let Members { hub, places, strays, .. } = self;
        let token = raw.token;
        let Some(Tenant { shared, send, recv, .. }) = find(places, token) else {
            *strays += 1;
            return;
        };
        let consumer = match token.side() {
            Side::Send => send.as_mut(),
            Side::Recv => recv.as_mut(),
        };
        let Some(consumer) = consumer.filter(|consumer| consumer.contains(token.sequence())) else {
            *strays += u64::from(!raw.and_all_before);
            return;
        };
        let ends = &shared.counters.side(token.side()).ends;
        let mut teller = Teller { shared, ends, released, deliver, done: 0 };
        if consumer.oldest() != token.sequence() {
            teller.pass_over(consumer, raw);
        }
        if let Some((_, slot)) = consumer.pop() {
            let mut completion = Completion::new(slot.context, shared.id, slot.kind, raw.status);
            completion.provider_code = raw.provider_code;
            if raw.status == Status::Ok {
                completion.len = slot.len;
                if token.side() == Side::Recv {
                    completion.len = raw.len as usize;
                    completion.immediate = raw.immediate;
                    if raw.remote_write {
                        completion.kind = OpKind::RecvWrite;
                    }
                    ends.bytes.add(raw.len);
                    if shared.state.get() == EndpointState::Connecting {
                        connected_early(hub, shared);
                    }
                }
            }
            teller.end(completion, slot.report, slot.keep);
        }
        consumer.credit(teller.done);
    }
}

#[inline]
fn find(places: &mut [Member], token: Token) -> Option<&mut Tenant> {
    let member = places.get_mut(token.member() as usize)?;
    if member.generation == token.generation() { member.tenant.as_mut() } else { None }
}

/// A message came to an endpoint that accepts, before the `Connected` event of its provider: the thread that takes
/// the message may answer it.
#[cold]
fn connected_early(hub: &Hub, shared: &EndpointShared) {
    hub.event(Event::Connected { endpoint: shared.id, data: Box::default() });
}

/// Reports completed operations, and counts them.
struct Teller<'a, F> {
    shared: &'a EndpointShared,
    ends: &'a Ends,
    released: &'a mut Released,
    deliver: F,
    /// Operations that no longer count against the depth.
    done: u32,
}

impl<F: FnMut(Completion, Keep) -> Option<Keep>> Teller<'_, F> {
    #[inline(always)] // once for each operation; the completion then never takes the way over memory
    fn end(&mut self, completion: Completion, report: Report, keep: Keep) {
        let ok = completion.status == Status::Ok;
        if !ok {
            // While it is connecting, an event reports how that ends.
            self.shared.state.replace(EndpointState::Connected, EndpointState::Dead);
        }
        if report != Report::Never {
            if ok { self.ends.completed.add(1) } else { self.ends.errors.add(1) }
        }
        let visible = report == Report::Always || report == Report::Failure && !ok;
        if let Some(keep) = if visible { (self.deliver)(completion, keep) } else { Some(keep) } {
            keep.release(self.released);
            self.done += 1;
        }
    }

    /// Ends the operations before that of `raw`, which have no completion of their own.
    #[inline(never)]
    fn pass_over(&mut self, consumer: &mut Consumer<Slot>, raw: &RawCompletion) {
        while consumer.oldest() != raw.token.sequence() {
            let Some((_, slot)) = consumer.pop() else { break };
            let status = match slot.report {
                _ if raw.and_all_before => raw.status,
                // Signaled, and its own completion never came: a provider's mistake, but each is reported exactly once.
                Report::Always => Status::Internal,
                // Unsignaled: it succeeded.
                _ => Status::Ok,
            };
            let mut completion = Completion::new(slot.context, self.shared.id, slot.kind, status);
            completion.provider_code = raw.provider_code;
            self.end(completion, slot.report, slot.keep);
        }
    }
}
