//! Messages, tagged and not, and the calls of transfers of both kinds.

use std::sync::atomic::AtomicU64;

use fabric::Access;
use fabric_rdm::matching::Pattern;
use fabric_rdm::{Peer, Recv, Send};

use super::enabled::RdmEnabled;
use super::endpoint::RdmEndpoint;
use super::memory::Memory;
use super::pending::{Pending, Wants};
use super::probe::Probe;
use crate::abi::flags::{
    FI_ADDR_UNSPEC, FI_CLAIM, FI_COMPLETION, FI_DIRECTED_RECV, FI_EBADFLAGS, FI_FENCE,
    FI_MATCH_COMPLETE, FI_MSG, FI_MULTI_RECV, FI_PEEK, FI_RECV, FI_REMOTE_CQ_DATA, FI_SEND,
    FI_TAGGED,
};
use crate::errno::Errno;
use crate::objects::bound::{RX, TX};
use crate::objects::marks;
use crate::objects::region::access_to_send;
use crate::objects::transfer::{
    Buffer, Kind, Options, RECEIVE_FLAGS, Receive, Transfers, Transmit,
};

/// Bytes that an endpoint of every device sends from the call itself.
pub(super) const DIRECT: usize = 96;

impl Transfers for RdmEndpoint {
    #[inline]
    fn op_flags(&self) -> &[AtomicU64; 2] {
        &self.op_flags
    }

    #[inline]
    fn inject_size(&self) -> usize {
        self.wishes.inject
    }

    #[inline]
    fn takes_descriptors(&self) -> bool {
        self.domain.has_local_regions
    }

    /// A short buffer in no region is cheaper to copy than to register.
    #[inline]
    fn takes_copy(&self, kind: Kind, buffers: &[Buffer<'_>]) -> bool {
        let is_short = |buffer: &Buffer<'_>| {
            buffer.region.is_none() && buffer.len <= self.wishes.inject.min(DIRECT)
        };
        !matches!(kind, Kind::Read(_)) && matches!(buffers, [one] if is_short(one))
    }

    #[inline]
    fn transmit(&self, kind: Kind, what: Transmit<'_>, options: Options) -> Result<(), Errno> {
        let enabled = self.enabled()?;
        let of_messages = if kind.counted() == FI_SEND { FI_MATCH_COMPLETE } else { 0 };
        if kind.forbidden(options.flags & !of_messages) != 0 {
            return Err(Errno(FI_EBADFLAGS));
        }
        let is_wanted = !enabled.is_selective[TX] || options.flags & FI_COMPLETION != 0;
        let wants = if is_wanted { Wants::Completion } else { Wants::Error };
        enabled.transmit(kind, what, options, wants)
    }

    #[inline]
    fn inject(&self, kind: Kind, bytes: &[u8], options: Options) -> Result<(), Errno> {
        self.enabled()?.transmit(kind, Transmit::Bytes(bytes), options, Wants::Nothing)
    }

    #[inline]
    fn receive(&self, receive: &Receive<'_>) -> Result<(), Errno> {
        let enabled = self.enabled()?;
        let pattern = self.pattern(enabled, receive)?;
        let kind = FI_RECV | if receive.tag.is_some() { FI_TAGGED } else { FI_MSG };
        let is_wanted = !enabled.is_selective[RX] || receive.flags & FI_COMPLETION != 0;
        let wants = if is_wanted { Wants::Completion } else { Wants::Error };
        if receive.flags & (FI_PEEK | FI_CLAIM) != 0 {
            return enabled.probe(&Probe { receive, pattern, kind, wants });
        }
        // A claim and a discard have no meaning but with those.
        let of_messages = if receive.tag.is_none() { FI_MULTI_RECV } else { 0 };
        if receive.flags & !(RECEIVE_FLAGS | of_messages) != 0 {
            return Err(Errno(FI_EBADFLAGS));
        }
        let is_many = receive.flags & FI_MULTI_RECV != 0;
        let mut pending = Pending::new(receive.context, kind, wants);
        if is_many {
            pending.flags |= FI_MULTI_RECV;
            pending.buffer = receive.buffers.first().map_or(0, |buffer| buffer.address);
        }
        let memory = match is_many {
            true => Memory::of(enabled, receive.buffers, Access::LOCAL_WRITE)?,
            false => Memory::of_message(enabled, receive.buffers, Access::LOCAL_WRITE)?,
        };
        (pending.region, pending.copied) = (memory.region(), memory.copied());
        let mut recv = Recv::new(pattern, memory.slice()?);
        if is_many {
            recv = recv.of_many(self.min_free());
        }
        enabled.post(pending, |context| enabled.endpoint.post_recv(&recv.context(context)))
    }
}

