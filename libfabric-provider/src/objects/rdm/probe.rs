//! Messages that have met no receive: looking for them, claiming and discarding them (`fi_tagged(3)`, `FI_PEEK`).

use fabric::Access;
use fabric_rdm::Probed;
use fabric_rdm::matching::{Envelope, Pattern};

use super::enabled::RdmEnabled;
use super::memory::Memory;
use super::pending::{Pending, Wants};
use crate::abi::flags::{
    FI_ADDR_UNSPEC, FI_CLAIM, FI_COMPLETION, FI_DISCARD, FI_EBADFLAGS, FI_MORE, FI_PEEK,
    FI_REMOTE_CQ_DATA,
};
use crate::errno::Errno;
use crate::objects::bound::RX;
use crate::objects::done::Done;
use crate::objects::transfer::Receive;
use crate::sync::lock;

/// The flags of receives that look for a message.
const PROBES: u64 = FI_PEEK | FI_CLAIM | FI_DISCARD;
/// So many may be claimed at a time.
const MAX_CLAIMS: usize = 1 << 14;

/// A receive that looks for a message.
pub(super) struct Probe<'a> {
    pub(super) receive: &'a Receive<'a>,
    pub(super) pattern: Pattern,
    /// The flags of its completion.
    pub(super) kind: u64,
    pub(super) wants: Wants,
}

impl RdmEnabled {
    pub(super) fn probe(&self, probe: &Probe<'_>) -> Result<(), Errno> {
        let flags = probe.receive.flags;
        if flags & !(PROBES | FI_COMPLETION | FI_MORE) != 0 {
            return Err(Errno(FI_EBADFLAGS));
        }
        if flags & FI_PEEK == 0 {
            return self.take_claimed(probe, flags & FI_DISCARD != 0);
        }
        // Its completion needs a place.
        if self.completions[RX].room() == 0 {
            return Err(Errno::AGAIN);
        }
        let done = match self.endpoint.probe(&probe.pattern)? {
            Some(probed) => self.found(probe, &probed)?,
            None => self.nothing_found(probe),
        };
        if done.error.is_some() || probe.wants == Wants::Completion {
            self.completions[RX].push(done);
        }
        Ok(())
    }

    /// A message was found: it stays, or is claimed, or dropped.
    fn found(&self, probe: &Probe<'_>, probed: &Probed) -> Result<Done, Errno> {
        let Receive { flags, context, .. } = *probe.receive;
        if flags & (FI_CLAIM | FI_DISCARD) == 0 {
            return Ok(self.report(probe, probed.envelope, probed.immediate));
        }
        let mut claims = lock(&self.claims);
        if flags & FI_CLAIM != 0 && (claims.len() == MAX_CLAIMS || claims.contains_key(&context)) {
            return Err(Errno::AGAIN);
        }
        // Another thread's receive may have met it.
        let Some(claimed) = self.endpoint.claim_shared(probed)? else {
            return Ok(self.nothing_found(probe));
        };
        if flags & FI_CLAIM != 0 {
            claims.insert(context, claimed);
        }
        Ok(self.report(probe, probed.envelope, probed.immediate))
    }

    fn nothing_found(&self, probe: &Probe<'_>) -> Done {
        Done {
            endpoint: self.id,
            context: probe.receive.context,
            flags: probe.kind,
            len: 0,
            data: 0,
            tag: 0,
            buffer: 0,
            source: FI_ADDR_UNSPEC,
            overflow: 0,
            error: Some((Errno(libc::ENOMSG), 0)),
        }
    }

    /// The completion of a look that found this message.
    fn report(&self, probe: &Probe<'_>, envelope: Envelope, immediate: Option<u32>) -> Done {
        let has_data = if immediate.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
        Done {
            flags: probe.kind | has_data,
            len: envelope.len as usize,
            data: immediate.map_or(0, u64::from),
            tag: envelope.tag.unwrap_or(0),
            source: self.peers.number(&self.endpoint, envelope.source),
            error: None,
            ..self.nothing_found(probe)
        }
    }

    /// Receives, or drops, the message that was claimed with this context.
    fn take_claimed(&self, probe: &Probe<'_>, discards: bool) -> Result<(), Errno> {
        let Receive { context, buffers, .. } = *probe.receive;
        let take = || lock(&self.claims).remove(&context).ok_or(Errno::INVALID);
        if discards {
            let claimed = take()?;
            if probe.wants == Wants::Completion {
                self.completions[RX].push(self.report(probe, claimed.envelope(), None));
            }
            return Ok(());
        }
        let memory = Memory::of(self, buffers, Access::LOCAL_WRITE)?;
        let mut claimed = take()?;
        let pending = Pending::new(context, probe.kind, probe.wants);
        let slice = memory.slice()?;
        let posted = self.post(pending, |key| claimed.receive(slice, key));
        if posted.is_err_and(|errno| errno != Errno::BAD_STATE) {
            // It is claimed as before. One whose peer is gone is no more.
            lock(&self.claims).insert(context, claimed);
        }
        posted
    }
}
