//! What a peer must not do, and what becomes of the connection when it tries.

mod aftermath;
mod foreign;
mod refused;

use crate::prelude::*;

pub(super) const CASES: &[Case] = cases! { Protection:
    refused::bad_key, Needs::RMA,
        "a write by a key that was never given out: RemoteAccess, no byte changed" .trap();
    refused::oob_low, Needs::RMA,
        "a write that ends before the region: RemoteAccess, no byte changed" .trap();
    refused::oob_high, Needs::RMA,
        "a write that starts behind the region: RemoteAccess, no byte changed" .trap();
    refused::oob_straddle, Needs::RMA,
        "a write of which one byte is outside: RemoteAccess, no byte changed" .trap();
    refused::addr_wrap, Needs::RMA,
        "a write whose range passes the end of the address space: RemoteAccess, no byte changed" .trap();
    refused::no_remote_read, Needs::RMA,
        "a read of a region that does not grant it: RemoteAccess, nothing read" .trap();
    refused::no_remote_write, Needs::RMA,
        "a write to a region that does not grant it: RemoteAccess, no byte changed" .trap();
    refused::read_bad, Needs::RMA,
        "a read by a bad key or of a range outside leaves the local buffer as it was";
    refused::write_imm_bad, Needs::SEND_RMA,
        "a refused write with immediate: RemoteAccess, the receive Canceled, no immediate";
    aftermath::prefix_ok, Needs::RMA,
        "5 good writes, 1 refused, 5 good: 5 Ok, RemoteAccess, 5 Canceled that never happen" .trap();
    aftermath::target_learns, Needs::RMA,
        "an idle target learns of the dead connection by one Disconnected" .trap();
    aftermath::target_recv_flush, Needs::SEND_RMA,
        "the receives of the target are Canceled, once each, in order" .trap();
    aftermath::target_sends_in_flight, Needs::SEND_RMA,
        "what the target has in flight at a refusal is Canceled, in order, and what waits is never executed";
    aftermath::provider_code, Needs::SEND_RMA,
        "provider_code is 0 with Ok, and not 0 with RemoteAccess and TooLong";
    aftermath::post_after_error, Needs::SEND_RMA,
        "posts to a dead endpoint are NotConnected on both queues of both sides, and have no effect";
    aftermath::recv_post_race, Needs::SEND_RMA.min_limits(&[("recv_depth", aftermath::RACE_DEPTH as u64)]),
        "a receive posted while the connection dies is rejected, or Canceled once"
        .freedom(Freedom::Counts("how many receives are posted before the connection is dead is open"));
    aftermath::other_endpoint_unaffected, Needs::SEND_RMA,
        "a refused write ends its own connection; the traffic of another goes on";
    aftermath::error_then_reconnect, Needs::SEND_RMA,
        "after a refusal a new connection reaches the same region by the same descriptor";
    foreign::guess_keys, Needs::RMA.and(Capabilities::SECRET_KEYS),
        "of 1000 guessed keys none opens the region";
    foreign::fork_child, Needs::SEND_RMA,
        "every handle refuses its calls in a forked child, whose end the parent does not notice";
    foreign::unsupported_inverse, Needs::NOTHING,
        "whatever is outside the capabilities is Unsupported, and has no side effect";
};
