//! Verbs, and calls of librdmacm, that fail, each in turn, and events that report failures.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_int, c_uint, c_void, size_t, sockaddr};

use crate::bindings::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_mr, ibv_pd, ibv_qp,
    ibv_qp_attr, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_srq, ibv_srq_init_attr,
    rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_conn_param, rdma_event_channel,
};
use crate::faults::{interposed, strikes, sweep};
use crate::rig::open_builtin;

const NONE: c_int = -1;

interposed! {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device => std::ptr::null_mut(), libc::ENOMEM;
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context => std::ptr::null_mut(), libc::ENOMEM => hook;
    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int => libc::EIO, 0;
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd => std::ptr::null_mut(), libc::ENOMEM;
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel => std::ptr::null_mut(), libc::EMFILE;
    fn ibv_create_cq(context: *mut ibv_context, entries: c_int, name: *mut c_void, channel: *mut ibv_comp_channel, vector: c_int)
        -> *mut ibv_cq => std::ptr::null_mut(), libc::ENOMEM;
    fn ibv_reg_mr_iova2(pd: *mut ibv_pd, addr: *mut c_void, len: size_t, iova: u64, access: c_uint)
        -> *mut ibv_mr => std::ptr::null_mut(), libc::ENOMEM;
    fn ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq => std::ptr::null_mut(), libc::ENOMEM;
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int => libc::EBUSY, 0;
    fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp => std::ptr::null_mut(), libc::ENOMEM;
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int => libc::EINVAL, 0;
    fn ibv_query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init: *mut ibv_qp_init_attr) -> c_int => libc::EIO, 0;
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int => libc::EIO, 0;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int => libc::EIO, 0;
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int => libc::EIO, 0, after;
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int => libc::EIO, 0, after;
    fn ibv_close_device(context: *mut ibv_context) -> c_int => NONE, libc::EIO, after;
    fn rdma_create_event_channel() -> *mut rdma_event_channel => std::ptr::null_mut(), libc::ENODEV;
    fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int => NONE, libc::EAGAIN => may_be_odd;
    fn rdma_create_id(channel: *mut rdma_event_channel, id: *mut *mut rdma_cm_id, context: *mut c_void, space: c_uint)
        -> c_int => NONE, libc::ENOMEM;
    fn rdma_set_option(id: *mut rdma_cm_id, level: c_int, name: c_int, value: *mut c_void, len: size_t) -> c_int => NONE, libc::ENOSYS;
    fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int => NONE, libc::EADDRNOTAVAIL;
    fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int => NONE, libc::EADDRINUSE;
    fn rdma_resolve_addr(id: *mut rdma_cm_id, from: *mut sockaddr, to: *mut sockaddr, timeout: c_int) -> c_int => NONE, libc::ENETUNREACH;
    fn rdma_resolve_route(id: *mut rdma_cm_id, timeout: c_int) -> c_int => NONE, libc::EINVAL;
    fn rdma_init_qp_attr(id: *mut rdma_cm_id, attr: *mut ibv_qp_attr, mask: *mut c_int) -> c_int => NONE, libc::EINVAL;
    fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int => NONE, libc::ENOMEM;
    fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int => NONE, libc::ENOMEM;
    fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int => NONE, libc::ENOMEM;
    fn rdma_establish(id: *mut rdma_cm_id) -> c_int => NONE, libc::EINVAL;
    fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int => NONE, libc::EINVAL;
    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int => NONE, libc::EIO, after;
}

/// What a context is given in place of its own: libibverbs calls these through it, so there is nothing to interpose.
macro_rules! operations {
    ($($field:ident: $own:ident, $name:literal, ($($arg:ident: $type:ty),*), $fails:expr;)*) => {
        $(static $own: OnceLock<unsafe extern "C" fn($($type),*) -> c_int> = OnceLock::new();)*

        /// # Safety
        /// A context that is not used yet, or none.
        unsafe fn hook(context: *mut ibv_context, _: (*mut ibv_device,)) {
            // SAFETY: this function's own promise.
            let Some(context) = (unsafe { context.as_mut() }) else { return };
            $(
                unsafe extern "C" fn $field($($arg: $type),*) -> c_int {
                    if strikes($name) {
                        return $fails;
                    }
                    // SAFETY: the driver's own; the caller's promise.
                    unsafe { $own.get().unwrap()($($arg),*) }
                }
                if let Some(own) = context.ops.$field.replace($field) {
                    $own.get_or_init(|| own);
                }
            )*
        }
    };
}

