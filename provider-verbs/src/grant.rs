//! Grants: memory windows.
//!
//! A window of type 2B opens to the peer of one queue pair alone: the one that the request to bind it was posted to. That
//! request is executed in the order of the send queue, so a grant is open when it has completed; freeing the window waits
//! for nothing, and is the end of the grant.
//!
//! Each window lies over a registration of its own, of the part that is granted and without rights for peers. That makes
//! the part exact on drivers that look at the registration's bounds only (rdma_rxe), leaves the region as it was, and
//! its end is proof that the device reaches the part no more.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use fabric_core::{Access, Error, GrantOps, Result};
use fabric_util::log_line;

use crate::conn::{CloseReason, Conn, ConnState, State};
use crate::domain::state::DomainState;
use crate::error::{NAME, failed, register_failed};
use crate::ffi::{ibv_access_flags, ibv_wc_status as status};
use crate::handle::{Mr, Mw};
use crate::post::Direct;
use crate::region::flags;
use crate::windows::{Binding, Progress, Window};
use crate::{complete, post};

impl Conn {
    /// The request to bind a window has ended.
    pub(crate) fn bind_ended(&self, state: &mut State, code: status::Type) {
        let Some((window, _)) = state.windows.binding.take() else { return };
        let well = code == status::IBV_WC_SUCCESS;
        window.bound(well);
        if !well {
            self.close(state, CloseReason::Disconnected(complete::reason(code)));
        }
    }

    /// Whether a window can be bound now.
    fn check_binding(&self, state: &State) -> Result<()> {
        let busy = self.domain.device.quirks.repeated_binds_hang && !state.soft_queue.is_idle();
        match state.conn_state {
            ConnState::Established | ConnState::Accepting
                if busy || state.windows.binding.is_some() =>
            {
                Err(Error::Again)
            }
            ConnState::Established | ConnState::Accepting => Ok(()),
            _ => Err(Error::NotConnected),
        }
    }

    /// Posts the request to bind a window, or has it wait for what was posted before.
    fn begin_binding(&self, state: &mut State, binding: &Binding) -> Result<()> {
        if !self.domain.device.quirks.repeated_binds_hang {
            return self.post_bind(binding).map_err(post::refused);
        }
        state.soft_queue.pause(&mut Direct(self))?;
        self.set_soft_queue_active(true);
        Ok(())
    }

    /// What was posted before a window that waits has ended, well or not.
    pub(crate) fn go_on_binding(&self, state: &mut State, well: bool) {
        let Some((window, binding)) = &state.windows.binding else { return };
        if !well || self.post_bind(binding).is_err() {
            window.bound(false);
            state.windows.binding = None;
        }
    }

    /// Frees the windows of a queue pair that is in error, before it is destroyed.
    pub(crate) fn free_windows(&self, state: &mut State) {
        let (lost, windows) = (self.domain.device.is_lost(), &mut state.windows);
        windows.binding = None;
        for window in windows.all.drain(..) {
            if let Err(cause) = window.unbind(lost) {
                log_line!(Error, "{}: {cause}: a grant's window stays", self.id);
            }
        }
    }
}

