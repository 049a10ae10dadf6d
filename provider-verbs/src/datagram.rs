//! Datagram endpoints: a UD queue pair each. Their receives are in `datagram_receive.rs`.
//!
//! All have one Q_Key, so that a datagram can be answered by its source alone, and the device drops what others send. The device
//! does not say what it drops.

use std::any::Any;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Weak};

use fabric_core::datagram::MAX_DATAGRAM_SEGMENTS;
use fabric_core::{
    AddressHandleOps, DatagramAddress, DatagramAttr, DatagramDrops, DatagramKind, DatagramOps,
    DatagramSources, DatagramWork, EndpointAttr, Error, Failure, Posted, RawCompletion, RecvWork,
    Result, SendFlags, Side, Status, Token,
};
use fabric_util::sync::Mutex;

use crate::bounce::Bounce;
use crate::chain::OWN_SEGMENTS;
use crate::cq::{CqMember, Queue, Sink, VerbsCq};
use crate::datagram_receive::DatagramReceiver;
use crate::device::device_and_port;
use crate::domain::state::{DatagramEvents, DomainState, Stops};
use crate::error::{NAME, failed};
use crate::ffi::{self, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wc_status, ibv_wr_opcode};
use crate::handle::{Ah, Qp, QpAttributes, QpState, Route};
use crate::open_device::OpenDevice;
use crate::post::refused;
use crate::sysfs::Sysfs;
use crate::tokens::Tokens;

const OP: &str = "make datagram endpoint";

/// The Q_Key of all datagram endpoints of this library. Without the highest bit, which means another thing (InfiniBand
/// specification, "Q_Key").
const Q_KEY: u32 = 0x0fab_0d67;

/// What it has resolved.
struct VerbsAddress {
    ah: Ah,
    qp_number: u32,
}

impl AddressHandleOps for VerbsAddress {}

/// The queue pair, as the domain and its completion queues know it.
pub(crate) struct DatagramQp {
    qp: Qp,
    /// Held while the queue pair is modified, asked or destroyed.
    life: Mutex<()>,
    send_queue: Arc<Queue>,
    recv_queue: Arc<Queue>,
    receiver: Arc<DatagramReceiver>,
    bounce: Option<Bounce>,
    tokens: Tokens,
    /// A request has failed, or the device is gone: nothing is posted any more.
    broken: AtomicBool,
    /// The device has refused to flush what is in flight.
    refused: AtomicBool,
    device: Arc<OpenDevice>,
    domain: Weak<DomainState>,
}

/// A datagram endpoint.
pub(crate) struct VerbsDatagrams {
    pair: Arc<DatagramQp>,
    domain: Arc<DomainState>,
    address: DatagramAddress,
    sgid_index: u8,
    ethernet: bool,
}

impl VerbsDatagrams {
    pub(crate) fn new(
        domain: &Arc<DomainState>,
        attr: &DatagramAttr,
        sources: &Arc<DatagramSources>,
        (send, recv): (&VerbsCq, &VerbsCq),
    ) -> Result<Self> {
        let device = &domain.device;
        device.check()?;
        let own = OwnGid::of(domain, attr.source_of(&device.info)?)?;
        let inline = if device.test_limits.no_inline { 0 } else { attr.inject as u32 };
        let wanted = QpAttributes {
            send_depth: attr.send_depth as u32,
            recv_depth: attr.recv_depth as u32,
            send_segments: MAX_DATAGRAM_SEGMENTS as u32,
            recv_segments: (MAX_DATAGRAM_SEGMENTS + OWN_SEGMENTS) as u32,
            inline,
            atomics: false,
        };
        let queues = (send.queue.cq(), recv.queue.cq());
        let fail = |cause| failed(OP, "the queue pair, or the device has no more of them", cause);
        let qp = Qp::datagram(&device.pd, queues, &wanted, device.port, Q_KEY).map_err(fail)?;
        let mut copied = EndpointAttr::default();
        (copied.inject, copied.send_depth) = (attr.inject, attr.send_depth);
        // Injects are copied to registered memory then.
        let bounce = ((qp.inline() as usize) < attr.inject)
            .then(|| Bounce::new(&device.pd, &copied))
            .transpose()?;
        let longest = device.info.limits.datagram;
        let receiver = DatagramReceiver::new(
            &device.pd,
            attr.recv_depth,
            longest,
            (own.gid, own.ethernet),
            sources,
        )?;
        let address = DatagramAddress::ud(own.gid, own.lid, qp.number())?;
        let pair = Arc::new(DatagramQp {
            qp,
            life: Mutex::new(()),
            send_queue: send.queue.clone(),
            recv_queue: recv.queue.clone(),
            receiver,
            bounce,
            tokens: Tokens::new(attr.send_depth),
            broken: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            device: device.clone(),
            domain: Arc::downgrade(domain),
        });
        pair.send_queue.add(pair.clone());
        pair.recv_queue.add(pair.clone());
        pair.recv_queue.add_datagrams(pair.qp.number(), pair.receiver.clone());
        domain.datagrams.lock().push(pair.clone());
        let (sgid_index, ethernet) = (own.index, own.ethernet);
        let made = VerbsDatagrams { pair, domain: domain.clone(), address, sgid_index, ethernet };
        // The thread that ended all others may not have seen this one.
        device.check().map(|()| made)
    }
}

