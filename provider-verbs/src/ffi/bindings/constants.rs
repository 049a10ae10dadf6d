//! The enumerations of `infiniband/verbs.h` and `rdma/rdma_cma.h`: modules of constants, sets of flags, and one that is an
//! enum, as `rdma-sys` has them.

use std::ffi::c_uint;

/// Gives all constants to a macro: one below defines them, and one of the tests compares them.
macro_rules! each_constant {
    ($then:ident) => {
        $then! {
            ibv_node_type: c_int {
                IBV_NODE_UNKNOWN = -1;
                IBV_NODE_CA = 1;
                IBV_NODE_SWITCH = 2;
                IBV_NODE_ROUTER = 3;
                IBV_NODE_RNIC = 4;
                IBV_NODE_USNIC = 5;
                IBV_NODE_USNIC_UDP = 6;
                IBV_NODE_UNSPECIFIED = 7;
            }
            ibv_transport_type: c_int {
                IBV_TRANSPORT_UNKNOWN = -1;
                IBV_TRANSPORT_IB = 0;
                IBV_TRANSPORT_IWARP = 1;
                IBV_TRANSPORT_USNIC = 2;
                IBV_TRANSPORT_USNIC_UDP = 3;
                IBV_TRANSPORT_UNSPECIFIED = 4;
            }
            ibv_atomic_cap: c_uint {
                IBV_ATOMIC_NONE = 0;
                IBV_ATOMIC_HCA = 1;
                IBV_ATOMIC_GLOB = 2;
            }
            ibv_mtu: c_uint {
                IBV_MTU_256 = 1;
                IBV_MTU_512 = 2;
                IBV_MTU_1024 = 3;
                IBV_MTU_2048 = 4;
                IBV_MTU_4096 = 5;
            }
            ibv_port_state: c_uint {
                IBV_PORT_NOP = 0;
                IBV_PORT_DOWN = 1;
                IBV_PORT_INIT = 2;
                IBV_PORT_ARMED = 3;
                IBV_PORT_ACTIVE = 4;
                IBV_PORT_ACTIVE_DEFER = 5;
            }
            ibv_wc_status: c_uint {
                IBV_WC_SUCCESS = 0;
                IBV_WC_LOC_LEN_ERR = 1;
                IBV_WC_LOC_QP_OP_ERR = 2;
                IBV_WC_LOC_EEC_OP_ERR = 3;
                IBV_WC_LOC_PROT_ERR = 4;
                IBV_WC_WR_FLUSH_ERR = 5;
                IBV_WC_MW_BIND_ERR = 6;
                IBV_WC_BAD_RESP_ERR = 7;
                IBV_WC_LOC_ACCESS_ERR = 8;
                IBV_WC_REM_INV_REQ_ERR = 9;
                IBV_WC_REM_ACCESS_ERR = 10;
                IBV_WC_REM_OP_ERR = 11;
                IBV_WC_RETRY_EXC_ERR = 12;
                IBV_WC_RNR_RETRY_EXC_ERR = 13;
                IBV_WC_LOC_RDD_VIOL_ERR = 14;
                IBV_WC_REM_INV_RD_REQ_ERR = 15;
                IBV_WC_REM_ABORT_ERR = 16;
                IBV_WC_INV_EECN_ERR = 17;
                IBV_WC_INV_EEC_STATE_ERR = 18;
                IBV_WC_FATAL_ERR = 19;
                IBV_WC_RESP_TIMEOUT_ERR = 20;
                IBV_WC_GENERAL_ERR = 21;
                IBV_WC_TM_ERR = 22;
                IBV_WC_TM_RNDV_INCOMPLETE = 23;
            }
            ibv_wc_opcode: c_uint {
                IBV_WC_SEND = 0;
                IBV_WC_RDMA_WRITE = 1;
                IBV_WC_RDMA_READ = 2;
                IBV_WC_COMP_SWAP = 3;
                IBV_WC_FETCH_ADD = 4;
                IBV_WC_BIND_MW = 5;
                IBV_WC_LOCAL_INV = 6;
                IBV_WC_TSO = 7;
                IBV_WC_RECV = 128;
                IBV_WC_RECV_RDMA_WITH_IMM = 129;
                IBV_WC_TM_ADD = 130;
                IBV_WC_TM_DEL = 131;
                IBV_WC_TM_SYNC = 132;
                IBV_WC_TM_RECV = 133;
                IBV_WC_TM_NO_TAG = 134;
                IBV_WC_DRIVER1 = 135;
                IBV_WC_DRIVER2 = 136;
                IBV_WC_DRIVER3 = 137;
            }
            ibv_qp_type: c_uint {
                IBV_QPT_RC = 2;
                IBV_QPT_UC = 3;
                IBV_QPT_UD = 4;
                IBV_QPT_RAW_PACKET = 8;
                IBV_QPT_XRC_SEND = 9;
                IBV_QPT_XRC_RECV = 10;
                IBV_QPT_DRIVER = 255;
            }
            ibv_qp_state: c_uint {
                IBV_QPS_RESET = 0;
                IBV_QPS_INIT = 1;
                IBV_QPS_RTR = 2;
                IBV_QPS_RTS = 3;
                IBV_QPS_SQD = 4;
                IBV_QPS_SQE = 5;
                IBV_QPS_ERR = 6;
                IBV_QPS_UNKNOWN = 7;
            }
            ibv_mig_state: c_uint {
                IBV_MIG_MIGRATED = 0;
                IBV_MIG_REARM = 1;
                IBV_MIG_ARMED = 2;
            }
            ibv_wr_opcode: c_uint {
                IBV_WR_RDMA_WRITE = 0;
                IBV_WR_RDMA_WRITE_WITH_IMM = 1;
                IBV_WR_SEND = 2;
                IBV_WR_SEND_WITH_IMM = 3;
                IBV_WR_RDMA_READ = 4;
                IBV_WR_ATOMIC_CMP_AND_SWP = 5;
                IBV_WR_ATOMIC_FETCH_AND_ADD = 6;
                IBV_WR_LOCAL_INV = 7;
                IBV_WR_BIND_MW = 8;
                IBV_WR_SEND_WITH_INV = 9;
                IBV_WR_TSO = 10;
                IBV_WR_DRIVER1 = 11;
            }
            rdma_cm_event_type: c_uint {
                RDMA_CM_EVENT_ADDR_RESOLVED = 0;
                RDMA_CM_EVENT_ADDR_ERROR = 1;
                RDMA_CM_EVENT_ROUTE_RESOLVED = 2;
                RDMA_CM_EVENT_ROUTE_ERROR = 3;
                RDMA_CM_EVENT_CONNECT_REQUEST = 4;
                RDMA_CM_EVENT_CONNECT_RESPONSE = 5;
                RDMA_CM_EVENT_CONNECT_ERROR = 6;
                RDMA_CM_EVENT_UNREACHABLE = 7;
                RDMA_CM_EVENT_REJECTED = 8;
                RDMA_CM_EVENT_ESTABLISHED = 9;
                RDMA_CM_EVENT_DISCONNECTED = 10;
                RDMA_CM_EVENT_DEVICE_REMOVAL = 11;
                RDMA_CM_EVENT_MULTICAST_JOIN = 12;
                RDMA_CM_EVENT_MULTICAST_ERROR = 13;
                RDMA_CM_EVENT_ADDR_CHANGE = 14;
                RDMA_CM_EVENT_TIMEWAIT_EXIT = 15;
            }
            rdma_port_space: c_uint {
                RDMA_PS_IPOIB = 2;
                RDMA_PS_TCP = 262;
                RDMA_PS_UDP = 273;
                RDMA_PS_IB = 319;
            }
        }
    };
}

