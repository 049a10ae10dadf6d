//! Devices, ports, and protection domains.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Once};

use fabric_util::log_line;

use super::destroy::destroyed;
use crate::ffi::{self, errno, pointer};

/// Entries that GID tables of a device may have and be listed by one call.
const GID_ENTRIES: usize = 1024;

/// Prepares libibverbs for processes that fork, once (ibv_fork_init(3)): without it, a page that a child shares may
/// become another page of the parent's than the one the device writes to. It takes registered pages from the child, and
/// what else is on them, so it is not called where the kernel copies such pages.
fn fork_safe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if copies_on_fork(kernel_version()) {
            return;
        }
        // SAFETY: no arguments; it fails only if memory was registered before, by another library of the process.
        if let Err(error) = errno("ibv_fork_init", unsafe { ffi::ibv_fork_init() }) {
            log_line!(Warn, "{error}: a child made by fork may disturb registered memory");
        }
    });
}

/// The first two numbers of a kernel's release.
pub(crate) type KernelVersion = (u32, u32);

/// That of the running kernel; zero where it is not known.
pub(crate) fn kernel_version() -> KernelVersion {
    version(&std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default())
}

fn version(release: &str) -> KernelVersion {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Whether a kernel copies locked pages, huge ones too, when a process forks: from 5.13 on, which says so by
/// `RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK`; see `IBV_FORK_UNNEEDED` in ibv_is_fork_initialized(3).
fn copies_on_fork(kernel: KernelVersion) -> bool {
    kernel >= (5, 13)
}

/// The devices of this machine, each open until the list is dropped.
struct DeviceList {
    first: NonNull<*mut ffi::ibv_device>,
    len: usize,
}

impl DeviceList {
    fn get() -> io::Result<Self> {
        ffi::load()?;
        fork_safe();
        let mut len = 0;
        // SAFETY: `len` is written; the list is freed on drop (ibv_get_device_list(3)).
        let first = unsafe { ffi::ibv_get_device_list(&mut len) };
        Ok(DeviceList { first: pointer("ibv_get_device_list", first)?, len: len.max(0) as usize })
    }

    fn devices(&self) -> impl Iterator<Item = (*mut ffi::ibv_device, String)> {
        // SAFETY: the list has `len` entries, each a device that is valid as long as the list.
        let devices = unsafe { std::slice::from_raw_parts(self.first.as_ptr(), self.len) };
        devices.iter().map(|device| (*device, name_of(*device)))
    }
}

impl Drop for DeviceList {
    fn drop(&mut self) {
        // SAFETY: made by ibv_get_device_list, freed once; open contexts survive it (ibv_get_device_list(3)).
        unsafe { ffi::ibv_free_device_list(self.first.as_ptr()) };
    }
}

fn name_of(device: *mut ffi::ibv_device) -> String {
    // SAFETY: a device of a list or an open context; the name is a string as long as that lives.
    let name = unsafe { ffi::ibv_get_device_name(device) };
    if name.is_null() {
        return String::new();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// The names of the devices that libibverbs has drivers for.
pub(crate) fn device_names() -> io::Result<Vec<String>> {
    Ok(DeviceList::get()?.devices().map(|(_, name)| name).collect())
}

/// An open device.
pub(crate) struct Context(NonNull<ffi::ibv_context>);

// SAFETY: libibverbs is thread-safe (ibv_verbs documentation, "Thread safety"): any thread may use any object.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// How a device speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// InfiniBand and RoCE.
    InfiniBand,
    Iwarp,
    Other,
}

/// What a device can do, of ibv_query_device(3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceAttributes {
    pub(crate) firmware: String,
    pub(crate) transport: Transport,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) max_qp: u32,
    pub(crate) max_qp_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) max_sge_rd: u32,
    pub(crate) max_cq: u32,
    pub(crate) max_cqe: u32,
    pub(crate) max_mr: u32,
    pub(crate) max_mr_size: u64,
    /// Shared receive queues, and what one has room for.
    pub(crate) max_srq: u32,
    pub(crate) max_srq_wr: u32,
    pub(crate) max_srq_sge: u32,
    pub(crate) max_qp_rd_atom: u32,
    pub(crate) max_qp_init_rd_atom: u32,
    /// 64-bit atomics.
    pub(crate) atomics: bool,
    /// They are atomic for the CPU as well.
    pub(crate) atomics_global: bool,
    pub(crate) ports: u8,
    /// Memory windows that are bound to one queue pair (type 2B).
    pub(crate) windows: bool,
}

