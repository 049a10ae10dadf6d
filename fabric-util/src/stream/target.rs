//! The target's side: executing the peer's requests, one after the other, in the order they come.

use std::sync::Arc;

use fabric_core::{Access, AtomicCall, RawCompletion, RemoteAddr, Status, Token, memory};

use super::link::{Link, code_of};
use super::phase::Phase;
use super::protocol_error::Breach;
use super::receives::Receive;
use super::requests::{Answer, Message, Place};
use crate::region_table::RegionEntry;
use crate::stream::wire::frame::Kind;

impl Link {
    /// Begins to take a send, or refuses it for now: then its bytes are discarded.
    pub(super) fn begin_send(
        &mut self,
        seq: u32,
        total: u32,
        imm: Option<u32>,
    ) -> Result<(), Breach> {
        let Some(receive) = self.take_receive(seq)? else { return Ok(()) };
        if total as usize > receive.len {
            self.refuse(seq, Status::TooLong, Some((receive, Status::TooLong)));
            return Ok(());
        }
        let place = Place::Receive(receive);
        self.incoming.message = Some(Message { seq, total: total as usize, done: 0, imm, place });
        Ok(())
    }

    /// As `begin_send`, of a write.
    pub(super) fn begin_write(
        &mut self,
        seq: u32,
        total: u32,
        imm: Option<u32>,
        to: RemoteAddr,
    ) -> Result<(), Breach> {
        let mut receive = None;
        if imm.is_some() {
            receive = self.take_receive(seq)?;
            if receive.is_none() {
                return Ok(());
            }
        }
        let place = if total == 0 {
            Place::Empty(receive)
        } else {
            match self.check(to, total.into(), Access::REMOTE_WRITE) {
                Some(entry) => Place::Write { entry, addr: to.addr, receive },
                None => {
                    let receive = receive.map(|receive| (receive, Status::Canceled));
                    self.refuse(seq, Status::RemoteAccess, receive);
                    return Ok(());
                }
            }
        };
        self.incoming.message = Some(Message { seq, total: total as usize, done: 0, imm, place });
        Ok(())
    }

    /// The next receive, for the request `seq`; `None` if that is refused for now.
    #[inline]
    fn take_receive(&mut self, seq: u32) -> Result<Option<Receive>, Breach> {
        match self.recvs.take() {
            None => self.take_shared(seq),
            receive => Ok(receive),
        }
    }

    #[cold]
    fn take_shared(&mut self, seq: u32) -> Result<Option<Receive>, Breach> {
        if !self.recvs.is_shared() {
            return Err(Breach::of("a message, or immediate data, without a credit"));
        }
        if self.incoming.waits {
            return Err(Breach::of("sends again what was refused, before it may"));
        }
        let receive = self.recvs.take_shared(self.context.id);
        if receive.is_none() {
            // The peer sends the request again, and what it sent behind it, when there is a receive.
            self.incoming.discard_from(seq);
            self.push_plain(Kind::NotReady, seq);
        }
        Ok(receive)
    }

    /// Receives were posted to the shared queue that this link waits for.
    pub fn receives_posted(&mut self) {
        if self.phase == Phase::Open && std::mem::take(&mut self.incoming.waits) {
            self.push_plain(Kind::Ready, 0);
        }
    }

    /// What the key opens to this connection, if all of the range is inside and `need` is allowed.
    fn check(&self, at: RemoteAddr, len: u64, need: Access) -> Option<Arc<RegionEntry>> {
        let entry = self.context.regions.find(at.key, self.context.id)?;
        (entry.contains(at.addr, len) && entry.allows(need)).then_some(entry)
    }

    /// All bytes of the message are there.
    pub(super) fn finish_message(&mut self, message: &Message) {
        let (total, imm) = (message.total, message.imm);
        self.incoming.debt.accept(total);
        let completion = match &message.place {
            Place::Receive(receive) => Some(received(receive.token, total, imm, false)),
            Place::Write { receive, .. } | Place::Empty(receive) => {
                receive.as_ref().map(|receive| received(receive.token, total, imm, true))
            }
        };
        if let Some(completion) = completion {
            self.complete_recv(completion);
        }
    }

    pub(super) fn execute_read(
        &mut self,
        seq: u32,
        from: RemoteAddr,
        len: usize,
    ) -> Result<(), Breach> {
        let entry = if len == 0 {
            None
        } else {
            match self.check(from, len as u64, Access::REMOTE_READ) {
                Some(entry) => Some(entry),
                None => {
                    self.refuse(seq, Status::RemoteAccess, None);
                    return Ok(());
                }
            }
        };
        self.incoming.debt.accept(0);
        self.answers.push(Answer::Read { seq, from: entry, addr: from.addr, left: len })
    }

    pub(super) fn execute_atomic(
        &mut self,
        seq: u32,
        at: RemoteAddr,
        call: &AtomicCall,
        fetch: bool,
    ) -> Result<(), Breach> {
        let size = call.ty.size() as u64;
        let entry = self.check(at, size, Access::REMOTE_ATOMIC);
        // The region starts on a multiple of 8, so the offset is as aligned as the address.
        let entry = entry.filter(|entry| (entry.at(at.addr) as u64).is_multiple_of(size));
        let Some(entry) = entry else {
            self.refuse(seq, Status::RemoteAccess, None);
            return Ok(());
        };
        let Some(pass) = entry.enter() else {
            self.refuse(seq, Status::RemoteAccess, None);
            return Ok(());
        };
        // SAFETY: the element is inside the region, aligned, and the pass holds the region open.
        let value = unsafe { memory::atomic(entry.at(at.addr), call) };
        drop(pass);
        self.incoming.debt.accept(0);
        if fetch { self.answers.push(Answer::Old { seq, value }) } else { Ok(()) }
    }

    pub(super) fn finish_receive(&mut self, receive: &Receive, status: Status) {
        let mut completion = RawCompletion::new(receive.token, status);
        completion.provider_code = code_of(status);
        self.complete_recv(completion);
    }
}

/// The completion of a receive that took a message.
#[inline]
pub(super) fn received(
    token: Token,
    len: usize,
    imm: Option<u32>,
    remote_write: bool,
) -> RawCompletion {
    let mut completion = RawCompletion::new(token, Status::Ok);
    completion.len = len as u64;
    completion.immediate = imm;
    completion.remote_write = remote_write;
    completion
}
