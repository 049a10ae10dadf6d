//! The functions of libibverbs and librdmacm, under their names, and those that their headers define inline.
//!
//! [`load`] finds them, or says why it cannot; it comes first. Before that each returns a failure, with `ENOSYS` in
//! `errno`. Posts and polls do not come by here: the headers' inline functions call the driver through the context, as they
//! do in C.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::io;
use std::ptr;
use std::sync::OnceLock;

use libc::sockaddr;
use libloading::os::unix::Library;

#[cfg(not(feature = "rdma-sys"))]
use super::library::Libraries;
use super::types::*;

/// Declares functions: a table of them, and for each a function of its name that calls the table's.
macro_rules! functions {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $returned:ty)?;)*) => {
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) $(-> $returned)?,)*
        }

        impl Functions {
            #[cfg(not(feature = "rdma-sys"))]
            fn find() -> Result<Self, String> {
                let libraries = Libraries::open()?;
                Ok(Functions {$(
                    $name: {
                        let found = libraries.function(stringify!($name))?;
                        // SAFETY: the function has this type (the bindings' test compares them), and its library stays
                        // loaded.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($type),*) $(-> $returned)?,
                            >(found)
                        }
                    },
                )*})
            }

            /// Linked, by the crate's build script; the compiler compares their types.
            #[cfg(feature = "rdma-sys")]
            fn find() -> Result<Self, String> {
                Ok(Functions { $($name: rdma_sys::$name,)* })
            }
        }

        $(
            /// # Safety
            /// As its man page demands.
            pub(crate) unsafe fn $name($($arg: $type),*) $(-> $returned)? {
                match TABLE.get() {
                    // SAFETY: the caller's promise.
                    Some(table) => unsafe { (table.$name)($($arg),*) },
                    None => Absent::absent(),
                }
            }
        )*
    };
}

functions! {
    fn ibv_fork_init() -> c_int;
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char;
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    fn ibv_close_device(context: *mut ibv_context) -> c_int;
    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut _compat_ibv_port_attr) -> c_int;
    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
    fn ibv_ack_async_event(event: *mut ibv_async_event);
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    fn ibv_reg_mr_iova2(pd: *mut ibv_pd, addr: *mut c_void, len: usize, iova: u64, access: c_uint) -> *mut ibv_mr;
    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    fn ibv_create_cq(
        context: *mut ibv_context,
        entries: c_int,
        name: *mut c_void,
        channel: *mut ibv_comp_channel,
        vector: c_int
    ) -> *mut ibv_cq;
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    fn ibv_get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, name: *mut *mut c_void) -> c_int;
    fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint);
    fn ibv_create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    fn ibv_destroy_ah(ah: *mut ibv_ah) -> c_int;
    fn ibv_create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    fn ibv_create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    fn ibv_query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int, init: *mut ibv_qp_init_attr) -> c_int;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;

    fn rdma_create_event_channel() -> *mut rdma_event_channel;
    fn rdma_destroy_event_channel(channel: *mut rdma_event_channel);
    fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int;
    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
    fn rdma_create_id(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut c_void,
        space: rdma_port_space::Type
    ) -> c_int;
    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
    fn rdma_set_option(id: *mut rdma_cm_id, level: c_int, name: c_int, value: *mut c_void, len: usize) -> c_int;
    fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
    fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
    fn rdma_resolve_addr(id: *mut rdma_cm_id, from: *mut sockaddr, to: *mut sockaddr, timeout_ms: c_int) -> c_int;
    fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
    fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    fn rdma_reject(id: *mut rdma_cm_id, data: *const c_void, len: u8) -> c_int;
    fn rdma_establish(id: *mut rdma_cm_id) -> c_int;
    fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int;
    fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
    fn rdma_init_qp_attr(id: *mut rdma_cm_id, attr: *mut ibv_qp_attr, mask: *mut c_int) -> c_int;
    fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16;
    fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16;
}

type QueryGidTable =
    unsafe extern "C" fn(*mut ibv_context, *mut GidEntry, usize, u32, usize) -> isize;

/// What is in the GID tables of a device; `None` if that is more than `room` entries, or the library older than the function
/// (ibv_query_gid_table(3)).
///
/// # Safety
/// A context that is open.
pub(crate) unsafe fn gid_table(context: *mut ibv_context, room: usize) -> Option<Vec<GidEntry>> {
    // SAFETY: the function has this type, and the library it is in stays loaded.
    let query = unsafe { Library::this().get::<QueryGidTable>(b"_ibv_query_gid_table\0") }.ok()?;
    let mut entries = vec![GidEntry::default(); room];
    // SAFETY: the caller's promise; no more than `room` entries of that size are written.
    let len = unsafe { query(context, entries.as_mut_ptr(), room, 0, size_of::<GidEntry>()) };
    entries.truncate(usize::try_from(len).ok()?);
    Some(entries)
}

static TABLE: OnceLock<Functions> = OnceLock::new();

