//! Completion queues and their channels.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::context::{Context, nonblocking};
use super::destroy::destroyed;
use crate::ffi::{self, errno, ibv_wc, pointer};

/// A completion channel: a descriptor that becomes readable when an armed queue gets a completion.
pub(crate) struct Channel {
    channel: NonNull<ffi::ibv_comp_channel>,
    _context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Channel {}
// SAFETY: as for `Context`.
unsafe impl Sync for Channel {}

impl Channel {
    /// A channel that does not block.
    pub(crate) fn new(context: &Arc<Context>) -> io::Result<Self> {
        // SAFETY: the context is open.
        let channel = unsafe { ffi::ibv_create_comp_channel(context.as_ptr()) };
        let channel = pointer("ibv_create_comp_channel", channel)?;
        let this = Channel { channel, _context: context.clone() };
        nonblocking(this.as_fd())?;
        Ok(this)
    }

    /// Takes and acknowledges every event that waits.
    pub(crate) fn clear(&self) {
        let (mut cq, mut context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: both are written if it returns 0 (ibv_get_cq_event(3)); the channel does not block.
        while unsafe { ffi::ibv_get_cq_event(self.channel.as_ptr(), &mut cq, &mut context) } == 0 {
            // SAFETY: the queue that the event is of; it lives, since its destruction waits for this call.
            unsafe { ffi::ibv_ack_cq_events(cq, 1) };
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the channel's, open as long as it lives.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_ref().fd) }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made by ibv_create_comp_channel, destroyed once; its queues held it by `Arc`.
        destroyed("ibv_destroy_comp_channel", unsafe {
            ffi::ibv_destroy_comp_channel(self.channel.as_ptr())
        });
    }
}

/// A completion queue.
pub(crate) struct Cq {
    cq: NonNull<ffi::ibv_cq>,
    pub(crate) channel: Channel,
}

// SAFETY: as for `Context`.
unsafe impl Send for Cq {}
// SAFETY: as for `Context`.
unsafe impl Sync for Cq {}

impl Cq {
    /// A queue for at least `entries` completions, with a channel of its own.
    pub(crate) fn new(context: &Arc<Context>, entries: usize, vector: u32) -> io::Result<Self> {
        let channel = Channel::new(context)?;
        let entries = i32::try_from(entries).unwrap_or(i32::MAX);
        let (none, raw) = (ptr::null_mut(), channel.channel.as_ptr());
        // SAFETY: context and channel live as long as the queue, which holds the channel, which holds the context.
        let cq = unsafe { ffi::ibv_create_cq(context.as_ptr(), entries, none, raw, vector as i32) };
        Ok(Cq { cq: pointer("ibv_create_cq", cq)?, channel })
    }

    pub(crate) fn as_ptr(&self) -> *mut ffi::ibv_cq {
        self.cq.as_ptr()
    }

    /// Takes completions. A queue that fails (it overflowed, the device is gone) yields none: an event of the device reports it.
    #[inline]
    pub(crate) fn poll<'a>(&self, room: &'a mut [MaybeUninit<ibv_wc>]) -> &'a [ibv_wc] {
        let max = room.len() as i32;
        // SAFETY: at most `max` entries are written (ibv_poll_cq(3)).
        let got = unsafe { ffi::ibv_poll_cq(self.as_ptr(), max, room.as_mut_ptr().cast()) };
        let got = got.clamp(0, max) as usize;
        // SAFETY: the first `got` were written.
        unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), got) }
    }

    /// Asks for one event on the channel, for the next completion (`only_errors`: the next that failed).
    pub(crate) fn arm(&self, only_errors: bool) -> io::Result<()> {
        // SAFETY: the queue lives.
        errno("ibv_req_notify_cq", unsafe {
            ffi::ibv_req_notify_cq(self.as_ptr(), only_errors.into())
        })
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        self.channel.clear();
        // SAFETY: made by ibv_create_cq, destroyed once; queue pairs held it by `Arc`; its events are acknowledged.
        destroyed("ibv_destroy_cq", unsafe { ffi::ibv_destroy_cq(self.as_ptr()) });
    }
}
