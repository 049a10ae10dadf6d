//! Constants: flags, classes, commands and numbers of errors (`fabric.h`, `fi_eq.h`, `fi_errno.h`).

use std::ffi::c_int;

// What an operation is, what it may do, and what was done.
pub(crate) const FI_MSG: u64 = 1 << 1;
pub(crate) const FI_RMA: u64 = 1 << 2;
pub(crate) const FI_TAGGED: u64 = 1 << 3;
pub(crate) const FI_ATOMIC: u64 = 1 << 4;
pub(crate) const FI_READ: u64 = 1 << 8;
pub(crate) const FI_WRITE: u64 = 1 << 9;
pub(crate) const FI_RECV: u64 = 1 << 10;
pub(crate) const FI_SEND: u64 = 1 << 11;
pub(crate) const FI_REMOTE_READ: u64 = 1 << 12;
pub(crate) const FI_REMOTE_WRITE: u64 = 1 << 13;
pub(crate) const FI_MULTI_RECV: u64 = 1 << 16;
pub(crate) const FI_REMOTE_CQ_DATA: u64 = 1 << 17;
pub(crate) const FI_MORE: u64 = 1 << 18;
pub(crate) const FI_PEEK: u64 = 1 << 19;
pub(crate) const FI_FENCE: u64 = 1 << 21;
pub(crate) const FI_COMPLETION: u64 = 1 << 24;
pub(crate) const FI_INJECT: u64 = 1 << 25;
pub(crate) const FI_INJECT_COMPLETE: u64 = 1 << 26;
pub(crate) const FI_TRANSMIT_COMPLETE: u64 = 1 << 27;
pub(crate) const FI_DELIVERY_COMPLETE: u64 = 1 << 28;
pub(crate) const FI_AFFINITY: u64 = 1 << 29;
pub(crate) const FI_MATCH_COMPLETE: u64 = 1 << 31;
/// Of libfabric 2.2 and newer.
pub(crate) const FI_RESCAN: u64 = 1 << 35;
pub(crate) const FI_LOCAL_COMM: u64 = 1 << 51;
pub(crate) const FI_REMOTE_COMM: u64 = 1 << 52;
pub(crate) const FI_PROV_ATTR_ONLY: u64 = 1 << 54;
pub(crate) const FI_NUMERICHOST: u64 = 1 << 55;
pub(crate) const FI_SOURCE: u64 = 1 << 57;
pub(crate) const FI_SELECTIVE_COMPLETION: u64 = 1 << 59;
// The same bits mean something else as capabilities, in receives, in atomics, and in inserts into address vectors.
pub(crate) const FI_DIRECTED_RECV: u64 = 1 << 59;
pub(crate) const FI_DISCARD: u64 = 1 << 58;
pub(crate) const FI_CLAIM: u64 = 1 << 59;
pub(crate) const FI_FETCH_ATOMIC: u64 = 1 << 58;
pub(crate) const FI_COMPARE_ATOMIC: u64 = 1 << 59;
pub(crate) const FI_SYNC_ERR: u64 = 1 << 58;
pub(crate) const FI_SYMMETRIC: u64 = 1 << 59;

// Modes: what an application has to do.
pub(crate) const FI_RX_CQ_DATA: u64 = 1 << 56;
pub(crate) const FI_LOCAL_MR: u64 = 1 << 55;

// How registered memory is named.
pub(crate) const FI_MR_BASIC: c_int = 1;
pub(crate) const FI_MR_SCALABLE: c_int = 1 << 1;
pub(crate) const FI_MR_LOCAL: c_int = 1 << 2;
pub(crate) const FI_MR_VIRT_ADDR: c_int = 1 << 4;
pub(crate) const FI_MR_ALLOCATED: c_int = 1 << 5;
pub(crate) const FI_MR_PROV_KEY: c_int = 1 << 6;