/// Of ibv_query_port(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PortState {
    Down,
    Init,
    Armed,
    Active,
    ActiveDefer,
    Unknown,
}

/// What a port is, of ibv_query_port(3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PortAttributes {
    pub(crate) state: PortState,
    /// Bytes.
    pub(crate) mtu: u32,
    pub(crate) max_msg_sz: u32,
    /// The slots of its GID table that are not empty; all of them where the libraries cannot say.
    pub(crate) gid_slots: Vec<u32>,
    pub(crate) lid: u16,
    /// RoCE; else InfiniBand.
    pub(crate) ethernet: bool,
}

/// Something that happened to the device, of ibv_get_async_event(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AsyncEvent {
    /// The device is lost.
    Fatal,
    /// A completion queue or a shared receive queue is lost.
    QueueError,
    /// An error of this queue pair that no completion reports.
    QpError(u32),
    /// The first message came before the connection manager's last one.
    Established(u32),
    /// This queue pair is in error, and holds no receive of its shared queue any more: their completions are there.
    LastReceive(u32),
    PortActive(u8),
    PortDown(u8),
    Other(u32),
}

impl Context {
    pub(crate) fn open(name: &str) -> io::Result<Self> {
        let list = DeviceList::get()?;
        let Some((device, _)) = list.devices().find(|(_, found)| found == name) else {
            let text = format!("ibv_get_device_list: {name} is not there any more");
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        };
        // SAFETY: the device is of the list, which lives until the end of this function.
        let context = pointer("ibv_open_device", unsafe { ffi::ibv_open_device(device) })?;
        Ok(Context(context))
    }

    pub(crate) fn as_ptr(&self) -> *mut ffi::ibv_context {
        self.0.as_ptr()
    }

    pub(crate) fn as_non_null(&self) -> NonNull<ffi::ibv_context> {
        self.0
    }

    /// Interrupts that completion queues can be spread over.
    pub(crate) fn completion_vectors(&self) -> u32 {
        // SAFETY: the context is open; the field is constant.
        unsafe { self.0.as_ref() }.num_comp_vectors.max(0) as u32
    }