/// Loads the libraries, if they are not yet; or says why they cannot be used. A later try may do better, when there are
/// descriptors again.
pub(crate) fn load() -> io::Result<()> {
    if TABLE.get().is_none() {
        let found = Functions::find();
        let found = found.map_err(|reason| io::Error::new(io::ErrorKind::NotFound, reason))?;
        let _ = TABLE.set(found); // another thread's are the same
    }
    Ok(())
}

/// What a function returns that is not there.
trait Absent {
    fn absent() -> Self;
}

fn no_such_function() {
    // SAFETY: a place of this thread's own.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
}

impl Absent for () {
    fn absent() {}
}

impl Absent for c_int {
    fn absent() -> Self {
        no_such_function();
        -1
    }
}

impl Absent for u16 {
    fn absent() -> Self {
        0
    }
}

impl<T> Absent for *mut T {
    fn absent() -> Self {
        no_such_function();
        ptr::null_mut()
    }
}

impl<T> Absent for *const T {
    fn absent() -> Self {
        no_such_function();
        ptr::null()
    }
}

/// # Safety
/// As ibv_post_send(3) demands.
#[inline]
pub(crate) unsafe fn ibv_post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: a queue pair has a context as long as it lives; the rest is the caller's promise.
    unsafe { (*(*qp).context).ops.post_send.map_or(libc::ENOSYS, |post| post(qp, wr, bad)) }
}

/// # Safety
/// As ibv_post_recv(3) demands.
#[inline]
pub(crate) unsafe fn ibv_post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: as in `ibv_post_send`.
    unsafe { (*(*qp).context).ops.post_recv.map_or(libc::ENOSYS, |post| post(qp, wr, bad)) }
}

/// # Safety
/// As ibv_post_srq_recv(3) demands.
#[inline]
pub(crate) unsafe fn ibv_post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: as in `ibv_post_send`.
    unsafe { (*(*srq).context).ops.post_srq_recv.map_or(libc::ENOSYS, |post| post(srq, wr, bad)) }
}

/// # Safety
/// As ibv_poll_cq(3) demands.
#[inline]
pub(crate) unsafe fn ibv_poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    // SAFETY: as in `ibv_post_send`.
    unsafe { (*(*cq).context).ops.poll_cq.map_or(-1, |poll| poll(cq, count, wc)) }
}

/// # Safety
/// As ibv_req_notify_cq(3) demands.
#[inline]
pub(crate) unsafe fn ibv_req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: as in `ibv_post_send`.
    unsafe {
        (*(*cq).context).ops.req_notify_cq.map_or(libc::ENOSYS, |arm| arm(cq, solicited_only))
    }
}

type AllocMw = Option<unsafe extern "C" fn(*mut ibv_pd, c_uint) -> *mut MemoryWindow>;
type DeallocMw = Option<unsafe extern "C" fn(*mut MemoryWindow) -> c_int>;

/// # Safety
/// As ibv_alloc_mw(3) demands.
pub(crate) unsafe fn ibv_alloc_mw(pd: *mut ibv_pd, kind: c_uint) -> *mut MemoryWindow {
    // SAFETY: a protection domain has a context as long as it lives; the header gives the function this type, of a C enum.
    let alloc: AllocMw = unsafe { std::mem::transmute_copy(&(*(*pd).context).ops.alloc_mw) };
    // SAFETY: the caller's promise.
    alloc.map_or_else(Absent::absent, |alloc| unsafe { alloc(pd, kind) })
}

/// # Safety
/// As ibv_dealloc_mw(3) demands.
pub(crate) unsafe fn ibv_dealloc_mw(mw: *mut MemoryWindow) -> c_int {
    // SAFETY: as in `ibv_alloc_mw`.
    let dealloc: DeallocMw = unsafe { std::mem::transmute_copy(&(*(*mw).context).ops.dealloc_mw) };
    // SAFETY: the caller's promise.
    dealloc.map_or(libc::ENOSYS, |dealloc| unsafe { dealloc(mw) })
}

/// # Safety
/// An identifier that lives.
pub(crate) unsafe fn rdma_get_local_addr(id: *const rdma_cm_id) -> *const sockaddr {
    // SAFETY: the caller's promise; a union with a variant of this type.
    unsafe { (&raw const (*id).route.addr.src_addr_union).cast() }
}

/// # Safety
/// An identifier that lives.
pub(crate) unsafe fn rdma_get_peer_addr(id: *const rdma_cm_id) -> *const sockaddr {
    // SAFETY: as in `rdma_get_local_addr`.
    unsafe { (&raw const (*id).route.addr.dst_addr_union).cast() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ffi::{code, errno, pointer};

    #[test]
    fn a_function_that_is_not_there_fails() {
        let error = errno("ibv_fork_init", Absent::absent()).unwrap_err();
        assert_eq!(code(&error), Some(libc::ENOSYS));
        let error = pointer::<ibv_pd>("ibv_alloc_pd", Absent::absent()).unwrap_err();
        assert_eq!(code(&error), Some(libc::ENOSYS));
    }
}
