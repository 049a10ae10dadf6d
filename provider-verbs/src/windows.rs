//! Memory windows of a connection, and the registrations beneath them.

use std::io;
use std::sync::Arc;

use fabric_util::sync::Mutex;

use crate::ffi::{self, ibv_access_flags};
use crate::handle::{Mr, Mw};

/// How far a window has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The request to bind it is in the send queue.
    Binding,
    Bound,
    /// It opens nothing, and never will.
    Shut,
}

/// A window, as its grant and its connection know it.
pub(crate) struct Window {
    /// Among those of the connection.
    pub(crate) name: u64,
    parts: Mutex<Parts>,
}

struct Parts {
    progress: Progress,
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
    pub(crate) fn new(name: u64, mw: Mw, mr: Mr) -> Arc<Self> {
        let parts = Mutex::new(Parts { progress: Progress::Binding, mw, mr });
        Arc::new(Window { name, parts })
    }

    pub(crate) fn progress(&self) -> Progress {
        self.parts.lock().progress
    }

    /// The request to bind it has ended.
    pub(crate) fn bound(&self, well: bool) {
        let mut parts = self.parts.lock();
        if parts.progress == Progress::Binding {
            parts.progress = if well { Progress::Bound } else { Progress::Shut };
        }
    }

    /// Its queue pair goes, and will execute nothing any more. `lost`: the device is.
    pub(crate) fn unbind(&self, lost: bool) -> io::Result<()> {
        let mut parts = self.parts.lock();
        parts.progress = Progress::Shut;
        settled(lost, parts.mw.deallocate())?;
        parts.mw.forget();
        Ok(())
    }

    /// Ends it, and with it the device's reach; none while it is binding.
    pub(crate) fn end(&self, lost: bool) -> Option<io::Result<()>> {
        if self.progress() == Progress::Binding {
            return None;
        }
        Some(self.unbind(lost).and_then(|()| self.deregister(lost)))
    }

    fn deregister(&self, lost: bool) -> io::Result<()> {
        let mut parts = self.parts.lock();
        settled(lost, parts.mr.deregister())?;
        parts.mr.forget();
        Ok(())
    }
}

/// A device that went took its objects along: the kernel has ended them before it answers so.
fn settled(lost: bool, ended: io::Result<()>) -> io::Result<()> {
    ended.or_else(
        |cause| {
            if lost && ffi::code(&cause) == Some(libc::EIO) { Ok(()) } else { Err(cause) }
        },
    )
}

/// The windows of a connection.
#[derive(Default)]
pub(crate) struct Windows {
    pub(crate) all: Vec<Arc<Window>>,
    /// The one whose request is in the send queue, which has room for one, or waits to get there.
    pub(crate) binding: Option<(Arc<Window>, Binding)>,
    pub(crate) next: u64,
}