/// The GID of an endpoint, among those of its port.
struct OwnGid {
    gid: [u8; 16],
    index: u8,
    lid: u16,
    ethernet: bool,
}

impl OwnGid {
    fn of(domain: &DomainState, source: IpAddr) -> Result<Self> {
        let device = &domain.device;
        let fail = |cause| Error::system(OP, NAME, cause);
        let (name, number) = device_and_port(&device.info.device);
        let port = device.pd.context.port(number).map_err(fail)?;
        let gids = Sysfs::at("/sys").gids(name, number, &port.gid_slots);
        // On InfiniBand the first is that of the port itself.
        let own = gids
            .iter()
            .find(|gid| !port.ethernet || gid.is_roce_v2() && gid.address() == Some(source));
        let own = own.and_then(|gid| Some((gid.id.octets(), u8::try_from(gid.index).ok()?)));
        let (gid, index) = own.ok_or_else(|| {
            let text = format!("{name}, port {number}, has no GID for {source}");
            Error::Internal(Failure::new(OP, text).of(NAME))
        })?;
        let (lid, ethernet) = (if port.ethernet { 0 } else { port.lid }, port.ethernet);
        Ok(OwnGid { gid, index, lid, ethernet })
    }
}

impl DatagramEvents for DatagramQp {
    fn lose(&self) {
        self.broken.store(true, Ordering::Release);
        // Orders the flag before the flush: a post that does not see the one is seen by the other.
        fence(Ordering::SeqCst);
        self.flush();
        self.send_queue.drain();
        self.recv_queue.drain();
    }
}

impl Stops for DatagramQp {
    fn stop(&self, anew: bool) -> bool {
        let asked = anew && self.broken.load(Ordering::Acquire);
        (asked || self.refused.load(Ordering::Acquire)) && self.try_flush()
    }

    fn queues(&self) -> [&Arc<Queue>; 2] {
        [&self.send_queue, &self.recv_queue]
    }
}

impl DatagramQp {
    /// Has the device flush what is in flight. Where it refuses, it may go on with that: the domain tries again.
    fn flush(&self) {
        if self.try_flush()
            && let Some(domain) = self.domain.upgrade()
        {
            domain.seek_proof();
        }
    }

    /// Whether the device refuses.
    fn try_flush(&self) -> bool {
        let _life = self.life.lock();
        let refused = self.device.fail(&self.qp).is_err();
        self.refused.store(refused, Ordering::Release);
        refused
    }

    fn refusal(&self, domain: &DomainState) -> Option<Error> {
        if domain.device.is_lost() {
            return Some(Error::DeviceLost);
        }
        let text = "the device has failed this endpoint: make a new one";
        let broken = self.broken.load(Ordering::Acquire);
        broken.then(|| Error::Internal(Failure::new("post", text).of(NAME)))
    }