// Orders between operations: the second letter is what comes first.
pub(crate) const FI_ORDER_RAR: u64 = 1;
pub(crate) const FI_ORDER_RAW: u64 = 1 << 1;
pub(crate) const FI_ORDER_RAS: u64 = 1 << 2;
pub(crate) const FI_ORDER_WAR: u64 = 1 << 3;
pub(crate) const FI_ORDER_WAW: u64 = 1 << 4;
pub(crate) const FI_ORDER_WAS: u64 = 1 << 5;
pub(crate) const FI_ORDER_SAW: u64 = 1 << 7;
pub(crate) const FI_ORDER_SAS: u64 = 1 << 8;
pub(crate) const FI_ORDER_STRICT: u64 = 0x1ff;
pub(crate) const FI_ORDER_RMA_RAR: u64 = 1 << 32;
pub(crate) const FI_ORDER_RMA_RAW: u64 = 1 << 33;
pub(crate) const FI_ORDER_RMA_WAR: u64 = 1 << 34;
pub(crate) const FI_ORDER_RMA_WAW: u64 = 1 << 35;
pub(crate) const FI_ORDER_ATOMIC_RAR: u64 = 1 << 36;
pub(crate) const FI_ORDER_ATOMIC_RAW: u64 = 1 << 37;
pub(crate) const FI_ORDER_ATOMIC_WAR: u64 = 1 << 38;
pub(crate) const FI_ORDER_ATOMIC_WAW: u64 = 1 << 39;

pub(crate) const FI_EP_UNSPEC: c_int = 0;
pub(crate) const FI_EP_MSG: c_int = 1;
pub(crate) const FI_EP_RDM: c_int = 3;

pub(crate) const FI_FORMAT_UNSPEC: u32 = 0;
pub(crate) const FI_SOCKADDR: u32 = 1;
pub(crate) const FI_SOCKADDR_IN: u32 = 2;
pub(crate) const FI_SOCKADDR_IN6: u32 = 3;

pub(crate) const FI_THREAD_UNSPEC: c_int = 0;
pub(crate) const FI_THREAD_SAFE: c_int = 1;
pub(crate) const FI_THREAD_ENDPOINT: c_int = 5;
pub(crate) const FI_PROGRESS_UNSPEC: c_int = 0;
pub(crate) const FI_PROGRESS_AUTO: c_int = 1;
pub(crate) const FI_RM_ENABLED: c_int = 2;
pub(crate) const FI_AV_UNSPEC: c_int = 0;
pub(crate) const FI_AV_MAP: c_int = 1;
pub(crate) const FI_AV_TABLE: c_int = 2;

/// No peer, or any (also `FI_ADDR_NOTAVAIL`).
pub(crate) const FI_ADDR_UNSPEC: u64 = u64::MAX;
/// The contexts of an endpoint that has shared ones.
pub(crate) const FI_SHARED_CONTEXT: usize = usize::MAX;
/// Tags whose bits mean nothing to a provider.
pub(crate) const FI_TAG_GENERIC: u64 = 0xaaaa_aaaa_aaaa_aaaa;

/// Of flags those that mean what a provider wants them to (`fabric.h`: bits 60 to 63).
pub(crate) const FI_PROV_FLAGS: u64 = 0xf << 60;
/// Of protocols and other numbers that are a provider's own.
pub(crate) const FI_PROV_SPECIFIC: u32 = 1 << 31;

// What a handle is.
pub(crate) const FI_CLASS_FABRIC: usize = 1;
pub(crate) const FI_CLASS_DOMAIN: usize = 2;
pub(crate) const FI_CLASS_EP: usize = 3;
pub(crate) const FI_CLASS_SRX_CTX: usize = 6;
pub(crate) const FI_CLASS_STX_CTX: usize = 8;
pub(crate) const FI_CLASS_PEP: usize = 9;
pub(crate) const FI_CLASS_AV: usize = 11;
pub(crate) const FI_CLASS_MR: usize = 12;
pub(crate) const FI_CLASS_EQ: usize = 13;
pub(crate) const FI_CLASS_CQ: usize = 14;
pub(crate) const FI_CLASS_CNTR: usize = 15;
pub(crate) const FI_CLASS_CONNREQ: usize = 18;

// Commands of `fi_control`.
pub(crate) const FI_GETOPSFLAG: c_int = 2;
pub(crate) const FI_SETOPSFLAG: c_int = 3;
pub(crate) const FI_GETWAIT: c_int = 5;
pub(crate) const FI_ENABLE: c_int = 6;
pub(crate) const FI_BACKLOG: c_int = 7;
pub(crate) const FI_GETWAITOBJ: c_int = 16;

