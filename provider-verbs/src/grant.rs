//! Grants: memory windows.
//!
//! A window of type 2B opens to the peer of one queue pair alone: the one that the request to bind it was posted to. That
//! request is executed in the order of the send queue, so a grant is open when it has completed; freeing the window waits
//! for nothing, and is the end of the grant.
//!
//! Each window lies over a registration of its own, of the part that is granted and without rights for peers. That makes
//! the part exact on drivers that look at the registration's bounds only (rdma_rxe), leaves the region as it was, and
//! its end is proof that the device reaches the part no more.

use std::io;
use std::sync::{Arc, Weak};

use fabric_core::{Access, DisconnectReason, Error, Failure, GrantOps, Result};
use fabric_util::log_line;

use crate::complete::reason;
use crate::conn::{CloseReason, Conn, ConnState, State};
use crate::domain::state::DomainState;
use crate::error::{NAME, failed, register_failed};
use crate::ffi::{self, ibv_access_flags, ibv_wc_status as status};
use crate::handle::{Mr, Mw};
use crate::post::{self, Direct};
use crate::region::flags;
use crate::windows::{Binding, GrantedPart, Window, WindowState};

const OP: &str = "grant";

impl Conn {
    /// Begins a grant.
    ///
    /// # Safety
    /// As [`RegistrationOps::grant`](fabric_core::RegistrationOps::grant).
    pub(crate) unsafe fn open_window(
        self: &Arc<Self>,
        part: &GrantedPart,
    ) -> Result<Box<dyn GrantOps>> {
        let device = &self.domain.device;
        let first = self.check_binding(&self.lock());
        if matches!(first, Err(Error::Again)) {
            self.send_queue.drain();
        }
        first?;
        let (at, len) = (part.addr as *mut u8, part.len);
        let local = part.region & (Access::LOCAL_WRITE | Access::RELAXED_ORDERING);
        let beneath = flags(local) | ibv_access_flags::IBV_ACCESS_MW_BIND;
        // SAFETY: the caller's promise; the window keeps the registration until it is revoked.
        let mr = unsafe { Mr::new(&device.pd, (at, len), part.addr, beneath) };
        let mr = mr.map_err(|cause| register_failed(OP, at, len, cause))?;
        let mw = Mw::new(&device.pd)
            .map_err(|cause| failed(OP, "the device has no more memory windows", cause))?;
        let rkey = mw.bound_rkey();
        let binding = Binding {
            mw: mw.as_ptr(),
            mr: mr.as_ptr(),
            rkey,
            addr: part.addr,
            len: len as u64,
            rights: flags(part.peer),
        };
        let mut state = self.lock();
        self.check_binding(&state)?;
        let number = state.windows.next;
        state.windows.next += 1;
        let window = Window::new(number, mw, mr);
        self.begin_binding(&mut state, &binding)?;
        state.windows.binding = Some((window.clone(), binding));
        state.windows.all.push(window.clone());
        drop(state);
        let key = u64::from(device.scratch.flush_read_key()) << 32 | u64::from(rkey);
        let (conn, domain) = (Arc::downgrade(self), self.domain.clone());
        Ok(Box::new(VerbsGrant { window, conn, domain, key, base: part.addr }))
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

    /// Posts the request to bind a window, or makes it wait for what was posted before.
    fn begin_binding(&self, state: &mut State, binding: &Binding) -> Result<()> {
        if !self.domain.device.quirks.repeated_binds_hang {
            return self.post_bind(binding).map_err(|cause| bind_refused(binding.len, cause));
        }
        state.soft_queue.pause(&mut Direct(self))?;
        self.set_soft_queue_active(true);
        Ok(())
    }

    /// What was posted before a window that waits has ended, well or not.
    pub(crate) fn continue_binding(&self, state: &mut State, succeeded: bool) {
        let Some((window, binding)) = &state.windows.binding else { return };
        let posted = succeeded && self.post_bind(binding).is_ok();
        if posted {
            return;
        }
        window.set_bound(false);
        state.windows.binding = None;
        if succeeded {
            // The device refused what it has room for. The grant reports that the connection is over.
            self.close(state, CloseReason::Disconnected(DisconnectReason::Internal));
        }
    }

    /// The request to bind a window has ended.
    pub(crate) fn on_bind_ended(&self, state: &mut State, code: status::Type) {
        let Some((window, _)) = state.windows.binding.take() else { return };
        let succeeded = code == status::IBV_WC_SUCCESS;
        window.set_bound(succeeded);
        if !succeeded {
            self.close(state, CloseReason::Disconnected(reason(code)));
        }
    }

    /// Withdraws the request to bind a window, if it still waits.
    fn cancel_binding(&self, window: &Arc<Window>) {
        let mut state = self.lock();
        let binding = state.windows.binding.as_ref();
        let is_it = binding.is_some_and(|(waiting, _)| Arc::ptr_eq(waiting, window));
        if is_it && state.soft_queue.is_paused() {
            state.windows.binding = None;
            window.set_bound(false);
        }
    }

    /// Frees the windows of a queue pair that is in error, before it is destroyed.
    pub(crate) fn free_windows(&self, state: &mut State) {
        state.windows.binding = None;
        for window in state.windows.all.drain(..) {
            if let Err(cause) = window.deallocate(&self.domain.device) {
                log_line!(Error, "{}: {cause}: a grant's window stays", self.id);
            }
        }
    }
}

/// A driver may bind short windows only (mlx5: 2 GiB).
fn bind_refused(len: u64, cause: io::Error) -> Error {
    match ffi::code(&cause) {
        Some(libc::EOPNOTSUPP) => {
            let text = format!("the device makes no grant of {len} bytes: grant smaller parts");
            Error::Unsupported(Failure::new(OP, text).of(NAME).because(cause))
        }
        _ => post::refused(cause),
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
    /// How far the window is, once completions were taken. A device that is gone completes nothing.
    fn window_state(&self) -> WindowState {
        if self.window.state() == WindowState::Binding
            && let Some(conn) = self.conn.upgrade()
        {
            conn.send_queue.drain();
            if conn.domain.device.is_gone() {
                self.window.set_bound(false);
            }
        }
        self.window.state()
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
        match self.window_state() {
            WindowState::Binding => Ok(false),
            WindowState::Bound => Ok(true),
            WindowState::Closed => Err(Error::NotConnected),
        }
    }

    fn revoke(&mut self) -> Result<()> {
        let conn = self.conn.upgrade();
        if self.window_state() == WindowState::Binding
            && let Some(conn) = &conn
        {
            conn.cancel_binding(&self.window);
        }
        let ended = self.window.close(&self.domain.device).ok_or(Error::Busy)?;
        ended.map_err(|cause| Error::system("revoke", NAME, cause))?;
        if let Some(conn) = conn {
            conn.lock().windows.all.retain(|window| window.number != self.window.number);
        }
        self.domain.deregistered();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_is_too_long_for_the_device_is_unsupported() {
        let error = |code| bind_refused(3 << 30, ffi::refused("ibv_post_send", code));
        let long = error(libc::EOPNOTSUPP);
        assert!(matches!(long, Error::Unsupported(_)), "{long:?}");
        assert!(long.to_string().contains("3221225472 bytes"), "{long}");
        assert!(matches!(error(libc::ENOMEM), Error::Internal(_)));
    }
}
