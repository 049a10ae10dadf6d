//! Memory windows of a connection, and the registrations beneath them.

use std::io;
use std::sync::Arc;

use fabric_core::Access;
use fabric_util::sync::Mutex;

use crate::ffi::{self, ibv_access_flags};
use crate::handle::{Mr, Mw};
use crate::open_device::OpenDevice;

/// Part of a region, to be opened to a peer.
pub(crate) struct GrantedPart {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    /// The rights of the region.
    pub(crate) region: Access,
    /// The rights of the peer.
    pub(crate) peer: Access,
}

/// The state of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowState {
    /// The request to bind it is in the send queue, or waits to be posted.
    Binding,
    Bound,
    /// It opens nothing, and never will.
    Closed,
}

/// A window, as its grant and its connection know it.
pub(crate) struct Window {
    /// Among those of the connection.
    pub(crate) number: u64,
    parts: Mutex<Parts>,
}

struct Parts {
    state: WindowState,
    // In this order: the registration is the one beneath.
    mw: Mw,
    mr: Mr,
}

/// What the request to bind a window says. Its pointers are those of the window's parts.
pub(crate) struct Binding {
    pub(crate) mw: *mut ffi::MemoryWindow,
    pub(crate) mr: *mut ffi::ibv_mr,
    pub(crate) rkey: u32,
    pub(crate) addr: u64,
    pub(crate) len: u64,
    pub(crate) rights: ibv_access_flags,
}

// SAFETY: only numbers to this crate; the parts behind them may be used by any thread (`Mw`, `Mr`).
unsafe impl Send for Binding {}

impl Window {
    pub(crate) fn new(number: u64, mw: Mw, mr: Mr) -> Arc<Self> {
        let parts = Mutex::new(Parts { state: WindowState::Binding, mw, mr });
        Arc::new(Window { number, parts })
    }

    pub(crate) fn state(&self) -> WindowState {
        self.parts.lock().state
    }

    /// The request to bind it has ended.
    pub(crate) fn set_bound(&self, succeeded: bool) {
        let mut parts = self.parts.lock();
        if parts.state == WindowState::Binding {
            parts.state = if succeeded { WindowState::Bound } else { WindowState::Closed };
        }
    }

    /// Frees the window: its key opens nothing any more.
    pub(crate) fn deallocate(&self, device: &OpenDevice) -> io::Result<()> {
        let mut parts = self.parts.lock();
        parts.state = WindowState::Closed;
        device.unless_gone(parts.mw.deallocate())?;
        parts.mw.forget();
        Ok(())
    }

    /// Frees the window and ends the registration beneath; `None` while it is binding.
    pub(crate) fn close(&self, device: &OpenDevice) -> Option<io::Result<()>> {
        if self.state() == WindowState::Binding {
            return None;
        }
        Some(self.deallocate(device).and_then(|()| self.deregister(device)))
    }

    fn deregister(&self, device: &OpenDevice) -> io::Result<()> {
        let mut parts = self.parts.lock();
        device.unless_gone(parts.mr.deregister())?;
        parts.mr.forget();
        Ok(())
    }
}

/// The windows of a connection.
#[derive(Default)]
pub(crate) struct Windows {
    pub(crate) all: Vec<Arc<Window>>,
    /// The one whose request is in the send queue, which has room for one, or waits to get there.
    pub(crate) binding: Option<(Arc<Window>, Binding)>,
    pub(crate) next: u64,
}
