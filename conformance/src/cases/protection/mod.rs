//! What a peer must not do, and what becomes of the connection when it tries.

mod aftermath;
mod foreign;
mod grants;
mod read_only;
mod refused;

use crate::prelude::*;

/// What the cases of grants need.
const GRANTS: Needs = Needs::ALL.and(Capabilities::GRANTS);

pub(super) const CASES: &[Case] = cases! { Protection:
    refused::bad_key, Needs::RMA,
        "a write by a key that was never given out: RemoteAccess, no byte changed" .trap();
    refused::oob_low, Needs::RMA,
        "a write that ends before the region: RemoteAccess, no byte changed" .trap();
    refused::oob_high, Needs::RMA,
        "a write that starts behind the region: RemoteAccess, no byte changed" .trap();
    refused::oob_straddle, Needs::RMA,
        "a write with one byte outside: RemoteAccess, no byte changed" .trap();
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
    grants::grant_rights, GRANTS,
        "a grant opens its part for what it grants: all else is RemoteAccess, no byte changed" .trap();
    grants::grants_only, GRANTS,
        "a region for grants alone opens by those, as far as it has rights, and never by its own key" .trap();
    grants::grant_range, GRANTS,
        "a write, read or atomic with one byte outside the part that was granted: RemoteAccess" .trap();
    grants::grant_whole_region, GRANTS,
        "long writes and reads, immediates and delivery-complete writes go by a grant";
    grants::grant_other_connection, GRANTS,
        "the key of a grant over any other connection: RemoteAccess, no byte changed" .trap();
    grants::grant_revoked, GRANTS,
        "a grant that was revoked or dropped opens nothing; other grants and the region's key go on" .trap();
    grants::grant_revoke_vs_write, GRANTS,
        "under a stream of writes, no byte changes once a grant was revoked"
        .freedom(Freedom::Whole("how many writes finish before, and how those in flight end, is open")).trap();
    grants::grant_arguments, GRANTS,
        "what cannot be granted is an error of the call, without effect";
    grants::grant_ends_with_its_region, GRANTS,
        "closing a region ends its grants; without its handle it is there as long as a grant is" .trap();
    grants::grant_ends_with_its_connection, GRANTS,
        "with its connection a grant ends for good";
    grants::grant_many, GRANTS.min_limits(&[("regions", 1_100)]),
        "1000 grants of one region, side by side; each goes alone";
    grants::grant_guessed, GRANTS.and(Capabilities::SECRET_KEYS),
        "of 130 guessed keys none opens what was granted to another connection";
    grants::grant_behind_send, GRANTS,
        "behind a send that waits a grant is made or TimedOut, without effect; revoking waits for nothing"
        .freedom(Freedom::Whole("whether it is made is open"));
    read_only::grant_of_reads, GRANTS,
        "of a region for reads alone a grant opens reads; a right that it lacks is refused" .trap();
    read_only::grant_of_read_only_pages, GRANTS,
        "of pages that cannot be written to, reads are granted, or InvalidArgument"
        .freedom(Freedom::Whole("whether they are granted is open"));
    foreign::fork_child, Needs::SEND_RMA,
        "every handle refuses its calls in a forked child, whose end the parent does not notice";
    foreign::unsupported_inverse, Needs::NOTHING,
        "whatever is outside the capabilities is Unsupported, and has no side effect";
};