    /// # Safety
    /// As [`DatagramOps::post_send`].
    unsafe fn send(&self, work: &DatagramWork<'_>) -> Result<()> {
        let to: &dyn Any = work.to;
        let VerbsAddress { ah, qp_number } = to
            .downcast_ref()
            .ok_or_else(|| Error::invalid("send_to", "a handle of another provider"))?;
        let blank = || ibv_sge { addr: 0, length: 0, lkey: 0 };
        let mut segments: [ibv_sge; MAX_DATAGRAM_SEGMENTS] = std::array::from_fn(|_| blank());
        // SAFETY: numbers and pointers; zero is a value of each.
        let mut request: ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
        let mut flags = ibv_send_flags::IBV_SEND_SIGNALED;
        let count = match &self.bounce {
            Some(bounce) if work.flags.contains(SendFlags::INJECT) => {
                let (addr, length, lkey) = bounce.copy(work.token, work.segments);
                segments[0] = ibv_sge { addr, length, lkey };
                usize::from(length > 0)
            }
            _ => {
                for (to, from) in segments.iter_mut().zip(work.segments) {
                    let (addr, length) = (from.addr as u64, from.len as u32);
                    *to = ibv_sge { addr, length, lkey: from.key as u32 };
                }
                if work.flags.contains(SendFlags::INJECT) {
                    flags |= ibv_send_flags::IBV_SEND_INLINE;
                }
                work.segments.len().min(segments.len())
            }
        };
        request.wr_id = work.token.to_bits();
        (request.sg_list, request.num_sge) = (segments.as_mut_ptr(), count as i32);
        request.opcode = ibv_wr_opcode::IBV_WR_SEND;
        if let Some(immediate) = work.imm {
            request.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_IMM;
            request.imm_data_invalidated_rkey_union.imm_data = immediate.to_be();
        }
        request.send_flags = flags.0;
        request.wr.ud.ah = ah.as_ptr();
        (request.wr.ud.remote_qpn, request.wr.ud.remote_qkey) = (*qp_number, Q_KEY);
        self.tokens.note_send(work.token, true);
        // SAFETY: the caller's promise; request and segments are on this stack until the call returns.
        unsafe { self.qp.post_send(&mut request) }.map_err(|(_, cause)| {
            self.tokens.take_back(work.token);
            refused(cause)
        })
    }

    /// A post came when the flush may have been over: it is repeated.
    fn flush_late(&self) {
        fence(Ordering::SeqCst);
        if self.broken.load(Ordering::Relaxed) {
            self.lose();
        }
    }
}

impl CqMember for DatagramQp {
    fn qp_number(&self) -> u32 {
        self.qp.number()
    }

    fn complete(&self, wr_id: u64, ended: ibv_wc_status::Type, sink: &mut Sink<'_>) {
        let token = Token::from_bits(wr_id);
        if Token::is_internal(wr_id) || !self.tokens.owns(token) {
            return;
        }
        let status = match ended {
            ibv_wc_status::IBV_WC_WR_FLUSH_ERR => Status::Canceled,
            _ => Status::Internal,
        };
        if !self.broken.swap(true, Ordering::AcqRel) {
            // What is in flight behind it ends too.
            self.flush();
        }
        let mut completion = RawCompletion::new(token, status);
        completion.provider_code = ended;
        sink.push(completion);
    }

    fn cancel_read(&self, read: Token, sink: &mut Sink<'_>) {
        // There are none.
        sink.push(RawCompletion::new(read, Status::Canceled));
    }

    fn cancel_in_flight(&self, queue: &Queue, sink: &mut Sink<'_>) {
        for (side, of) in [(Side::Send, &self.send_queue), (Side::Recv, &self.recv_queue)] {
            if let Some(last) =
                std::ptr::eq(&**of, queue).then(|| self.tokens.take_last(side)).flatten()
            {
                let mut canceled = RawCompletion::new(last, Status::Canceled);
                canceled.flushes_earlier = true;
                sink.push(canceled);
            }
        }
    }

    fn is_broken(&self) -> bool {
        let _life = self.life.lock();
        matches!(self.qp.state(), Ok(QpState::Error))
    }
}

// SAFETY: the device completes each request that it took once, and what fails is reported by `complete`; segments are reached by
// the device until a completion, or until `quiesce` has destroyed the queue pair, which says so if it cannot.
unsafe impl DatagramOps for VerbsDatagrams {
    fn address(&self) -> DatagramAddress {
        self.address
    }