impl RdmEndpoint {
    /// Which messages a receive takes.
    fn pattern(&self, enabled: &RdmEnabled, receive: &Receive<'_>) -> Result<Pattern, Errno> {
        let pattern = match receive.tag {
            Some((tag, ignore)) => Pattern::tagged(tag).ignoring(ignore),
            None => Pattern::untagged(),
        };
        // Others give any number there (fi_getinfo(3), FI_DIRECTED_RECV).
        let is_directed =
            self.wishes.caps & FI_DIRECTED_RECV != 0 && receive.from != FI_ADDR_UNSPEC;
        Ok(match is_directed {
            true => pattern.from(enabled.peers.peer(&enabled.endpoint, receive.from)?),
            false => pattern,
        })
    }
}

impl RdmEnabled {
    fn transmit(
        &self,
        kind: Kind,
        what: Transmit<'_>,
        options: Options,
        wants: Wants,
    ) -> Result<(), Errno> {
        let peer = self.peers.peer(&self.endpoint, options.peer)?;
        match kind {
            Kind::Send => self.send(peer, None, what, options, wants),
            Kind::Tagged(tag) => self.send(peer, Some(tag), what, options, wants),
            Kind::Write(to) => self.write(peer, to, what, options, wants),
            Kind::Read(from) => self.read(peer, from, what, options, wants),
        }
    }

    fn send(
        &self,
        peer: Peer,
        tag: Option<u64>,
        what: Transmit<'_>,
        options: Options,
        wants: Wants,
    ) -> Result<(), Errno> {
        let memory = match what {
            Transmit::Buffers(buffers) => {
                let access = access_to_send(&self.domain.device.domain);
                Some(Memory::of_message(self, buffers, access)?)
            }
            Transmit::Bytes(bytes) if bytes.len() > DIRECT => Some(Memory::of_bytes(self, bytes)?),
            Transmit::Bytes(_) => None,
        };
        let mut send = match (&memory, what) {
            (None, Transmit::Bytes(bytes)) => Send::inject(bytes),
            (Some(memory), _) => Send::new(memory.slice()?),
            (None, Transmit::Buffers(_)) => return Err(Errno::INVALID),
        };
        if let Some(tag) = tag {
            send = send.tag(tag);
        }
        if options.flags & FI_REMOTE_CQ_DATA != 0 {
            // As many bytes as the info's `cq_data_size` says.
            send = send.immediate(options.data as u32);
        }
        if options.flags & FI_MATCH_COMPLETE != 0 {
            send = send.matched();
        }
        let before = self.atomics.as_ref().and_then(|atomics| atomics.before(peer));
        if options.flags & FI_FENCE != 0 || before.is_some() {
            send = send.fence();
        }
        let copied = memory.as_ref().and_then(Memory::copied);
        if copied.is_none() && self.is_silent(wants, FI_SEND) {
            let send = send.unsignaled().context(marks::injected());
            self.endpoint.post_send(peer, &send).map_err(|error| self.refused(error))?;
        } else {
            let flags = FI_SEND | if tag.is_some() { FI_TAGGED } else { FI_MSG };
            let mut pending = Pending::new(options.context, flags, wants);
            pending.copied = copied;
            if let Some(memory) = &memory {
                // SAFETY: the buffer is the operation's from this call on (fi_msg(3)); bytes to inject are for this call.
                unsafe { memory.load()? };
            }
            self.post(pending, |context| self.endpoint.post_send(peer, &send.context(context)))?;
        }
        if let Some(atomics) = &self.atomics {
            atomics.note(peer, false, before);
        }
        Ok(())
    }

    /// Whether no one hears of an operation of this kind, however it ends.
    pub(super) fn is_silent(&self, wants: Wants, kind: u64) -> bool {
        wants == Wants::Nothing && !self.tally.counts(kind)
    }
}
