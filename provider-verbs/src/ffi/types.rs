//! Types and constants of the headers, and those that the bindings lack.

#[cfg(not(feature = "rdma-sys"))]
use super::bindings as source;
#[cfg(feature = "rdma-sys")]
use rdma_sys as source;

pub(crate) use source::{
    _compat_ibv_port_attr, ibv_access_flags, ibv_ah, ibv_ah_attr, ibv_async_event, ibv_atomic_cap,
    ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_event_type, ibv_mr,
    ibv_pd, ibv_port_attr, ibv_port_state, ibv_qp, ibv_qp_attr, ibv_qp_attr_mask, ibv_qp_init_attr,
    ibv_qp_state, ibv_qp_type, ibv_recv_wr, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_srq,
    ibv_srq_init_attr, ibv_transport_type, ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status,
    ibv_wr_opcode, rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_conn_param,
    rdma_event_channel, rdma_port_space,
};

/// `IBV_DEVICE_MEM_WINDOW_TYPE_2B`, `infiniband/verbs.h`.
pub(crate) const DEVICE_MEM_WINDOW_TYPE_2B: u32 = 1 << 24;
/// `IBV_MW_TYPE_2`, `infiniband/verbs.h`.
pub(crate) const MW_TYPE_2: u32 = 2;

/// The front of `ibv_mw`, `infiniband/verbs.h`.
#[repr(C)]
pub(crate) struct MemoryWindow {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) rkey: u32,
}

/// `ibv_gid_entry`, `infiniband/verbs.h` of rdma-core 33 and newer.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct GidEntry {
    gid: [u64; 2],
    pub(crate) gid_index: u32,
    pub(crate) port_num: u32,
    gid_type: u32,
    ndev_ifindex: u32,
}

/// `RDMA_OPTION_ID`, `rdma/rdma_cma.h`.
pub(crate) const RDMA_OPTION_ID: i32 = 0;
/// `RDMA_OPTION_ID_TOS`, `rdma/rdma_cma.h`.
pub(crate) const RDMA_OPTION_ID_TOS: i32 = 0;
/// `RDMA_OPTION_ID_REUSEADDR`, `rdma/rdma_cma.h`.
pub(crate) const RDMA_OPTION_ID_REUSEADDR: i32 = 1;
/// `RDMA_OPTION_ID_AFONLY`, `rdma/rdma_cma.h`.
pub(crate) const RDMA_OPTION_ID_AFONLY: i32 = 2;
/// `IBV_LINK_LAYER_ETHERNET`, `infiniband/verbs.h`.
pub(crate) const LINK_LAYER_ETHERNET: u8 = 2;
/// `IB_CM_REJ_INVALID_SERVICE_ID`, `rdma/ib_cm.h`: there is no listener.
pub(crate) const REJ_INVALID_SERVICE_ID: i32 = 8;
/// `IB_CM_REJ_STALE_CONN`: the peer still remembers an earlier connection of this queue pair number.
pub(crate) const REJ_STALE_CONN: i32 = 10;
/// `IB_CM_REJ_CONSUMER_DEFINED`: the peer's application.
pub(crate) const REJ_CONSUMER_DEFINED: i32 = 28;
