//! Peculiarities of drivers, as one table with the reason beside each, and the limits that follow from them.
//! A driver that is not in it is taken for hardware that keeps the InfiniBand specification.

use std::ops::RangeInclusive;

use fabric_core::Limits;

use crate::chain::LONGEST;
use crate::handle::{DeviceAttributes, KernelVersion, PortAttributes};

/// Bytes of one inject: inline where the device can, else copied.
const INJECT: usize = 256;

/// Segments of one operation: as many as on the other providers.
const SEGMENTS: usize = 16;

/// Regions that the provider registers for itself.
const OWN_REGIONS: u32 = 64;

/// Where a driver departs from what the provider otherwise expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quirks {
    /// The name of the kernel's driver, for people.
    pub(crate) driver: &'static str,
    /// A receiver-not-ready answer does not reset the retry count, so a finite `retry_cnt` would end a send
    /// that waits for its receive. `retry_cnt` is 7 (without limit), and a queue pair of its own probes for
    /// liveness: one more for each endpoint.
    pub(crate) separate_probes: bool,
    /// No asynchronous event reports to a target that it refused an access: look at the state of its queue pairs. They get to
    /// that only after the refusal was sent, so the initiator leaves them a moment before it disconnects.
    pub(crate) silent_refusals: bool,
    /// A receive posted after the error state is not flushed until the queue pair is moved there again.
    pub(crate) late_receives_stay: bool,
    /// A request that could not be put on the wire (no route, no neighbour, the link is down) ends as if the request
    /// itself were wrong.
    pub(crate) unsendable_is_local: bool,
    /// A fenced request that has to be repeated, for want of a receive or because a packet was lost, waits for the reads
    /// and atomics that were sent behind it, or for itself if it is one: for ever. Fences wait in software.
    pub(crate) fences_hang: bool,
    /// A send or write that has to be repeated is acknowledged by the number of the request that was executed last. If
    /// that is an atomic whose answer was lost, it ends by this, without its old value. So an atomic waits in software
    /// until the sends and writes before it have ended.
    pub(crate) acks_end_atomics: bool,
    /// A read that is refused after part of it came, since a packet got lost, ends as if it had succeeded.
    pub(crate) refused_reads_succeed: bool,
    /// An empty read, which needs no key, is refused for its key when it has to be repeated, since its answer was lost. It
    /// goes as an empty write.
    pub(crate) repeated_reads_need_keys: bool,
    /// A memory window that was bound is bound once more when a request before it has to be repeated; that fails, and nothing
    /// of the send queue ends any more. Binding waits in software until all before it has ended.
    pub(crate) repeated_binds_hang: bool,
    /// A receive of a shared queue that a message has begun is never completed if its queue pair fails; no call says which it
    /// was. There are no shared receive queues then.
    pub(crate) begun_receives_get_lost: bool,
    /// No event reports that a queue pair in error has completed what it had taken from its shared receive queue.
    pub(crate) last_receive_is_silent: bool,
    /// How much of `max_qp_wr` one send request can take. Hardware counts 64-byte blocks of the queue, and
    /// ours, with 16 segments or 256 bytes inline, may take eight (rdma-core, `mlx5_calc_sq_size`).
    pub(crate) send_blocks: u32,
}

/// InfiniBand as specified.
const SPECIFIED: Quirks = Quirks {
    driver: "",
    separate_probes: false,
    silent_refusals: false,
    late_receives_stay: false,
    unsendable_is_local: false,
    fences_hang: false,
    acks_end_atomics: false,
    refused_reads_succeed: false,
    repeated_reads_need_keys: false,
    repeated_binds_hang: false,
    begun_receives_get_lost: false,
    last_receive_is_silent: false,
    send_blocks: 8,
};

/// Soft-RoCE, seen in Linux 6.1 and 6.12.
const RXE: Quirks = Quirks {
    driver: "rdma_rxe",
    separate_probes: true,
    silent_refusals: true,
    late_receives_stay: true,
    unsendable_is_local: true,
    fences_hang: true,
    acks_end_atomics: true,
    // In 6.12 no longer.
    refused_reads_succeed: true,
    repeated_reads_need_keys: true,
    repeated_binds_hang: true,
    begun_receives_get_lost: true,
    last_receive_is_silent: true,
    // Each request has a slot of the largest size, and `max_qp_wr` counts slots.
    send_blocks: 1,
};

