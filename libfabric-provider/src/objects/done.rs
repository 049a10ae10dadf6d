//! Completions as applications read them.

use fabric::{Completion, EndpointId, OpKind};

use super::marks;
use crate::abi::flags::{
    FI_ADDR_UNSPEC, FI_MSG, FI_READ, FI_RECV, FI_REMOTE_CQ_DATA, FI_REMOTE_WRITE, FI_RMA, FI_SEND,
    FI_WRITE,
};
use crate::errno::{Errno, of_status};

/// The endpoint of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Message(EndpointId),
    /// That one, by shared receives: the application has posted them to these, and hears of each.
    Shared {
        receives: EndpointId,
        endpoint: EndpointId,
    },
    /// By the number that it was given.
    Datagram(u64),
}

/// A completion as an application reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) endpoint: Whose,
    pub(crate) context: u64,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    /// Where it is, where the application does not know.
    pub(crate) buffer: usize,
    /// What an address vector names the sender.
    pub(crate) source: u64,
    /// Bytes that did not fit.
    pub(crate) overflow: usize,
    /// Why it failed, and the provider's own code.
    pub(crate) error: Option<(Errno, u32)>,
}

impl Whose {
    pub(super) fn is_message_of(self, id: EndpointId) -> bool {
        match self {
            Whose::Message(endpoint) | Whose::Shared { endpoint, .. } => endpoint == id,
            Whose::Datagram(_) => false,
        }
    }

    pub(super) fn is_of_shared(self, receives: EndpointId) -> bool {
        matches!(self, Whose::Shared { receives: of, .. } if of == receives)
    }
}

/// What an application gets to see of a completion.
#[inline]
pub(super) fn done(completion: &Completion, whose: Whose) -> Option<Done> {
    let error = of_status(completion.status).map(|errno| (errno, completion.provider_code));
    let mut context = completion.context;
    if context == marks::injected() || context == marks::silent() && error.is_none() {
        return None;
    }
    if context == marks::silent() {
        context = 0;
    }
    let mut flags = match completion.kind {
        OpKind::Send => FI_SEND | FI_MSG,
        OpKind::Write => FI_WRITE | FI_RMA,
        OpKind::Read => FI_READ | FI_RMA,
        OpKind::RecvWrite => FI_REMOTE_WRITE | FI_RMA,
        _ => FI_RECV | FI_MSG,
    };
    if completion.immediate.is_some() {
        flags |= FI_REMOTE_CQ_DATA;
    }
    let data = completion.immediate.map_or(0, u64::from);
    Some(Done {
        endpoint: whose,
        context,
        flags,
        len: completion.len,
        data,
        // A connection has one peer, and neither tags nor an address vector.
        tag: 0,
        buffer: 0,
        source: FI_ADDR_UNSPEC,
        overflow: 0,
        error,
    })
}
