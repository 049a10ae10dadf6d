//! An endpoint that can transfer, and its completions on their way to the queues that they are for.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fabric::{Access, Armed, OpKind, Region};
use fabric_rdm::{Completion, Endpoint, Kind, PostError, RdmAttr, Status};

use super::behind::Atomics;
use super::copies::Copies;
use super::peers::PeerMap;
use super::pending::{Claims, Pending, PendingTable, Wants};
use crate::abi::flags::{
    FI_ADDR_UNSPEC, FI_ATOMIC, FI_ETRUNC, FI_MULTI_RECV, FI_READ, FI_RECV, FI_REMOTE_CQ_DATA,
    FI_REMOTE_WRITE, FI_RMA, FI_WRITE,
};
use crate::discovery::{FENCED_ATOMICS, FENCED_WRITES, ORDER_WITH_ATOMICS};
use crate::errno::Errno;
use crate::objects::av::{AddressUser, AddressVector};
use crate::objects::bound::{Bound, RX, TX};
use crate::objects::completions::{Completions, Feed, Reader};
use crate::objects::devices::RegionHolder;
use crate::objects::domain::Domain;
use crate::objects::done::{Done, Whose};
use crate::objects::endpoint::Wishes;
use crate::objects::marks;
use crate::objects::tally::Tally;
use crate::sync::lock;

/// Completions that are taken at a time.
const BATCH: usize = 64;
/// How long a close waits until peers have what was injected: that counts as done when the call returns.
const LINGER: Duration = Duration::from_secs(1);
/// How often it looks.
const TICK: Duration = Duration::from_micros(200);

/// See above.
pub(crate) struct RdmEnabled {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) domain: Arc<Domain>,
    pub(super) id: Whose,
    /// Of transmits, of receives: whether only those that ask for it have a completion.
    pub(super) is_selective: [bool; 2],
    /// Writes, and atomics, wait for what was read before them: what has these flags has a fence.
    pub(super) fenced: u64,
    /// Where what is behind them waits.
    pub(super) atomics: Option<Atomics>,
    /// Operations that may be outstanding.
    depths: [usize; 2],
    pub(super) tally: Tally,
    pub(super) completions: [Arc<Completions>; 2],
    pub(super) pending: Mutex<PendingTable>,
    pub(super) peers: PeerMap,
    pub(super) claims: Mutex<Claims>,
    /// For short messages of buffers without a region.
    pub(super) copies: Copies,
    /// For operations without bytes.
    pub(super) nothing: Region,
    /// Held from taking completions to giving them away: so their order stays.
    taken: Mutex<Taken>,
}

struct Taken {
    completions: Box<[Completion]>,
    /// Nothing is reported any more.
    is_over: bool,
}