/// `RXE_VENDOR_ID` of the kernel's rxe_param.h. Its name is the user's choice, and what sysfs has as its parent, if
/// anything, is the network device beneath.
const RXE_VENDOR: u32 = 0xff_ffff;

/// Soft-RoCE completes the receive of a shared queue that its queue pair had begun, until a commit of March 2023 made a new
/// function of the flush, which does nothing where receives are shared ("RDMA/rxe: Cleanup reset state handling in rxe_resp.c",
/// 49dc9c1f0c7e). By its date that is in Linux 6.4. Seen in 6.1 that it completes it; in 6.12 the suite's
/// `shared.in_the_middle` hangs. Kernels between were not tried; one of a distribution may have a driver newer than its number.
const RXE_FLUSHES_BEGUN_RECEIVES: RangeInclusive<KernelVersion> = (6, 1)..=(6, 3);

impl Quirks {
    /// Those of a device, by what it says itself.
    pub(crate) fn of(attributes: &DeviceAttributes, kernel: KernelVersion) -> Quirks {
        match attributes.vendor_id {
            RXE_VENDOR if RXE_FLUSHES_BEGUN_RECEIVES.contains(&kernel) => {
                Quirks { begun_receives_get_lost: false, ..RXE }
            }
            RXE_VENDOR => RXE,
            _ => SPECIFIED,
        }
    }

    /// Whether a device has shared receive queues of use here.
    pub(crate) fn shares_receives(self, device: &DeviceAttributes) -> bool {
        let counts = [device.max_srq, device.max_srq_wr, device.max_srq_sge];
        !self.begun_receives_get_lost && !counts.contains(&0)
    }

    /// What endpoints on a port may ask for: less than the device's own limits, by what the provider needs
    /// for itself.
    pub(crate) fn limits(self, device: &DeviceAttributes, port: &PortAttributes) -> Limits {
        let size = |n: u32| n as usize;
        let segments = size(device.max_sge).min(SEGMENTS);
        // An operation may take two requests: its own and one that makes it visible or probes.
        let mut limits = Limits::none();
        limits.message = u64::from(port.max_msg_sz).min(LONGEST as u64);
        limits.inject = INJECT;
        limits.send_segments = segments;
        limits.recv_segments = segments;
        // Room for completions of the provider's own, those of probes included if they come here.
        let share = if self.separate_probes { 2 } else { 3 };
        limits.cq_capacity = size((device.max_cqe / share).saturating_sub(64)).min(1 << 20);
        limits.completion_queues = size(device.max_cq).min(1 << 16);
        // No deeper than a completion queue has room for.
        let max = limits.cq_capacity.min(1 << 14);
        let depth = |requests: u32| size((requests / 2).saturating_sub(16)).min(max);
        limits.send_depth = depth(device.max_qp_wr / self.send_blocks);
        limits.recv_depth = depth(device.max_qp_wr);
        if self.shares_receives(device) {
            limits.shared_depth = depth(device.max_srq_wr);
            limits.recv_segments = segments.min(size(device.max_srq_sge));
        }
        let pairs = if self.separate_probes { 2 } else { 1 };
        limits.endpoints = size(device.max_qp / pairs).min(1 << 16);
        limits.regions = size(device.max_mr.saturating_sub(OWN_REGIONS));
        limits.region_len = device.max_mr_size.min(1 << 40);
        limits.backlog = 1 << 12; // counted by the library
        limits
    }
}

#[cfg(test)]
pub(crate) mod fake {
    //! What devices say of themselves.

    use super::*;
    use crate::handle::{PortState, Transport};