    /// The descriptor of asynchronous events.
    pub(crate) fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the context's, open as long as it lives.
        unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).async_fd) }
    }

    /// The next asynchronous event, if there is one; it is acknowledged already.
    pub(crate) fn next_event(&self) -> Option<AsyncEvent> {
        let mut event = MaybeUninit::<ffi::ibv_async_event>::uninit();
        // SAFETY: `event` is written if it returns 0 (ibv_get_async_event(3)).
        if unsafe { ffi::ibv_get_async_event(self.as_ptr(), event.as_mut_ptr()) } != 0 {
            return None;
        }
        let at = event.as_mut_ptr();
        // The type is read as a number: an event newer than this library would be no valid value of the enum.
        // SAFETY: the event was written, and its type is a C enum, 32 bits.
        let kind = unsafe { (&raw const (*at).event_type).cast::<u32>().read() };
        let is = |event: ffi::ibv_event_type| kind == event as u32;
        use ffi::ibv_event_type as T;
        // SAFETY: for events of a queue pair the element is one, alive until the event is acknowledged.
        let qpn = || unsafe { (*(*at).element.qp).qp_num };
        // SAFETY: for events of a port the element is its number.
        let port = || unsafe { (*at).element.port_num } as u8;
        let seen = match kind {
            _ if is(T::IBV_EVENT_DEVICE_FATAL) => AsyncEvent::Fatal,
            _ if is(T::IBV_EVENT_CQ_ERR) || is(T::IBV_EVENT_SRQ_ERR) => AsyncEvent::QueueError,
            _ if is(T::IBV_EVENT_QP_FATAL)
                || is(T::IBV_EVENT_QP_REQ_ERR)
                || is(T::IBV_EVENT_QP_ACCESS_ERR) =>
            {
                AsyncEvent::QpError(qpn())
            }
            _ if is(T::IBV_EVENT_COMM_EST) => AsyncEvent::Established(qpn()),
            _ if is(T::IBV_EVENT_QP_LAST_WQE_REACHED) => AsyncEvent::LastReceive(qpn()),
            _ if is(T::IBV_EVENT_PORT_ACTIVE) => AsyncEvent::PortActive(port()),
            _ if is(T::IBV_EVENT_PORT_ERR) => AsyncEvent::PortDown(port()),
            other => AsyncEvent::Other(other),
        };
        // SAFETY: got above, acknowledged once; nothing of it is used any more.
        unsafe { ffi::ibv_ack_async_event(at) };
        Some(seen)
    }

    pub(crate) fn attributes(&self) -> io::Result<DeviceAttributes> {
        let mut attr = MaybeUninit::<ffi::ibv_device_attr>::zeroed();
        // SAFETY: the context is open, `attr` is written (ibv_query_device(3)).
        errno("ibv_query_device", unsafe {
            ffi::ibv_query_device(self.as_ptr(), attr.as_mut_ptr())
        })?;
        // SAFETY: plain numbers, zeroed before.
        let attr = unsafe { attr.assume_init() };
        // SAFETY: an open context has a device.
        let context = unsafe { self.0.as_ref() };
        // SAFETY: as above.
        let transport = unsafe { (*context.device).transport_type };
        let fw = attr.fw_ver.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
        let number = |n: i32| n.max(0) as u32;
        let global = ffi::ibv_atomic_cap::IBV_ATOMIC_GLOB;
        Ok(DeviceAttributes {
            firmware: String::from_utf8(fw).unwrap_or_default(),
            transport: match transport {
                ffi::ibv_transport_type::IBV_TRANSPORT_IB => Transport::InfiniBand,
                ffi::ibv_transport_type::IBV_TRANSPORT_IWARP => Transport::Iwarp,
                _ => Transport::Other,
            },
            vendor_id: attr.vendor_id,
            vendor_part_id: attr.vendor_part_id,
            max_qp: number(attr.max_qp),
            max_qp_wr: number(attr.max_qp_wr),
            max_sge: number(attr.max_sge),
            max_sge_rd: number(attr.max_sge_rd),
            max_cq: number(attr.max_cq),
            max_cqe: number(attr.max_cqe),
            max_mr: number(attr.max_mr),
            max_mr_size: attr.max_mr_size,
            max_srq: number(attr.max_srq),
            max_srq_wr: number(attr.max_srq_wr),
            max_srq_sge: number(attr.max_srq_sge),
            max_qp_rd_atom: number(attr.max_qp_rd_atom),
            max_qp_init_rd_atom: number(attr.max_qp_init_rd_atom),
            atomics: attr.atomic_cap != ffi::ibv_atomic_cap::IBV_ATOMIC_NONE,
            atomics_global: attr.atomic_cap == global,
            ports: attr.phys_port_cnt,
            windows: attr.device_cap_flags & ffi::DEVICE_MEM_WINDOW_TYPE_2B != 0,
        })
    }

    pub(crate) fn port(&self, number: u8) -> io::Result<PortAttributes> {
        // Zeroed, because a driver of the old interface fills in only the front.
        let mut attr = MaybeUninit::<ffi::ibv_port_attr>::zeroed();
        // SAFETY: the context is open, `attr` is written (ibv_query_port(3)).
        errno("ibv_query_port", unsafe {
            ffi::ibv_query_port(self.as_ptr(), number, attr.as_mut_ptr().cast())
        })?;
        // SAFETY: plain numbers, zeroed before.
        let attr = unsafe { attr.assume_init() };
        Ok(PortAttributes {
            state: match attr.state {
                ffi::ibv_port_state::IBV_PORT_DOWN => PortState::Down,
                ffi::ibv_port_state::IBV_PORT_INIT => PortState::Init,
                ffi::ibv_port_state::IBV_PORT_ARMED => PortState::Armed,
                ffi::ibv_port_state::IBV_PORT_ACTIVE => PortState::Active,
                ffi::ibv_port_state::IBV_PORT_ACTIVE_DEFER => PortState::ActiveDefer,
                _ => PortState::Unknown,
            },
            mtu: match attr.active_mtu {
                // IBV_MTU_256 is 1, and each further one the double.
                n @ 1..=5 => 128 << n,
                _ => 0,
            },
            max_msg_sz: attr.max_msg_sz,
            gid_slots: self.gid_slots(number, attr.gid_tbl_len.max(0) as u32),
            lid: attr.lid,
            ethernet: attr.link_layer == ffi::LINK_LAYER_ETHERNET,
        })
    }

    /// One call instead of a look at each slot: Soft-RoCE has 1,024.
    fn gid_slots(&self, port: u8, len: u32) -> Vec<u32> {
        // SAFETY: the context is open.
        match unsafe { ffi::gid_table(self.as_ptr(), GID_ENTRIES) } {
            Some(entries) => {
                let of_port = entries.iter().filter(|entry| entry.port_num == u32::from(port));
                of_port.map(|entry| entry.gid_index).filter(|index| *index < len).collect()
            }
            None => (0..len).collect(),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened by ibv_open_device, closed once; everything made on it held it by `Arc`.
        destroyed("ibv_close_device", unsafe { ffi::ibv_close_device(self.as_ptr()) });
    }
}

