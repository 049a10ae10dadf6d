//! What a provider over a stream of bytes can offer: limits of the protocol, and of memory that is the process's own.

use fabric_core::Limits;

use super::wire::frame::MAX_MESSAGE;

/// What an endpoint can inject; a copy of so many bytes is cheaper than anything else that could be done.
const INJECT: usize = 256;

/// The limits of a device whose connections are links.
pub fn limits() -> Limits {
    let mut limits = Limits::none();
    limits.message = MAX_MESSAGE.into();
    limits.inject = INJECT;
    limits.send_segments = 16;
    limits.recv_segments = 16;
    limits.send_depth = 1 << 14;
    limits.recv_depth = 1 << 14;
    limits.shared_depth = 1 << 14;
    limits.cq_capacity = 1 << 20;
    limits.completion_queues = 1 << 16;
    limits.endpoints = 1 << 16;
    limits.regions = 1 << 24;
    limits.region_len = 1 << 40;
    limits.backlog = 1 << 12;
    limits
}
