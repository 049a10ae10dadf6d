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
        /// Peers have their rights by grants alone, each the peer of one connection: the region's own key opens nothing.
        /// Where [`GRANTS`](crate::Capabilities::GRANTS) is declared.
        const GRANTS_ONLY = 1 << 5;
        /// Peers name its bytes by the addresses that they have in this process, on every provider: for protocols that ship
        /// addresses. Without it some devices do that, and others count from the start of the region, so that peers learn
        /// no address.
        const VIRTUAL_ADDRESSES = 1 << 6;
        /// Every right a peer can have.
        const REMOTE = Self::REMOTE_READ.bits() | Self::REMOTE_WRITE.bits() | Self::REMOTE_ATOMIC.bits();
        /// Every right.
        const ALL = Self::LOCAL_WRITE.bits() | Self::REMOTE.bits();
    }
}

impl Access {
    /// What of it goes by the region's own key; grants of it may give more.
    pub fn of_own_key(self) -> Access {
        match self.contains(Access::GRANTS_ONLY) {
            true => self - Access::REMOTE - Access::GRANTS_ONLY,
            false => self,
        }
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
    let how = Access::RELAXED_ORDERING | Access::GRANTS_ONLY | Access::VIRTUAL_ADDRESSES;
    let known = Access::ALL | how;
    let unknown = access.difference(known);
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

/// Checks what every provider demands of a grant of part of a region at `addr`, which has `rights`: that the range is
/// `start..end` of `len` bytes, and `access` what a peer can be given of it.
///
/// # Errors
/// `InvalidArgument` for a range that is empty or does not fit, rights that the region lacks or that are no peer's, no
/// right at all, or bounds of a range for remote atomics that are not multiples of 8.
pub fn check_grant(
    (addr, len, rights): (u64, usize, Access),
    (start, end): (usize, usize),
    access: Access,
) -> Result<()> {
    const OP: &str = "grant";
    if start >= end || end > len {
        return Err(Error::invalid(
            OP,
            format!("{start}..{end} is no range of bytes in a region of {len}"),
        ));
    }
    if !access.difference(Access::REMOTE).is_empty() || access.is_empty() {
        return Err(Error::invalid(
            OP,
            format!("a grant gives a peer one or more of {:?}, not {access:?}", Access::REMOTE),
        ));
    }
    if !rights.contains(access) {
        return Err(Error::invalid(OP, format!("{access:?} of a region that has {rights:?}")));
    }
    let aligned = (addr + start as u64).is_multiple_of(8) && (addr + end as u64).is_multiple_of(8);
    if access.contains(Access::REMOTE_ATOMIC) && !aligned {
        return Err(Error::invalid(
            OP,
            format!(
                "a range for remote atomics starts and ends on multiples of 8, not {start}..{end}"
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant_rules() {
        let (read, write) = (Access::REMOTE_READ, Access::REMOTE_WRITE);
        let of = |rights, range, access| check_grant((4096, 64, rights), range, access);
        assert!(of(Access::ALL, (0, 64), Access::REMOTE).is_ok());
        assert!(of(Access::ALL, (3, 4), read | write).is_ok());
        for range in [(0, 0), (64, 64), (5, 4), (0, 65), (64, 65), (usize::MAX, usize::MAX)] {
            assert!(of(Access::ALL, range, read).is_err(), "{range:?}");
        }
        assert!(of(Access::ALL, (4, 64), Access::REMOTE_ATOMIC).is_err());
        assert!(of(Access::ALL, (0, 60), Access::REMOTE_ATOMIC).is_err());
        for access in [Access::empty(), Access::LOCAL_WRITE, Access::ALL] {
            assert!(of(Access::ALL, (0, 8), access).is_err(), "{access:?}");
        }
        let wider = of(Access::LOCAL_WRITE | read, (0, 8), read | write).unwrap_err().to_string();
        assert!(wider.contains("REMOTE_WRITE") && wider.contains("LOCAL_WRITE"), "{wider}");
    }

    #[test]
    fn the_own_key_of_a_region_for_grants_opens_nothing() {
        for access in [Access::ALL, Access::empty(), Access::LOCAL_WRITE | Access::REMOTE_READ] {
            assert_eq!(access.of_own_key(), access);
            let own = (access | Access::GRANTS_ONLY | Access::RELAXED_ORDERING).of_own_key();
            assert_eq!(own, (access & Access::LOCAL_WRITE) | Access::RELAXED_ORDERING);
        }
    }

    #[test]
    fn registration_rules() {
        let ok = |a, l, x| check_registration(a, l, x).is_ok();
        assert!(ok(4096, 8, Access::ALL));
        assert!(ok(4097, 3, Access::LOCAL_WRITE | Access::REMOTE_READ));
        assert!(ok(4096, 1, Access::empty()));
        assert!(ok(4096, 1, Access::LOCAL_WRITE | Access::RELAXED_ORDERING));
        assert!(ok(4096, 8, Access::ALL | Access::GRANTS_ONLY));
        assert!(!ok(4096, 8, Access::REMOTE_WRITE | Access::GRANTS_ONLY));
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