    /// Like a ConnectX-5.
    pub(crate) fn mlx5() -> DeviceAttributes {
        DeviceAttributes {
            firmware: "16.35.2000".to_owned(),
            transport: Transport::InfiniBand,
            vendor_id: 0x02c9,
            vendor_part_id: 4119,
            max_qp: 131_072,
            max_qp_wr: 32_768,
            max_sge: 30,
            max_sge_rd: 30,
            max_cq: 1 << 24,
            max_cqe: 4_194_303,
            max_mr: 1 << 24,
            max_mr_size: u64::MAX,
            max_srq: 8_388_608,
            max_srq_wr: 32_767,
            max_srq_sge: 31,
            max_qp_rd_atom: 16,
            max_qp_init_rd_atom: 16,
            atomics: true,
            atomics_global: false,
            ports: 1,
            windows: true,
        }
    }

    /// As Linux 6.1 answers.
    pub(crate) fn rxe() -> DeviceAttributes {
        DeviceAttributes {
            firmware: "0.0.0".to_owned(),
            transport: Transport::InfiniBand,
            vendor_id: RXE_VENDOR,
            vendor_part_id: 0,
            max_qp: 1_048_560,
            max_qp_wr: 1_048_576,
            max_sge: 32,
            max_sge_rd: 32,
            max_cq: 1_048_576,
            max_cqe: 32_767,
            max_mr: 524_287,
            max_mr_size: u64::MAX,
            max_srq: 917_503,
            max_srq_wr: 1_048_576,
            max_srq_sge: 27,
            max_qp_rd_atom: 128,
            max_qp_init_rd_atom: 128,
            atomics: true,
            atomics_global: false,
            ports: 1,
            windows: true,
        }
    }

    pub(crate) fn roce(state: PortState) -> PortAttributes {
        let max_msg_sz = 1 << 30;
        let gid_slots = (0..255).collect();
        PortAttributes { state, mtu: 1024, max_msg_sz, gid_slots, lid: 0, ethernet: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::PortState;
    use fake::{mlx5, roce, rxe};

    #[test]
    fn hardware_has_room_for_the_largest_requests() {
        let quirks = Quirks::of(&mlx5(), (6, 12));
        assert_eq!(quirks, SPECIFIED);
        let limits = quirks.limits(&mlx5(), &roce(PortState::Active));
        assert_eq!(limits.message, 1 << 30);
        assert_eq!((limits.send_segments, limits.recv_segments), (16, 16));
        assert_eq!(limits.shared_depth, 16_367);
        // Twice this many requests of eight blocks, and a few of the provider's own, fill the queue.
        assert_eq!((limits.send_depth, limits.recv_depth), (2032, 16_368));
        assert_eq!((limits.endpoints, limits.regions), (65_536, (1 << 24) - 64));
        assert_eq!((limits.cq_capacity, limits.region_len), (1 << 20, 1 << 40));
    }

    #[test]
    fn soft_roce_is_known_by_what_it_says() {
        let quirks = Quirks::of(&rxe(), (6, 12));
        assert_eq!(quirks, RXE);
        let port = PortAttributes { max_msg_sz: 8 << 20, ..roce(PortState::Active) };
        let limits = quirks.limits(&rxe(), &port);
        assert_eq!(limits.message, 8 << 20);
        assert_eq!((limits.send_depth, limits.recv_depth), (16_319, 16_319));
        assert_eq!((limits.cq_capacity, limits.endpoints), (16_319, 65_536));
        assert_eq!((limits.regions, limits.shared_depth), (524_223, 0));
        // Some of its kernels complete what a message has begun of a shared queue.
        let older = Quirks::of(&rxe(), (6, 1));
        assert!(older.shares_receives(&rxe()) && !quirks.shares_receives(&rxe()));
        assert_eq!(older.limits(&rxe(), &port).shared_depth, 16_319);
    }

    #[test]
    fn a_tiny_device_has_no_negative_limits() {
        let tiny = DeviceAttributes { max_qp_wr: 8, max_cqe: 1, max_mr: 0, max_sge: 1, ..mlx5() };
        let tiny = DeviceAttributes { max_srq: 0, ..tiny };
        let limits = SPECIFIED.limits(&tiny, &roce(PortState::Active));
        assert_eq!((limits.send_depth, limits.cq_capacity, limits.regions), (0, 0, 0));
        assert_eq!((limits.recv_segments, limits.shared_depth), (1, 0));
    }
}