impl Conn {
    /// Begins a grant of `range` of a registration that starts at `addr` and has `rights`.
    ///
    /// # Safety
    /// As [`RegistrationOps::grant`](fabric_core::RegistrationOps::grant).
    pub(crate) unsafe fn begin_grant(
        self: &Arc<Self>,
        (addr, rights): (u64, Access),
        range: Range<usize>,
        access: Access,
    ) -> Result<Box<dyn GrantOps>> {
        const OP: &str = "grant";
        let (conn, device) = (self, &self.domain.device);
        device.check()?;
        let first = conn.check_binding(&conn.lock());
        if matches!(first, Err(Error::Again)) {
            look(conn, None);
        }
        first?;
        let (addr, len) = (addr + range.start as u64, range.len());
        let local = rights & (Access::LOCAL_WRITE | Access::RELAXED_ORDERING);
        let beneath = flags(local) | ibv_access_flags::IBV_ACCESS_MW_BIND;
        let at = addr as *mut u8;
        // SAFETY: the caller's promise; the window keeps the registration until it is revoked.
        let mr = unsafe { Mr::new(&device.pd, (at, len), addr, beneath) };
        let mr = mr.map_err(|cause| register_failed(OP, at, len, cause))?;
        let mw = Mw::new(&device.pd)
            .map_err(|cause| failed(OP, "the device has no more memory windows", cause))?;
        let rkey = mw.bound_rkey();
        let binding = Binding {
            mw: mw.as_ptr(),
            mr: mr.as_ptr(),
            rkey,
            addr,
            len: len as u64,
            rights: flags(access),
        };
        let mut state = conn.lock();
        conn.check_binding(&state)?;
        let name = state.windows.next;
        state.windows.next += 1;
        let window = Window::new(name, mw, mr);
        conn.begin_binding(&mut state, &binding)?;
        state.windows.binding = Some((window.clone(), binding));
        state.windows.all.push(window.clone());
        drop(state);
        let key = u64::from(device.scratch.flush_read_key()) << 32 | u64::from(rkey);
        let conn = Arc::downgrade(conn);
        Ok(Box::new(VerbsGrant { window, conn, domain: self.domain.clone(), key, base: addr }))
    }
}

/// A grant.
struct VerbsGrant {
    window: Arc<Window>,
    conn: Weak<Conn>,
    domain: Arc<DomainState>,
    key: u64,
    base: u64,
}

impl VerbsGrant {
    /// Whether the window is bound, or cannot be; after a look at what has completed.
    fn progress(&self) -> Progress {
        if self.window.progress() == Progress::Binding
            && let Some(conn) = self.conn.upgrade()
        {
            look(&conn, Some(&self.window));
        }
        self.window.progress()
    }
}

impl VerbsGrant {
    /// Takes back the request to bind, if it still waits.
    fn withdraw(&self) {
        let Some(conn) = self.conn.upgrade() else { return };
        let mut state = conn.lock();
        let binding = state.windows.binding.as_ref();
        let is_it = binding.is_some_and(|(window, _)| Arc::ptr_eq(window, &self.window));
        if is_it && state.soft_queue.is_paused() {
            state.windows.binding = None;
            self.window.bound(false);
        }
    }
}

/// Takes what has completed; a device that was taken away completes nothing.
fn look(conn: &Conn, window: Option<&Window>) {
    conn.send_queue.drain();
    if let Some(window) = window.filter(|_| conn.flush_failed.load(Ordering::Acquire)) {
        window.bound(false);
    }
}

// SAFETY: a bound window opens its part, which is all of its registration, to the peer of its queue pair alone. When
// `ibv_dealloc_mw` and then `ibv_dereg_mr` have succeeded, its key opens nothing, and the device reaches the part no more.
unsafe impl GrantOps for VerbsGrant {
    fn remote_key(&self) -> u64 {
        self.key
    }

    fn remote_base(&self) -> u64 {
        self.base
    }

    fn is_open(&self) -> Result<bool> {
        match self.progress() {
            Progress::Binding => Ok(false),
            Progress::Bound => Ok(true),
            Progress::Shut => Err(Error::NotConnected),
        }
    }

    fn revoke(&mut self) -> Result<()> {
        if self.progress() == Progress::Binding {
            self.withdraw();
        }
        let ended = self.window.end(self.domain.device.is_lost()).ok_or(Error::Busy)?;
        ended.map_err(|cause| Error::system("revoke", NAME, cause))?;
        if let Some(conn) = self.conn.upgrade() {
            let name = self.window.name;
            conn.lock().windows.all.retain(|window| window.name != name);
        }
        self.domain.deregistered();
        Ok(())
    }
}
