//! Tables of what is not there.

use crate::abi::{OpsAtomic, OpsCm, OpsCollective, OpsRma, OpsTagged, Refused};
use crate::entry::refused;

/// A table as libfabric's are: its size, and functions; none is there.
#[repr(C)]
pub(super) struct RefusedTable<const FUNCTIONS: usize> {
    size: usize,
    all: [Refused; FUNCTIONS],
}

impl<const FUNCTIONS: usize> RefusedTable<FUNCTIONS> {
    const fn new() -> Self {
        RefusedTable { size: size_of::<Self>(), all: [refused; FUNCTIONS] }
    }
}

pub(super) static CM: RefusedTable<9> = RefusedTable::new();
pub(super) static RMA: RefusedTable<9> = RefusedTable::new();
pub(super) static TAGGED: RefusedTable<9> = RefusedTable::new();
pub(super) static ATOMIC: RefusedTable<13> = RefusedTable::new();
pub(super) static COLLECTIVE: OpsCollective =
    OpsCollective { size: size_of::<OpsCollective>(), all: [refused; 11] };

// They stand for these.
const _: () = assert!(size_of::<RefusedTable<9>>() == size_of::<OpsCm>());
const _: () = assert!(size_of::<RefusedTable<9>>() == size_of::<OpsRma>());
const _: () = assert!(size_of::<RefusedTable<9>>() == size_of::<OpsTagged>());
const _: () = assert!(size_of::<RefusedTable<13>>() == size_of::<OpsAtomic>());