/// As [`each_constant`], for flags, which are joined with `|`.
macro_rules! each_flag {
    ($then:ident) => {
        $then! {
            ibv_wc_flags {
                IBV_WC_GRH = 1 << 0;
                IBV_WC_WITH_IMM = 1 << 1;
                IBV_WC_IP_CSUM_OK = 1 << 2;
                IBV_WC_WITH_INV = 1 << 3;
                IBV_WC_TM_SYNC_REQ = 1 << 4;
                IBV_WC_TM_MATCH = 1 << 5;
                IBV_WC_TM_DATA_VALID = 1 << 6;
            }
            ibv_access_flags {
                IBV_ACCESS_LOCAL_WRITE = 1 << 0;
                IBV_ACCESS_REMOTE_WRITE = 1 << 1;
                IBV_ACCESS_REMOTE_READ = 1 << 2;
                IBV_ACCESS_REMOTE_ATOMIC = 1 << 3;
                IBV_ACCESS_MW_BIND = 1 << 4;
                IBV_ACCESS_ZERO_BASED = 1 << 5;
                IBV_ACCESS_ON_DEMAND = 1 << 6;
                IBV_ACCESS_HUGETLB = 1 << 7;
                IBV_ACCESS_RELAXED_ORDERING = 1 << 20;
            }
            ibv_qp_attr_mask {
                IBV_QP_STATE = 1 << 0;
                IBV_QP_CUR_STATE = 1 << 1;
                IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2;
                IBV_QP_ACCESS_FLAGS = 1 << 3;
                IBV_QP_PKEY_INDEX = 1 << 4;
                IBV_QP_PORT = 1 << 5;
                IBV_QP_QKEY = 1 << 6;
                IBV_QP_AV = 1 << 7;
                IBV_QP_PATH_MTU = 1 << 8;
                IBV_QP_TIMEOUT = 1 << 9;
                IBV_QP_RETRY_CNT = 1 << 10;
                IBV_QP_RNR_RETRY = 1 << 11;
                IBV_QP_RQ_PSN = 1 << 12;
                IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13;
                IBV_QP_ALT_PATH = 1 << 14;
                IBV_QP_MIN_RNR_TIMER = 1 << 15;
                IBV_QP_SQ_PSN = 1 << 16;
                IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17;
                IBV_QP_PATH_MIG_STATE = 1 << 18;
                IBV_QP_CAP = 1 << 19;
                IBV_QP_DEST_QPN = 1 << 20;
                IBV_QP_RATE_LIMIT = 1 << 25;
            }
            ibv_send_flags {
                IBV_SEND_FENCE = 1 << 0;
                IBV_SEND_SIGNALED = 1 << 1;
                IBV_SEND_SOLICITED = 1 << 2;
                IBV_SEND_INLINE = 1 << 3;
                IBV_SEND_IP_CSUM = 1 << 4;
            }
        }
    };
}