impl RdmEnabled {
    pub(super) fn new(
        domain: &Arc<Domain>,
        (attr, wishes): (&RdmAttr, &Wishes),
        bound: &Bound,
        vector: &Arc<AddressVector>,
    ) -> Result<Arc<Self>, Errno> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let device = &domain.device.domain;
        let completions = bound.completions(domain, wishes.caps)?;
        let enabled = Arc::new(RdmEnabled {
            endpoint: Arc::new(Endpoint::new(device, attr)?),
            domain: domain.clone(),
            id: Whose::Datagram(NUMBERS.fetch_add(1, Ordering::Relaxed)),
            is_selective: bound.is_selective,
            fenced: fenced(wishes.order),
            atomics: orders_atomics(wishes).then(Atomics::default),
            depths: [attr.send_depth as usize, attr.recv_depth as usize],
            tally: bound.tally.clone(),
            completions,
            pending: Mutex::default(),
            peers: PeerMap::new(vector.clone()),
            claims: Mutex::default(),
            copies: Copies::new(device),
            nothing: device.alloc(64, Access::LOCAL_WRITE)?,
            taken: Mutex::new(Taken {
                completions: vec![Completion::default(); BATCH].into(),
                is_over: false,
            }),
        });
        bound.feed_counters(&enabled.completions);
        let user: Arc<dyn AddressUser> = enabled.clone();
        vector.add_user(Arc::downgrade(&user));
        let holder: Arc<dyn RegionHolder> = enabled.clone();
        domain.device.add_holder(Arc::downgrade(&holder));
        let feed: Arc<dyn Feed> = enabled.clone();
        enabled.completions[TX].add_feed(feed.clone())?;
        if !enabled.has_one_queue() {
            let added = enabled.completions[RX].add_feed(feed.clone());
            added.inspect_err(|_| enabled.completions[TX].remove_feed(&feed, enabled.id))?;
        }
        Ok(enabled)
    }

    fn has_one_queue(&self) -> bool {
        Arc::ptr_eq(&self.completions[TX], &self.completions[RX])
    }

    /// How many completions may be taken: as many as one of the queues has room for. One that is full does not keep those of the
    /// other side back, and gets more than its size: no more than posts allow, and what peers write.
    fn room(&self) -> usize {
        let sides = self.completions.iter().zip(self.depths);
        if sides.clone().any(|(queue, depth)| queue.excess() >= depth.saturating_mul(2)) {
            return 0;
        }
        sides.map(|(queue, _)| queue.room()).max().unwrap_or(0)
    }

    /// Ends all of it: nothing is reported of it any more.
    pub(super) fn end(self: &Arc<Self>) {
        let until = Instant::now() + LINGER;
        // A completion that no one reads keeps its operation outstanding.
        self.linger(until, || self.room() > 0 && self.endpoint.outstanding().unwrap_or(0) > 0);
        lock(&self.claims).clear();
        // Peers are to hear of the end of what they sent.
        if self.endpoint.park_all().is_ok() {
            self.linger(until, || self.endpoint.connections().unwrap_or(0) > 0);
        }
        // Threads that read find no more of it for one of these queues.
        lock(&self.taken).is_over = true;
        let feed: Arc<dyn Feed> = self.clone();
        for queue in &self.completions {
            queue.remove_feed(&feed, self.id);
        }
        // A thread that sleeps on a counter still has it for a moment, and with it what operations write to.
        drop(feed);
        let until = Instant::now() + LINGER;
        while Arc::strong_count(self) > 1 && Instant::now() < until {
            std::thread::sleep(TICK);
        }
    }

    /// Goes on as long as there is something to wait for, until the time has come.
    fn linger(&self, until: Instant, waits: impl Fn() -> bool) {
        while self.feed(None).is_ok() && waits() && Instant::now() < until {
            std::thread::sleep(TICK);
        }
    }

    /// Posts an operation: what it is to report is known before it can end, for its completion waits for this lock.
    #[inline]
    pub(super) fn post(
        &self,
        pending: Pending,
        post: impl FnOnce(u64) -> Result<fabric_rdm::OpId, PostError>,
    ) -> Result<(), Errno> {
        let side = if pending.flags & FI_RECV != 0 { RX } else { TX };
        if pending.wants != Wants::Nothing && self.completions[side].excess() >= self.depths[side] {
            // The application does not read what has ended.
            self.give_back(&pending, 0);
            return Err(Errno::AGAIN);
        }
        let mut table = lock(&self.pending);
        let context = table.add(pending);
        match post(context) {
            Ok(op) => {
                table.set_op(context, op);
                Ok(())
            }
            Err(error) => {
                table.remove(context);
                drop(table);
                self.give_back(&pending, 0);
                Err(self.refused(error))
            }
        }
    }

    /// What a post that was refused answers. A program that only injects has nothing to read: what has ended makes room all the same.
    #[cold]
    pub(super) fn refused(&self, error: PostError) -> Errno {
        let errno = refused(error);
        if errno == Errno::AGAIN
            && let Err(why) = self.feed(None)
        {
            log::debug!("nothing is taken: {why:?}");
        }
        errno
    }

    /// What an operation had for its message is free; so many bytes of that have come.
    fn give_back(&self, pending: &Pending, len: usize) {
        if let Some(copied) = pending.copied {
            // SAFETY: bytes come for receives and reads alone, and their buffers are theirs until the application reads that
            // (fi_msg(3), fi_rma(3)).
            unsafe { self.copies.give_back(copied, len) };
        }
    }

    /// Cancels the operation with this context of the application's.
    pub(super) fn cancel(&self, context: u64) -> Result<(), Errno> {
        let op = lock(&self.pending).find_op(context).ok_or(Errno(libc::ENOENT))?;
        match self.endpoint.cancel(op)? {
            true => Ok(()),
            // It ends as it would have, or has.
            false => Err(Errno(libc::ENOENT)),
        }
    }

    /// What the application reads of a completion, and on which side.
    fn done(&self, table: &mut PendingTable, completion: &Completion) -> Option<(usize, Done)> {
        if completion.kind == Kind::RecvWrite {
            return Some((RX, self.written(completion)));
        }
        if completion.context == marks::injected() {
            return None;
        }
        let is_many = completion.kind == Kind::Recv
            && table.get(completion.context).is_some_and(|one| one.flags & FI_MULTI_RECV != 0);
        let pending = match is_many {
            true => table.get(completion.context)?,
            false => table.remove(completion.context)?,
        };
        let came = match completion.kind {
            Kind::Recv => completion.len as usize,
            // What a read asks for comes whole, or counts for nothing.
            _ if pending.flags & FI_READ != 0 && completion.is_ok() => usize::MAX,
            _ => 0,
        };
        self.give_back(&pending, came);
        let mut flags = pending.flags & !FI_MULTI_RECV;
        let (side, counted) = match completion.kind {
            Kind::Recv | Kind::Released => (RX, OpKind::Recv),
            Kind::Send => (TX, OpKind::Send),
            _ if flags & FI_READ != 0 => (TX, OpKind::Read),
            _ => (TX, OpKind::Write),
        };
        let mut buffer = if is_many { pending.buffer + completion.offset as usize } else { 0 };
        if completion.kind == Kind::Released {
            (flags, buffer) = (FI_MULTI_RECV, pending.buffer);
        } else {
            self.tally.add(counted, completion.is_ok());
        }
        let error = error_of(completion.status);
        match pending.wants {
            Wants::Nothing => return None,
            Wants::Error if error.is_none() && completion.kind != Kind::Released => return None,
            _ => {}
        }
        flags |= if completion.immediate.is_some() { FI_REMOTE_CQ_DATA } else { 0 };
        let source = match (side, completion.peer) {
            (RX, Some(peer)) => self.peers.number(&self.endpoint, peer),
            _ => FI_ADDR_UNSPEC,
        };
        let len = if completion.kind == Kind::Released { 0 } else { completion.len as usize };
        let done = Done {
            endpoint: self.id,
            context: pending.context,
            flags,
            len,
            data: completion.immediate.map_or(0, u64::from),
            tag: completion.tag.unwrap_or(0),
            buffer,
            source,
            overflow: (completion.message_len.saturating_sub(completion.len)) as usize,
            error: error.map(|errno| (errno, 0)),
        };
        Some((side, done))
    }

    /// A peer's write with data: an application hears of each, whatever it asked for (`fi_cq(3)`, `FI_REMOTE_CQ_DATA`).
    fn written(&self, completion: &Completion) -> Done {
        let source = completion.peer.map(|peer| self.peers.number(&self.endpoint, peer));
        Done {
            endpoint: self.id,
            context: 0,
            flags: FI_REMOTE_WRITE | FI_RMA | FI_REMOTE_CQ_DATA,
            len: completion.len as usize,
            data: completion.immediate.map_or(0, u64::from),
            tag: 0,
            buffer: 0,
            source: source.unwrap_or(FI_ADDR_UNSPEC),
            overflow: 0,
            error: None,
        }
    }
}