// Options of endpoints.
pub(crate) const FI_OPT_ENDPOINT: c_int = 0;
pub(crate) const FI_OPT_MIN_MULTI_RECV: c_int = 0;
pub(crate) const FI_OPT_CM_DATA_SIZE: c_int = 1;

// Wait objects.
pub(crate) const FI_WAIT_NONE: c_int = 0;
pub(crate) const FI_WAIT_UNSPEC: c_int = 1;
pub(crate) const FI_WAIT_FD: c_int = 3;
pub(crate) const FI_WAIT_YIELD: c_int = 5;

// Events.
pub(crate) const FI_CONNREQ: u32 = 1;
pub(crate) const FI_CONNECTED: u32 = 2;
pub(crate) const FI_SHUTDOWN: u32 = 3;

// Formats of completions.
pub(crate) const FI_CQ_FORMAT_UNSPEC: c_int = 0;
pub(crate) const FI_CQ_FORMAT_CONTEXT: c_int = 1;
pub(crate) const FI_CQ_FORMAT_MSG: c_int = 2;
pub(crate) const FI_CQ_FORMAT_DATA: c_int = 3;
pub(crate) const FI_CQ_FORMAT_TAGGED: c_int = 4;

pub(crate) const FI_CQ_COND_NONE: c_int = 0;
pub(crate) const FI_CQ_COND_THRESHOLD: c_int = 1;

pub(crate) const FI_CNTR_EVENTS_COMP: c_int = 0;

// Levels of the log, and the subsystem of its lines (`providers/fi_log.h`).
pub(crate) const FI_LOG_WARN: c_int = 0;
pub(crate) const FI_LOG_INFO: c_int = 2;
pub(crate) const FI_LOG_DEBUG: c_int = 3;
pub(crate) const FI_LOG_CORE: c_int = 0;

// Errors beyond those of the system.
pub(crate) const FI_EOTHER: c_int = 256;
pub(crate) const FI_ETOOSMALL: c_int = 257;
pub(crate) const FI_EOPBADSTATE: c_int = 258;
pub(crate) const FI_EAVAIL: c_int = 259;
pub(crate) const FI_EBADFLAGS: c_int = 260;
pub(crate) const FI_ENOEQ: c_int = 261;
pub(crate) const FI_EDOMAIN: c_int = 262;
pub(crate) const FI_ENOCQ: c_int = 263;
pub(crate) const FI_ETRUNC: c_int = 265;
pub(crate) const FI_ENOAV: c_int = 267;

/// A version as libfabric writes it.
pub(crate) const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

/// What an atomic operation does (`enum fi_op`).
pub(crate) mod op {
    use std::ffi::c_int;

    pub(crate) const FI_MIN: c_int = 0;
    pub(crate) const FI_MAX: c_int = 1;
    pub(crate) const FI_SUM: c_int = 2;
    pub(crate) const FI_BOR: c_int = 6;
    pub(crate) const FI_BAND: c_int = 7;
    pub(crate) const FI_BXOR: c_int = 9;
    pub(crate) const FI_ATOMIC_READ: c_int = 10;
    pub(crate) const FI_ATOMIC_WRITE: c_int = 11;
    pub(crate) const FI_CSWAP: c_int = 12;
}

/// What it is done to (`enum fi_datatype`).
pub(crate) mod datatype {
    use std::ffi::c_int;

    pub(crate) const FI_INT8: c_int = 0;
    pub(crate) const FI_UINT8: c_int = 1;
    pub(crate) const FI_INT16: c_int = 2;
    pub(crate) const FI_UINT16: c_int = 3;
    pub(crate) const FI_INT32: c_int = 4;
    pub(crate) const FI_UINT32: c_int = 5;
    pub(crate) const FI_INT64: c_int = 6;
    pub(crate) const FI_UINT64: c_int = 7;
    pub(crate) const FI_FLOAT: c_int = 8;
    pub(crate) const FI_DOUBLE: c_int = 9;
}