/// An enumeration of C's may have values that are not known here, so it is a number.
macro_rules! define_constants {
    ($($name:ident: $type:ident { $($constant:ident = $value:expr;)* })*) => {$(
        pub mod $name {
            pub type Type = std::ffi::$type;
            $(pub const $constant: Type = $value;)*
        }
    )*};
}

macro_rules! define_flags {
    ($($name:ident { $($flag:ident = $value:expr;)* })*) => {$(
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name(pub c_uint);

        impl $name {
            $(pub const $flag: Self = Self($value);)*
        }

        impl std::ops::BitOr for $name {
            type Output = Self;

            #[inline]
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl std::ops::BitOrAssign for $name {
            #[inline]
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }
    )*};
}

each_constant!(define_constants);
each_flag!(define_flags);

#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ibv_event_type {
    IBV_EVENT_CQ_ERR = 0,
    IBV_EVENT_QP_FATAL = 1,
    IBV_EVENT_QP_REQ_ERR = 2,
    IBV_EVENT_QP_ACCESS_ERR = 3,
    IBV_EVENT_COMM_EST = 4,
    IBV_EVENT_SQ_DRAINED = 5,
    IBV_EVENT_PATH_MIG = 6,
    IBV_EVENT_PATH_MIG_ERR = 7,
    IBV_EVENT_DEVICE_FATAL = 8,
    IBV_EVENT_PORT_ACTIVE = 9,
    IBV_EVENT_PORT_ERR = 10,
    IBV_EVENT_LID_CHANGE = 11,
    IBV_EVENT_PKEY_CHANGE = 12,
    IBV_EVENT_SM_CHANGE = 13,
    IBV_EVENT_SRQ_ERR = 14,
    IBV_EVENT_SRQ_LIMIT_REACHED = 15,
    IBV_EVENT_QP_LAST_WQE_REACHED = 16,
    IBV_EVENT_CLIENT_REREGISTER = 17,
    IBV_EVENT_GID_CHANGE = 18,
    IBV_EVENT_WQ_FATAL = 19,
}
