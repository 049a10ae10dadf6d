//! Access rights of a registered region.

use crate::error::{Error, Result};

bitflags::bitflags! {
    /// What may be done with a region's memory, and by whom.
    ///
    /// Local reading is always allowed. Every provider enforces these rights, for local operations
    /// when they are posted and for remote ones at the target.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// Receives, reads and fetching atomics may place their bytes here.
        const LOCAL_WRITE = 1;
        /// Peers may read.
        const REMOTE_READ = 1 << 1;
        /// Peers may write; needs `LOCAL_WRITE`.
        const REMOTE_WRITE = 1 << 2;
        /// Peers may execute atomic operations; needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = 1 << 3;
        /// Gives up orders that devices keep by default: the bytes of a write may become visible after those of later
        /// writes, sends and atomics of the same endpoint, and after a write's immediate or a later send's receive
        /// has completed. A completion at the initiator still says that the target has accepted. It can be
        /// faster on some hosts; providers that keep the orders anyway ignore it (`ibv_reg_mr(3)`,
        /// `IBV_ACCESS_RELAXED_ORDERING`).
        const RELAXED_ORDERING = 1 << 4;
        /// Every right a peer can have.
        const REMOTE = Self::REMOTE_READ.bits() | Self::REMOTE_WRITE.bits() | Self::REMOTE_ATOMIC.bits();
        /// Every right.
        const ALL = Self::LOCAL_WRITE.bits() | Self::REMOTE.bits();
    }
}

/// Checks what every provider demands of a registration (`ibv_reg_mr(3)` for the access rule).
///
/// # Errors
/// `InvalidArgument` for zero length, an address range that overflows, a remote write or atomic
/// right without `LOCAL_WRITE`, or bounds of a region for remote atomics that are not multiples of 8.
pub fn check_registration(addr: u64, len: u64, access: Access) -> Result<()> {
    const OP: &str = "register";
    if len == 0 {
        return Err(Error::invalid(OP, "the length is zero; a region has at least one byte"));
    }
    if addr == 0 || addr.checked_add(len).is_none() || len > isize::MAX as u64 {
        return Err(Error::invalid(
            OP,
            format!("{len} bytes at {addr:#x} is no range of addresses"),
        ));
    }
    let unknown = access.difference(Access::ALL | Access::RELAXED_ORDERING);
    if !unknown.is_empty() {
        return Err(Error::invalid(OP, format!("unknown access bits {:#x}", unknown.bits())));
    }
    let changing = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    if access.intersects(changing) && !access.contains(Access::LOCAL_WRITE) {
        return Err(Error::invalid(
            OP,
            "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE as well (ibv_reg_mr(3))",
        ));
    }
    if access.contains(Access::REMOTE_ATOMIC) && (!addr.is_multiple_of(8) || !len.is_multiple_of(8))
    {
        return Err(Error::invalid(
            OP,
            format!(
                "a region for remote atomics starts and ends on multiples of 8, not {addr:#x}+{len}"
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registration_rules() {
        let ok = |a, l, x| check_registration(a, l, x).is_ok();
        assert!(ok(4096, 8, Access::ALL));
        assert!(ok(4097, 3, Access::LOCAL_WRITE | Access::REMOTE_READ));
        assert!(ok(4096, 1, Access::empty()));
        assert!(ok(4096, 1, Access::LOCAL_WRITE | Access::RELAXED_ORDERING));
        assert!(!ok(4096, 0, Access::empty()));
        assert!(!ok(0, 8, Access::empty()));
        assert!(!ok(u64::MAX - 3, 8, Access::empty()));
        assert!(!ok(4096, 8, Access::REMOTE_WRITE));
        assert!(!ok(4096, 8, Access::REMOTE_ATOMIC | Access::REMOTE_READ));
        assert!(!ok(4100, 8, Access::ALL));
        assert!(!ok(4096, 12, Access::ALL));
        assert!(!ok(4096, 8, Access::from_bits_retain(1 << 9)));
    }
}
