//! The memory of a domain, and who reaches it: what it allocates, the windows of what is registered, and their visitors.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fabric_core::{EndpointId, Error, Memory, Result};
use fabric_util::fork::ForkEpoch;
use fabric_util::region_table::{WindowAttr, Windows};
use fabric_util::sockets::{PeerMemory, Trust};
use fabric_util::sync::Mutex;
use socket2::Socket;

use crate::closer::Closer;
use crate::mapping::Mappings;
use crate::pool::{Place, Pool};
use crate::ring::Peer;
use crate::user;
use crate::visitors::{Visitor, Visitors, wait_for};
use crate::windows::{self, Table};

/// The memory of a domain.
pub struct ShmMemory {
    trust: Trust,
    state: Mutex<State>,
    /// What of the peers' memory is mapped.
    pub(crate) mappings: Mappings,
    pub(crate) closer: Arc<Closer>,
}

#[derive(Default)]
struct State {
    pool: Pool,
    /// None before something is allocated.
    table: Option<Table>,
    visitors: Visitors,
}

/// What visitors have to have mapped, in its order.
fn files<'a>(table: &'a Option<Table>, pool: &'a Pool) -> impl Iterator<Item = BorrowedFd<'a>> {
    table.iter().map(Table::descriptor).chain(pool.descriptors())
}

impl State {
    fn allocate(&mut self, len: usize) -> std::io::Result<(Place, *mut u8)> {
        let before = files(&self.table, &self.pool).count();
        if self.table.is_none() {
            self.table = Some(Table::new()?);
        }
        let made = self.pool.allocate(len);
        if files(&self.table, &self.pool).count() > before {
            self.send_files();
        }
        made
    }

    /// Visitors get what they lack.
    fn send_files(&mut self) {
        let all: Vec<_> = files(&self.table, &self.pool).collect();
        self.visitors.send(&all);
    }
}

/// A run of the pool, which is given back when it is dropped.
struct Run {
    memory: Arc<ShmMemory>,
    place: Place,
    len: usize,
    made_in: ForkEpoch,
}

impl Drop for Run {
    fn drop(&mut self) {
        // A child's copy is not the child's to give: the files are the parent's, too.
        if self.made_in.is_current() {
            self.memory.state.lock().pool.free(self.place, self.len);
        }
    }
}

impl PeerMemory for ShmMemory {
    const SHARED: bool = true;

    fn new(trust: Trust) -> Arc<Self> {
        Arc::new(ShmMemory {
            trust,
            state: Mutex::default(),
            mappings: Mappings::default(),
            closer: Arc::default(),
        })
    }

    fn allocate(self: &Arc<Self>, len: usize) -> Result<Memory> {
        // What is more than this machine has, the heap refuses.
        if self.trust == Trust::None || len == 0 || len > memory_of_machine() {
            return Memory::zeroed(len);
        }
        let Ok((place, start)) = self.state.lock().allocate(len) else {
            // Without descriptors, say. The heap's is as good; what is done to it goes through this process.
            return Memory::zeroed(len);
        };
        let run = Run { memory: self.clone(), place, len, made_in: ForkEpoch::current() };
        // SAFETY: the run is the pool's to give until it is given back, in a file that stays mapped as long; it begins with a
        // page, and is zero. Other processes reach it by `Reach` only, with the functions of `fabric_core::memory`.
        Ok(unsafe { Memory::from_provider(start, len, Box::new(run)) })
    }

    fn windows(self: &Arc<Self>) -> Option<Arc<dyn Windows>> {
        Some(self.clone())
    }
}

impl Windows for ShmMemory {
    fn open(&self, window: &WindowAttr) -> Option<u32> {
        let state = &mut *self.state.lock();
        let place = state.pool.find(window.addr, window.len)?;
        if state.visitors.lack_files() {
            state.send_files();
        }
        state.table.as_mut()?.open(window, place)
    }

    fn close(&self, number: u32) -> Result<()> {
        let there = {
            let state = self.state.lock();
            let only = state.table.as_ref().and_then(|table| table.close(number));
            state.visitors.at(number, only)
        };
        if !wait_for(&there, number) {
            return Err(Error::Busy);
        }
        if let Some(table) = &mut self.state.lock().table {
            table.forget(number);
        }
        Ok(())
    }
}

impl ShmMemory {
    /// Whether the peer of a connection may reach this memory by itself, and this process the peer's.
    pub(crate) fn trusts(&self, socket: &Socket) -> bool {
        self.trust == Trust::User && user::is_equal(socket)
    }

    /// Whether memory is in the first `files` of this domain's.
    pub(crate) fn is_in_files(&self, addr: *const u8, len: usize, files: u32) -> bool {
        let place = self.state.lock().pool.find(addr, len);
        place.is_some_and(|place| place.file < files)
    }

    /// A connection is open to its peer.
    pub(crate) fn admit(&self, endpoint: EndpointId, peer: Peer, socket: &Arc<Socket>) {
        let state = &mut *self.state.lock();
        let files: Vec<_> = files(&state.table, &state.pool).collect();
        state.visitors.add(windows::name(endpoint), Visitor::new(peer, socket), &files);
    }

    /// It is so no longer.
    pub(crate) fn expel(&self, endpoint: EndpointId) {
        self.state.lock().visitors.remove(windows::name(endpoint));
    }
}

/// Bytes of memory and swap of this machine.
fn memory_of_machine() -> usize {
    let system = rustix::system::sysinfo();
    let all = (system.totalram as u64).saturating_add(system.totalswap as u64);
    usize::try_from(all.saturating_mul(system.mem_unit.into())).unwrap_or(usize::MAX)
}