/// The name of the device that an rdma_cm identifier is bound to.
pub(super) fn device_of(context: NonNull<ffi::ibv_context>) -> String {
    // SAFETY: librdmacm keeps the contexts of its identifiers open as long as the process lives.
    name_of(unsafe { context.as_ref() }.device)
}

/// A protection domain.
pub(crate) struct Pd {
    pd: NonNull<ffi::ibv_pd>,
    pub(crate) context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Pd {}
// SAFETY: as for `Context`.
unsafe impl Sync for Pd {}

impl Pd {
    pub(crate) fn new(context: &Arc<Context>) -> io::Result<Self> {
        // SAFETY: the context is open.
        let pd = pointer("ibv_alloc_pd", unsafe { ffi::ibv_alloc_pd(context.as_ptr()) })?;
        Ok(Pd { pd, context: context.clone() })
    }

    pub(crate) fn as_ptr(&self) -> *mut ffi::ibv_pd {
        self.pd.as_ptr()
    }

    pub(crate) fn as_non_null(&self) -> NonNull<ffi::ibv_pd> {
        self.pd
    }
}

impl Drop for Pd {
    fn drop(&mut self) {
        // SAFETY: allocated by ibv_alloc_pd, freed once; regions and queue pairs held it by `Arc`.
        destroyed("ibv_dealloc_pd", unsafe { ffi::ibv_dealloc_pd(self.as_ptr()) });
    }
}

/// Makes a descriptor not block.
pub(super) fn nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd.as_fd())?;
    Ok(rustix::fs::fcntl_setfl(fd, flags | rustix::fs::OFlags::NONBLOCK)?)
}

impl Context {
    /// Makes [`next_event`](Context::next_event) not block.
    pub(crate) fn poll_events(&self) -> io::Result<()> {
        nonblocking(self.events())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_copy_on_fork() {
        for release in ["5.13.0", "5.15.0-91-generic", "6.1.0-56-amd64", "10.0-rc1\n"] {
            assert!(copies_on_fork(version(release)), "{release}");
        }
        for release in ["5.12.19", "5.4.0-x", "4.18.0-553.el8", "3.10", "", "unknown"] {
            assert!(!copies_on_fork(version(release)), "{release}");
        }
    }
}