impl Feed for RdmEnabled {
    fn feed(&self, mut reader: Option<&mut Reader<'_>>) -> Result<usize, Errno> {
        let mut taken = lock(&self.taken);
        if taken.is_over {
            return Ok(0);
        }
        if let Some(reader) = &mut reader {
            reader.empty_inbox();
        }
        let room = self.room().min(BATCH);
        if room == 0 {
            // An application that does not read has what it posted done all the same.
            self.endpoint.progress()?;
            return Ok(0);
        }
        let count = self.endpoint.poll(&mut taken.completions[..room])?;
        if count == 0 {
            return Ok(0);
        }
        let mut table = lock(&self.pending);
        for completion in &taken.completions[..count] {
            if let Some((side, done)) = self.done(&mut table, completion) {
                let queue = &self.completions[side];
                match &mut reader {
                    Some(reader) if reader.has(queue) => reader.push(done),
                    _ => queue.push(done),
                }
            }
        }
        Ok(count)
    }

    fn arm(&self) -> Result<Armed, Errno> {
        Ok(self.endpoint.arm()?)
    }

    fn descriptor(&self) -> Result<BorrowedFd<'_>, Errno> {
        Ok(self.endpoint.descriptor()?)
    }
}

impl RegionHolder for RdmEnabled {
    fn release(&self, region: u64) {
        let receives = lock(&self.pending).of_region(region);
        for receive in receives {
            if let Err(error) = self.endpoint.cancel(receive) {
                log::debug!("a receive is not canceled: {error}");
            }
        }
    }
}

