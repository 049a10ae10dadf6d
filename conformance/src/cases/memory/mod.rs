//! Registration: what can be registered, and what its end means.

mod accesses;
mod addresses;
mod bounds;
mod descriptors;
mod letting_go;
mod registering;
mod revoking;

pub(super) use self::revoking::{REVOKED_LEN, revoke_under_writes};
use crate::prelude::*;

pub(super) const CASES: &[Case] = cases! { Memory:
    registering::reg_zero, Needs::SEND_RMA, "no bytes cannot be registered, one byte can" .trap();
    registering::reg_overflow, Needs::NOTHING,
        "ranges that leave the address space or their memory are errors";
    registering::reg_unmapped, Needs::NOTHING,
        "addresses where nothing is mapped, or a hole in the middle, are errors" .trap();
    registering::reg_readonly, Needs::RMA,
        "a read-only mapping cannot be registered for writing; for reading it can, and no peer writes it"
        .local_only("the case changes the protection of the target's pages").trap();
    registering::reg_access_rule, Needs::NOTHING,
        "remote write and atomic need local write, remote atomic needs multiples of 8; all else is allowed"
        .trap();
    registering::reg_overlap, Needs::SEND_RMA,
        "two regions on one buffer: each key has its own rights, range and end" .trap();
    registering::reg_10k, Needs::SEND_RMA.min_limits(&[("regions", 10_100)]),
        "10000 regions side by side: random writes and reads are all correct";
    bounds::unaligned_base, Needs::SEND_RMA,
        "a region at base + 3 with length 4099 is exact to the byte";
    bounds::subrange, Needs::SEND_RMA,
        "writes and reads of parts leave the bytes beside them intact";
    revoking::dereg_access, Needs::RMA.and(Capabilities::ATOMIC),
        "a region that was closed or dropped: write, read and atomic are RemoteAccess, nothing changes"
        .trap();
    revoking::stale_key, Needs::SEND_RMA,
        "a key that has worked opens nothing once its region is closed, other keys of the memory still do"
        .trap();
    revoking::dereg_busy, Needs::SEND,
        "closing is Busy while a local operation uses the region, and works when its completion is taken";
    revoking::dereg_vs_write, Needs::RMA,
        "under a stream of writes, no byte changes once deregistration has returned"
        .freedom(Freedom::Whole("how many writes finish before the region closes, and how those in flight end, is open")).trap();
    revoking::dereg_vs_read, Needs::RMA,
        "deregistration in the middle of a long read: it ends within 5 s, and shows nothing written later"
        .freedom(Freedom::Statuses("a read whose region closes meanwhile ends Ok, refused, canceled or with its peer lost")).trap();
    revoking::rereg_same_address, Needs::SEND_RMA.and(Capabilities::UNIQUE_KEYS),
        "the same memory registered again and again: keys never repeat, a stale descriptor is RemoteAccess";
    descriptors::cross_domain, Needs::SEND_RMA,
        "a key of another domain is RemoteAccess, and nothing changes there" .trap();
    descriptors::desc_roundtrip, Needs::SEND_RMA,
        "a descriptor that was shipped as bytes works at the peer";
    addresses::virtual_addresses, Needs::SEND_RMA,
        "with VIRTUAL_ADDRESSES an address alone names a byte, and one outside the region is RemoteAccess" .trap();
    descriptors::desc_corrupt, Needs::NOTHING,
        "a descriptor with any bit flipped, cut short or prolonged is a parse error";
    bounds::local_oob, Needs::SEND_RMA,
        "local ranges beyond the region are errors of the call; the endpoint works on, nothing happens later";
    bounds::local_ro_dest, Needs::ALL,
        "receives, reads and old values into a region without local write are errors of the call" .trap();
    registering::memlock, Needs::NOTHING.and(Capabilities::LOCKS_MEMORY),
        "beyond the limit of locked memory, without CAP_IPC_LOCK: NoMemory" .exclusive();
    bounds::page_cross, Needs::SEND_RMA,
        "transfers at every offset around a page boundary, on both sides, are exact";
    revoking::drop_region_in_flight, Needs::SEND_RMA,
        "the last handle dropped with an operation pending: it finishes, then rights end and memory is freed"
        .freedom(Freedom::Limits(&["message"]));
    letting_go::close_unsignaled, Needs::SEND_RMA.and(Capabilities::ATOMIC),
        "unsignaled operations that succeeded let a region be closed within 2 s, without polls or posts";
    letting_go::drop_unsignaled, Needs::SEND_RMA.and(Capabilities::ATOMIC),
        "a region dropped behind an unsignaled operation that succeeded is closed to the peer within 2 s"
        .freedom(Freedom::Whole("how many accesses the peer has before the region is closed is open"));
    letting_go::end_unsignaled, Needs::SEND_RMA.and(Capabilities::ATOMIC),
        "after the end of a connection, the regions of unsignaled operations that succeeded can be closed within 2 s";
    letting_go::end_amid_unsignaled, Needs::RMA.and(Capabilities::ATOMIC),
        "the region of an unsignaled operation that is executed while its connection ends can be closed within 2 s"
        .freedom(Freedom::Whole("whether the operation is executed before the end is open"));
};