operations! {
    post_send: POST_SEND, "ibv_post_send", (qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr), {
        // SAFETY: the caller's, to be written.
        unsafe { *bad = wr };
        libc::ENOMEM
    };
    post_recv: POST_RECV, "ibv_post_recv", (qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr), {
        // SAFETY: as above.
        unsafe { *bad = wr };
        libc::ENOMEM
    };
    post_srq_recv: POST_SRQ_RECV, "ibv_post_srq_recv", (srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr), {
        // SAFETY: as above.
        unsafe { *bad = wr };
        libc::ENOMEM
    };
    req_notify_cq: REQ_NOTIFY_CQ, "ibv_req_notify_cq", (cq: *mut ibv_cq, only: c_int), libc::EIO;
}

/// An event that could as well be another one: its name, its kind, and what becomes of it.
type Odd = (&'static str, rdma_cm_event_type::Type, fn(&mut rdma_cm_event));

/// What the connection manager, or the peer, may say instead of what it says.
const ODD: [Odd; 8] = {
    use rdma_cm_event_type::*;
    [
        ("no address", RDMA_CM_EVENT_ADDR_RESOLVED, |event| {
            (event.event, event.status) = (RDMA_CM_EVENT_ADDR_ERROR, -libc::EHOSTUNREACH);
        }),
        ("no route", RDMA_CM_EVENT_ROUTE_RESOLVED, |event| {
            (event.event, event.status) = (RDMA_CM_EVENT_ROUTE_ERROR, -libc::ETIMEDOUT);
        }),
        ("request without a greeting", RDMA_CM_EVENT_CONNECT_REQUEST, without_greeting),
        ("answer without a greeting", RDMA_CM_EVENT_CONNECT_RESPONSE, without_greeting),
        ("no answer", RDMA_CM_EVENT_CONNECT_RESPONSE, |event| {
            (event.event, event.status) = (RDMA_CM_EVENT_UNREACHABLE, -libc::ETIMEDOUT);
        }),
        ("an error behind the answer", RDMA_CM_EVENT_ESTABLISHED, |event| {
            (event.event, event.status) = (RDMA_CM_EVENT_CONNECT_ERROR, -libc::EIO);
        }),
        ("the end behind the answer", RDMA_CM_EVENT_ESTABLISHED, |event| {
            event.event = RDMA_CM_EVENT_DISCONNECTED;
        }),
        ("rejected by no program", RDMA_CM_EVENT_REJECTED, |event| event.status = 4),
    ]
};

fn without_greeting(event: &mut rdma_cm_event) {
    event.param.conn.private_data_len = 3;
}

/// Whether confirmations get lost on their way to the accepting side.
pub(crate) static UNCONFIRMED: AtomicBool = AtomicBool::new(false);

/// # Safety
/// If an event was got it is the caller's, until it acknowledges it.
unsafe fn may_be_odd(got: c_int, (_, event): (*mut rdma_event_channel, *mut *mut rdma_cm_event)) {
    if got != 0 {
        return;
    }
    // SAFETY: this function's own promise.
    let event = unsafe { &mut **event };
    let kind = event.event;
    if kind == rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED && UNCONFIRMED.load(Ordering::SeqCst) {
        // Of no meaning to a connection.
        event.event = rdma_cm_event_type::RDMA_CM_EVENT_ADDR_CHANGE;
        return;
    }
    for (_, _, change) in ODD.iter().filter(|odd| odd.1 == kind && strikes(odd.0)) {
        change(event);
    }
}

/// More calls of `ibv_modify_qp` than are made in a second.
pub(crate) fn every_modify() -> Vec<(&'static str, usize)> {
    (0..1000).map(|at| ("ibv_modify_qp", at)).collect()
}

pub(crate) fn may_fail() {
    let after = [
        "ibv_dereg_mr",
        "ibv_destroy_qp",
        "ibv_destroy_cq",
        "ibv_dealloc_pd",
        "ibv_close_device",
        "rdma_destroy_id",
    ];
    let quiet = [&after[..], &["ibv_destroy_srq", "rdma_get_cm_event"]].concat();
    sweep(open_builtin, &quiet, &["ibv_destroy_qp", "ibv_destroy_srq"]);
}