impl AddressUser for RdmEnabled {
    fn forget(&self, number: u64, address: SocketAddr) {
        if let Some(peer) = self.peers.forget(&self.endpoint, number, address)
            && let Err(error) = self.endpoint.remove(peer)
        {
            log::debug!("{peer} is not removed: {error}");
        }
    }
}

/// Whether whatever is behind an atomic waits for it.
fn orders_atomics(wishes: &Wishes) -> bool {
    let has_atomics = wishes.caps == 0 || wishes.caps & FI_ATOMIC != 0;
    has_atomics && wishes.order & ORDER_WITH_ATOMICS != 0
}

/// The kinds of operations that need a fence for an order.
fn fenced(order: u64) -> u64 {
    let writes = if order & FENCED_WRITES != 0 { FI_RMA | FI_WRITE } else { 0 };
    let atomics = if order & FENCED_ATOMICS != 0 { FI_ATOMIC } else { 0 };
    writes | atomics
}

fn refused(error: PostError) -> Errno {
    match error {
        PostError::Again(_) => Errno::AGAIN,
        PostError::PeerDown(cause) => {
            log::info!("the peer is down: {cause}");
            Errno(libc::ECONNRESET)
        }
        PostError::Fabric(error) => error.into(),
        _ => Errno::OTHER,
    }
}

/// What an operation that ended so has in its error entry.
fn error_of(status: Status) -> Option<Errno> {
    Some(Errno(match status {
        Status::Ok => return None,
        Status::Truncated => FI_ETRUNC,
        Status::Canceled => libc::ECANCELED,
        Status::PeerLost => libc::ECONNRESET,
        Status::PeerGone => libc::ECONNREFUSED,
        Status::RemoteAccess => libc::EACCES,
        _ => libc::EIO,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::flags::{FI_ORDER_ATOMIC_WAW, FI_ORDER_RMA_WAR, FI_ORDER_SAS, FI_ORDER_WAR};

    #[test]
    fn orders_that_need_fences() {
        assert_eq!(fenced(FI_ORDER_SAS), 0);
        assert_eq!(fenced(FI_ORDER_RMA_WAR), FI_RMA | FI_WRITE);
        assert_eq!(fenced(FI_ORDER_SAS | FI_ORDER_ATOMIC_WAW), FI_ATOMIC);
        assert_eq!(fenced(FI_ORDER_WAR), FI_RMA | FI_WRITE | FI_ATOMIC);
    }
}
