//! Posts to a connection: as far as there is room in it, and what a post that fails means.

use fabric::Op;
use fabric_core::{Error, cold_path};
use fabric_util::log_line;

use super::attr::CONTROL_DEPTH;
use super::link::{PeerLink, PostedKind, PostedOp};
use super::op::PayloadRef;
use super::shared::Shared;
use super::slots::Posting;
use super::table::OpKey;
use super::wire::{Encoded, Frame};
use crate::connection::ConnId;

/// Whether something was posted, or has to wait.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Yes,
    /// The connection has no room, or is no more.
    No,
}

/// Whether a post failed for a reason that passes: the end of a connection is reported by an event.
pub(super) fn has_to_wait(error: &Error) -> bool {
    matches!(error, Error::Again | Error::NotConnected | Error::DeviceLost)
}

/// How a frame goes.
#[derive(Clone, Copy, Default)]
pub(super) struct How {
    /// What begins a message waits for what the message is to wait for: all that follows is behind it.
    pub(super) fence: bool,
    /// No one waits for its acknowledgement.
    pub(super) lazy: bool,
}

impl How {
    fn of(self, op: Op<'_>) -> Op<'_> {
        let op = if self.fence { op.fence() } else { op };
        if self.lazy { op.lazy() } else { op }
    }
}

impl PeerLink {
    /// Whether the connection has room for one more, with so many left free.
    pub(super) fn has_room(&mut self, shared: &Shared, reserved: usize) -> bool {
        let depth = shared.attr.connection_depth as usize;
        self.current().is_some_and(|conn| conn.posted.len() + reserved < depth)
    }

    /// Posts to the current connection, if it has so much room left.
    pub(super) fn post(
        &mut self,
        shared: &mut Shared,
        what: (PostedKind, Option<u32>),
        op: impl FnOnce(u64, &fabric::Endpoint) -> Result<(), Error>,
    ) -> Sent {
        self.post_by(self.current, shared, what, op)
    }

    pub(super) fn post_by(
        &mut self,
        id: Option<ConnId>,
        shared: &mut Shared,
        what: (PostedKind, Option<u32>),
        op: impl FnOnce(u64, &fabric::Endpoint) -> Result<(), Error>,
    ) -> Sent {
        let posted = self.try_post_headed(id, shared, what, op);
        self.sent(shared, id, posted)
    }

    /// What a post comes to that the library made, or made later than the application: one that cannot be repeated ends the
    /// connection.
    pub(super) fn sent(
        &mut self,
        shared: &mut Shared,
        id: Option<ConnId>,
        posted: Result<(), Error>,
    ) -> Sent {
        let Err(error) = posted else { return Sent::Yes };
        let conn = id.and_then(|id| self.conn(id));
        self.lacks_room |=
            matches!(error, Error::Again) && conn.is_some_and(|conn| conn.posted.is_empty());
        if let Some(id) = id.filter(|_| !has_to_wait(&error)) {
            let peer = self.peer;
            log_line!(Warn, "{peer}: the connection ends, as a post failed: {error}");
            self.lose(shared, id);
        }
        Sent::No
    }

    fn try_post_headed(
        &mut self,
        id: Option<ConnId>,
        shared: &mut Shared,
        (what, head): (PostedKind, Option<u32>),
        op: impl FnOnce(u64, &fabric::Endpoint) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let posted = self.try_post(id, shared, (what, head), op);
        if posted.is_err() {
            head.into_iter().for_each(|head| shared.heads.give_back(head));
        }
        posted
    }

    #[inline(always)] // one place that is executed for each message calls it
    fn try_post(
        &mut self,
        id: Option<ConnId>,
        shared: &Shared,
        (what, head): (PostedKind, Option<u32>),
        op: impl FnOnce(u64, &fabric::Endpoint) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let depth = shared.attr.connection_depth as usize;
        let reserved = match what {
            PostedKind::Control | PostedKind::Park => 0,
            _ => CONTROL_DEPTH as usize,
        };
        match id.and_then(|id| self.conn(id)) {
            Some(conn) if conn.posted.len() + reserved < depth => {
                op(Posting::Sent(conn.next_post).to_bits(), &conn.endpoint)?;
                conn.posted.push_back(PostedOp { what, head });
                conn.next_post += 1;
                Ok(())
            }
            _ => Err(Error::Again),
        }
    }

    /// Posts a one-sided operation that was not kept, since nothing is before it. False: it has to wait.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn post_direct(
        &mut self,
        shared: &Shared,
        key: OpKey,
        op: &Op<'_>,
    ) -> Result<bool, Error> {
        let posted =
            self.try_post(self.current, shared, (PostedKind::Op(key), None), |context, to| {
                to.post(&op.signaled().context(context))
            });
        match posted {
            Ok(()) => Ok(true),
            Err(error) if has_to_wait(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Posts a frame without payload in the application's memory.
    pub(super) fn post_bytes(
        &mut self,
        shared: &mut Shared,
        (what, how): (PostedKind, How),
        bytes: &[u8],
    ) -> Sent {
        let op = how.of(Op::inject(bytes));
        self.post(shared, (what, None), |context, to| to.post(&op.context(context)))
    }

    /// Sends a control message. False: there is no room, or no connection any more.
    pub(super) fn send_control(&mut self, shared: &mut Shared, frame: Frame) -> bool {
        let what = (PostedKind::Control, How { lazy: true, ..How::default() });
        self.post_bytes(shared, what, frame.encode().as_bytes()) == Sent::Yes
    }

    /// A frame with its payload: a short one is copied, so that its memory is free at once; a long one goes from where it is.
    ///
    /// # Errors
    /// `Again`, and what else [has to wait](has_to_wait); that the memory is closed.
    #[inline(always)] // one place that is executed for each message calls it
    pub(super) fn post_frame(
        &mut self,
        shared: &mut Shared,
        key: OpKey,
        frame: &mut Encoded,
        (payload, how): (PayloadRef<'_>, How),
    ) -> Result<(), Error> {
        match payload {
            PayloadRef::Slice(slice)
                if frame.len() + slice.len() > shared.connection_attr.inject =>
            {
                cold_path(); // for a long message
                let (at, kept) = shared.heads.write(frame.as_bytes()).map_err(|_| Error::Again)?;
                let slices = [kept.slice(frame.len()), slice];
                let what = (PostedKind::Op(key), Some(at));
                // Its memory is the application's again when it is acknowledged.
                let op = How { lazy: false, ..how }.of(Op::send(&slices[..]));
                self.try_post_headed(self.current, shared, what, |context, to| {
                    to.post(&op.context(context))
                })
            }
            payload => {
                let room = frame.room(payload.len());
                match payload {
                    PayloadRef::Slice(slice) => slice.read_at(0, room)?,
                    PayloadRef::Bytes(from) => room.copy_from_slice(from),
                }
                let op = how.of(Op::inject(frame.as_bytes()));
                self.try_post(self.current, shared, (PostedKind::Op(key), None), |context, to| {
                    to.post(&op.context(context))
                })
            }
        }
    }
}
