//! What the peers that have a domain's memory mapped see of it: registrations, and what is lent to one of them for a message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fabric_core::{Access, EndpointId, RemoteAddr, Result};

/// What the peers that have a domain's memory mapped see of its registrations.
pub trait Windows: Send + Sync {
    /// Shows one; gives its number. `None`: peers cannot have this memory mapped, or no more can be shown.
    fn open(&self, window: &WindowAttr) -> Option<u32>;

    /// Shows it no longer, by that number. Called until it returns `Ok`, and not again: then no peer reads or changes anything
    /// by it.
    ///
    /// # Errors
    /// `Busy`: a peer is in the middle of an access and does not get on. It can be tried again.
    fn close(&self, number: u32) -> Result<()>;
}

/// A registration, as it is shown to peers.
pub struct WindowAttr {
    /// How peers name its first byte. No other window that is open has the key.
    pub at: RemoteAddr,
    /// The first byte, in this process.
    pub addr: *mut u8,
    /// Bytes.
    pub len: usize,
    /// What peers may do.
    pub access: Access,
    /// The only connection whose peer may; none: the peers of all.
    pub only: Option<EndpointId>,
}

/// The first key of what is lent. Keys from here on are no registration's.
const FIRST: u64 = 0xffff << 48;

/// Whether it is one of the keys of what is lent: a registration has no window by it.
pub(super) fn is_lent(key: u64) -> bool {
    key >= FIRST
}

/// Memory that is not registered, and that one connection's peer may read until this is dropped.
pub struct Lent {
    windows: Arc<dyn Windows>,
    at: RemoteAddr,
    window: u32,
}

impl Lent {
    /// Lends memory to the peer of a connection, if that can have it mapped.
    pub(super) fn open(
        windows: &Arc<dyn Windows>,
        (addr, len): (*mut u8, usize),
        to: EndpointId,
    ) -> Option<Self> {
        // They follow each other: this is between two ends that trust each other.
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // Once it wraps around, what was lent so long ago has been given back.
        let at = RemoteAddr { key: FIRST | COUNT.fetch_add(1, Ordering::Relaxed), addr: 0 };
        let (access, only) = (Access::REMOTE_READ, Some(to));
        let window = windows.open(&WindowAttr { at, addr, len, access, only })?;
        Some(Lent { windows: windows.clone(), at, window })
    }

    /// Where the peer finds it.
    pub fn at(&self) -> RemoteAddr {
        self.at
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // One that does not get on in the middle of its read reads bytes that it will not use.
        let _ = self.windows.close(self.window);
    }
}

#[cfg(test)]
mod tests {
    use fabric_core::RegistrationOps;

    use super::super::{RegionTable, Registration};
    use super::*;
    use crate::sync::Mutex;

    const ONE: EndpointId = EndpointId(1);

    /// The keys of windows that are open.
    #[derive(Default)]
    struct Keys(Mutex<Vec<u64>>);

    impl Windows for Keys {
        fn open(&self, window: &WindowAttr) -> Option<u32> {
            let mut keys = self.0.lock();
            keys.push(window.at.key);
            Some(keys.len() as u32 - 1)
        }

        fn close(&self, number: u32) -> Result<()> {
            self.0.lock()[number as usize] = 0;
            Ok(())
        }
    }

    #[test]
    fn what_is_lent_is_open_until_it_is_dropped() {
        let keys = Arc::new(Keys::default());
        let table = RegionTable::with_windows(Some(keys.clone()));
        let mut memory = [0u64; 8];
        let lent = table.lend((memory.as_mut_ptr().cast(), 8), ONE).unwrap();
        assert_eq!((*keys.0.lock()).as_slice(), [lent.at().key]);
        drop(lent);
        assert_eq!((*keys.0.lock()).as_slice(), [0]);
        assert!(RegionTable::default().lend((memory.as_mut_ptr().cast(), 8), ONE).is_none());
    }

    /// Another provider's keys may be any numbers, and may be those that follow.
    #[test]
    fn no_registration_is_open_by_the_key_of_what_is_lent() {
        let keys = Arc::new(Keys::default());
        let table = Arc::new(RegionTable::with_windows(Some(keys.clone())));
        let mut memory = [0u64; 8];
        let range = (memory.as_mut_ptr().cast::<u8>(), size_of_val(&memory));
        let first = table.lend(range, ONE).unwrap();
        let register = |key| {
            let at = Some(RemoteAddr { key, addr: 0 });
            // SAFETY: the memory outlives the registration.
            unsafe { Registration::new_at("test", &table, range, Access::ALL, at) }.unwrap()
        };
        let registered: Vec<_> = (0..20)
            .map(|step| register(first.at().key + step))
            .chain((1000..1019).map(register))
            .collect();
        let lent: Vec<_> = (0..10).map(|_| table.lend(range, ONE).unwrap()).collect();
        let mut open = keys.0.lock().clone();
        assert!(open.len() >= 1 + 19 + lent.len(), "small keys are open");
        open.sort_unstable();
        open.dedup();
        assert_eq!(open.len(), keys.0.lock().len(), "each key opens one thing");
        // By the stream it is reached all the same.
        assert!(registered.iter().all(|one| table.find(one.remote_key(), ONE).is_some()));
    }
}
