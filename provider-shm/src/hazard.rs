//! Where a peer is among this side's windows: what both say of accesses that the peer makes by itself.
//!
//! A peer says first which window it goes to, and looks then whether that is open to it (a hazard pointer: Michael, 2004). This
//! side closes the window first, or the connection, and looks then whether the peer is there. In between stands a full fence on
//! both sides, so that one of the two sees the other.

use std::sync::atomic::Ordering;

use fabric_util::sync::{AtomicU32, AtomicU64, fence};

use crate::line::Line;

/// The peer is at no window.
const NOWHERE: u32 = 0;
/// The connection is not open to the peer.
const CLOSED: u64 = 0;

/// Valid for any bytes, zeros included, with which it begins.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Hazard {
    /// The window that the peer is at, by its number, which is not 0.
    at: Line<AtomicU32>,
    /// The name of the connection while it is open to the peer.
    connection: Line<AtomicU64>,
    /// Not 0: what the peer does [begins anew](crate::restart) where it was stopped.
    restarts: Line<AtomicU32>,
    /// Files of this side's memory that the peer has mapped.
    files: Line<AtomicU32>,
}

impl Hazard {
    /// The peer goes to a window; gives the connection's name if that is open to it. It has still to look whether the window
    /// is, and to [`leave`](Hazard::leave) in any case.
    #[inline]
    pub(crate) fn enter(&self, window: u32) -> Option<u64> {
        self.at.0.store(window, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let connection = self.connection.0.load(Ordering::Acquire);
        (connection != CLOSED).then_some(connection)
    }

    /// The name of the connection while it is open to the peer, to be looked at again.
    #[inline]
    pub(crate) fn connection(&self) -> &AtomicU64 {
        &self.connection.0
    }

    /// The peer says, before it goes anywhere, that what it does begins anew where it was stopped.
    pub(crate) fn set_restarts(&self) {
        self.restarts.0.store(1, Ordering::Release);
    }

    /// Whether a peer that was stopped at a closed window does nothing there any more.
    pub(crate) fn restarts(&self) -> bool {
        self.restarts.0.load(Ordering::Acquire) != 0
    }

    /// The peer has so many files of this side's memory mapped, until the connection ends.
    pub(crate) fn set_files(&self, files: usize) {
        self.files.0.store(files as u32, Ordering::Release);
    }

    /// How many of them it has.
    #[inline]
    pub(crate) fn files(&self) -> u32 {
        self.files.0.load(Ordering::Acquire)
    }

    /// The peer has left.
    #[inline]
    pub(crate) fn leave(&self) {
        self.at.0.store(NOWHERE, Ordering::Release);
    }

    /// The connection is open to the peer. Its name is not 0.
    pub(crate) fn open(&self, connection: u64) {
        self.connection.0.store(connection, Ordering::Release);
    }

    /// It is so no longer. The peer may still be [somewhere](Hazard::is_anywhere).
    pub(crate) fn close(&self) {
        self.connection.0.store(CLOSED, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the peer is at a window that was closed before a full fence.
    pub(crate) fn is_at(&self, window: u32) -> bool {
        self.at.0.load(Ordering::Acquire) == window
    }

    /// Whether the peer is at any, after the connection was closed.
    pub(crate) fn is_anywhere(&self) -> bool {
        self.at.0.load(Ordering::Acquire) != NOWHERE
    }
}

#[cfg(all(test, loom))]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_where_it_said() {
        let hazard = Hazard::default();
        assert_eq!(hazard.enter(3), None, "nothing is open yet");
        assert!(hazard.is_at(3) && !hazard.is_at(2) && hazard.is_anywhere());
        hazard.leave();
        assert!(!hazard.is_anywhere());
        hazard.open(7);
        assert_eq!(hazard.enter(1), Some(7));
        hazard.close();
        assert!(hazard.is_anywhere() && hazard.enter(1).is_none());
    }
}