    fn resolve(&self, address: &DatagramAddress) -> Result<Box<dyn AddressHandleOps>> {
        let fail = |text: String| Failure::new("resolve", text).of(NAME);
        let own = self.address;
        let fits = address.kind() == DatagramKind::Ud
            && (address.lid() == 0) == self.ethernet
            && (!self.ethernet || address.ip().is_ipv4() == own.ip().is_ipv4());
        if !fits {
            return Err(Error::InvalidArgument(fail(format!(
                "{address:?} cannot be reached from {own:?}: it takes one of the same kind and family"
            ))));
        }
        self.domain.device.check()?;
        let (gid, lid, sgid_index) = (address.gid(), address.lid(), self.sgid_index);
        let route = Route { gid, lid, sgid_index, port: self.domain.device.port };
        let ah =
            Ah::new(&self.domain.device.pd, &route).map_err(|cause| match ffi::code(&cause) {
                Some(libc::ENOMEM | libc::EMFILE | libc::EPERM) => {
                    failed("resolve", "the address", cause)
                }
                _ => {
                    let text = format!("no way is known to {address:?}");
                    Error::Unreachable(fail(text).because(cause))
                }
            })?;
        Ok(Box::new(VerbsAddress { ah, qp_number: address.number() }))
    }

    unsafe fn post_send(&self, work: &[DatagramWork<'_>]) -> Posted {
        if let Some(refusal) = self.pair.refusal(&self.domain) {
            return Posted::until(0, refusal);
        }
        for (i, one) in work.iter().enumerate() {
            // SAFETY: the caller's promise.
            if let Err(error) = unsafe { self.pair.send(one) } {
                return Posted::until(i, error);
            }
        }
        self.pair.flush_late();
        Posted::all(work.len())
    }

    unsafe fn post_recv(&self, work: &[RecvWork<'_>]) -> Posted {
        if let Some(refusal) = self.pair.refusal(&self.domain) {
            return Posted::until(0, refusal);
        }
        let pair = &self.pair;
        // Before the device has them, which may complete them at once.
        if let Some(last) = work.last() {
            pair.tokens.note_recv(last.token);
        }
        // SAFETY: the caller's promise.
        let posted = unsafe { pair.receiver.post(&pair.qp, work) };
        if posted.accepted < work.len()
            && let Some(last) = posted.accepted.checked_sub(1).and_then(|last| work.get(last))
        {
            pair.tokens.note_recv(last.token);
        }
        pair.flush_late();
        posted
    }

    fn quiesce(&self) -> Result<()> {
        let pair = &self.pair;
        let is_other = |other: &Arc<dyn DatagramEvents>| {
            !std::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(pair))
        };
        self.domain.datagrams.lock().retain(is_other);
        // A device may discard the completions of a queue pair that it destroys: take them first.
        pair.send_queue.drain();
        pair.recv_queue.drain();
        let life = pair.life.lock();
        // SAFETY: posts do not come beside or after `quiesce`, and everything else takes the lock.
        let destroyed = unsafe { pair.qp.destroy() };
        drop(life);
        // Those of its last moment are still there on others.
        pair.send_queue.drain();
        pair.recv_queue.drain();
        pair.send_queue.remove(&**pair);
        pair.recv_queue.remove(&**pair);
        pair.recv_queue.forget_datagrams(pair.qp.number(), &*pair.receiver);
        self.domain.device.unless_gone(destroyed).map_err(|cause| {
            pair.receiver.keep();
            std::mem::forget(pair.clone());
            let text = "the queue pair stays until the process ends";
            Error::Internal(Failure::new("end", text).of(NAME).because(cause))
        })
    }

    fn drops(&self) -> DatagramDrops {
        DatagramDrops::default()
    }

    fn dump(&self) -> String {
        let (number, broken) = (self.pair.qp.number(), self.pair.broken.load(Ordering::Relaxed));
        format!("{:?}: queue pair {number}, broken: {broken}", self.address)
    }
}

impl Drop for VerbsDatagrams {
    fn drop(&mut self) {
        // Mostly done before, and then this says the same once more. Queues and domain must not hold what has no owner.
        let _ = self.quiesce();
    }
}
