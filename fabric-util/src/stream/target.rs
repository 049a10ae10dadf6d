//! The target's side: executing the peer's requests, one after the other, in the order they come.

use std::collections::VecDeque;
use std::sync::Arc;

use fabric_core::{Access, AtomicCall, RawCompletion, RemoteAddr, Status, memory};

use super::recvs::Receive;
use super::sends::{Breach, received};
use super::{Link, READS};
use crate::region_table::Entry;

/// A send or write of the peer that is coming in.
pub(super) struct Message {
    pub(super) seq: u32,
    pub(super) total: usize,
    pub(super) done: usize,
    pub(super) imm: Option<u32>,
    pub(super) place: Place,
}

/// Where a message goes.
pub(super) enum Place {
    /// Into a receive.
    Receive(Receive),
    /// Into a region; with immediate data it consumes a receive.
    Write { entry: Arc<Entry>, addr: u64, receive: Option<Receive> },
    /// It has no bytes; with immediate data it consumes a receive.
    Empty(Option<Receive>),
}

impl Message {
    /// The receive it took.
    pub(super) fn into_receive(self) -> Option<Receive> {
        match self.place {
            Place::Receive(receive) => Some(receive),
            Place::Write { receive, .. } | Place::Empty(receive) => receive,
        }
    }
}

/// An answer that is still to be given.
pub(super) enum Answer {
    /// Bytes of a region; none of any region if the read is empty.
    Read { seq: u32, from: Option<Arc<Entry>>, addr: u64, left: usize },
    /// The old value of an atomic.
    Old { seq: u32, value: u64 },
}

/// The answers that are still to be given, in order; at most [`READS`].
#[derive(Default)]
pub(super) struct Answers(VecDeque<Answer>);

impl Answers {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub(super) fn front_mut(&mut self) -> Option<&mut Answer> {
        self.0.front_mut()
    }
    pub(super) fn pop_front(&mut self) {
        self.0.pop_front();
    }
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    fn push(&mut self, answer: Answer) -> Result<(), Breach> {
        if self.0.len() >= READS as usize {
            return Err(Breach("more reads at a time than this side answers"));
        }
        self.0.push_back(answer);
        Ok(())
    }
}

impl Link {
    pub(super) fn begin_send(
        &mut self,
        seq: u32,
        total: u32,
        imm: Option<u32>,
    ) -> Result<(), Breach> {
        let receive = self.recvs.take().ok_or(Breach("a message without a credit"))?;
        if total as usize > receive.len {
            self.refuse(seq, Status::TooLong, Some((receive, Status::TooLong)));
            return Ok(());
        }
        let place = Place::Receive(receive);
        self.incoming.message = Some(Message { seq, total: total as usize, done: 0, imm, place });
        Ok(())
    }

    pub(super) fn begin_write(
        &mut self,
        seq: u32,
        total: u32,
        imm: Option<u32>,
        to: RemoteAddr,
    ) -> Result<(), Breach> {
        let receive = match imm {
            Some(_) => Some(self.recvs.take().ok_or(Breach("an immediate without a credit"))?),
            None => None,
        };
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

    /// The region that `key` opens, if all of the range is inside and it grants `need`.
    fn check(&self, at: RemoteAddr, len: u64, need: Access) -> Option<Arc<Entry>> {
        let entry = self.around.regions.find(at.key)?;
        (entry.contains(at.addr, len) && entry.grants(need)).then_some(entry)
    }

    /// All bytes of the message are there.
    pub(super) fn finish_message(&mut self) {
        let Some(message) = self.incoming.message.take() else { return };
        let (total, imm) = (message.total, message.imm);
        self.incoming.debt.accept(total);
        let completion = match message.place {
            Place::Receive(receive) => Some(received(receive.token, total as u32, imm, false)),
            Place::Write { receive, .. } | Place::Empty(receive) => {
                receive.map(|receive| received(receive.token, total as u32, imm, true))
            }
        };
        if let Some(completion) = completion {
            self.made_recvs.push(completion);
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
        completion.provider_code = super::code_of(status);
        self.made_recvs.push(completion);
    }
}
