//! Memory of a duel: all of it between guards, and what is known of its bytes.

use std::sync::{Arc, LazyLock};

use fabric_core::{Access, EndpointId, GrantOps, RegistrationOps, Segment};

use crate::region_table::{RegionTable, Registration};
use crate::splitmix::SplitMix64;

/// Words before and behind.
const GUARD: usize = 4;
const GUARDS: u64 = 0xa5a5_a5a5_a5a5_a5a5;
/// What the application writes over memory that is its own again.
const SCRIBBLE: u8 = 0xdd;

/// The longest run of [`pattern`].
const PATTERN: usize = 300_000;

/// So many bytes; another number gives other ones.
pub(super) fn pattern(number: u8, len: usize) -> &'static [u8] {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut numbers = SplitMix64::new(0);
        (0..PATTERN + 16 * 256).map(|_| numbers.next_u64() as u8).collect()
    });
    &BYTES[16 * usize::from(number)..][..len]
}

/// Bytes between guards.
pub(super) struct Guarded {
    words: Vec<u64>,
    len: usize,
    is_scribbled: bool,
}

impl Guarded {
    pub(super) fn new(len: usize, fill: u8) -> Self {
        let words = vec![GUARDS; len.div_ceil(8) + 2 * GUARD];
        let mut guarded = Guarded { words, len, is_scribbled: false };
        guarded.bytes_mut().fill(fill);
        guarded
    }

    pub(super) fn of(bytes: &[u8]) -> Self {
        let mut guarded = Guarded::new(bytes.len(), 0);
        guarded.bytes_mut().copy_from_slice(bytes);
        guarded
    }

    pub(super) fn addr(&mut self) -> *mut u8 {
        self.words[GUARD..].as_mut_ptr().cast()
    }

    pub(super) fn segment(&mut self) -> Segment {
        Segment::new(self.addr(), self.len, 0)
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the words hold so many bytes, and no link runs meanwhile.
        unsafe { std::slice::from_raw_parts(self.words[GUARD..].as_ptr().cast(), self.len) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.addr(), self.len) }
    }

    /// The application uses it for something else: it is to stay like this.
    pub(super) fn scribble(&mut self) {
        self.bytes_mut().fill(SCRIBBLE);
        self.is_scribbled = true;
    }

    /// Nothing outside was changed, nor what is the application's own again.
    pub(super) fn check(&self) {
        let (before, rest) = self.words.split_at(GUARD);
        let (_, behind) = rest.split_at(self.len.div_ceil(8));
        assert!(before.iter().chain(behind).all(|word| *word == GUARDS), "a byte outside changed");
        let tail = &rest[..self.len.div_ceil(8)];
        let padding = tail.iter().flat_map(|word| word.to_ne_bytes()).skip(self.len);
        assert!(padding.into_iter().all(|byte| byte == GUARDS as u8), "a byte behind changed");
        let is_left = !self.is_scribbled || is_all(self.bytes(), SCRIBBLE);
        assert!(is_left, "memory changed that was the application's again");
    }
}

/// Whether all bytes are this one.
pub(super) fn is_all(bytes: &[u8], byte: u8) -> bool {
    // In words: a program may have a megabyte.
    let (chunks, rest) = bytes.as_chunks::<64>();
    chunks.iter().all(|chunk| *chunk == [byte; 64]) && rest.iter().all(|one| *one == byte)
}

/// Part of a region, open to the peer.
struct Granted {
    grant: Box<dyn GrantOps>,
    start: usize,
    len: usize,
    access: Access,
}

/// A region, and what should be in it if all goes well.
pub(super) struct Area {
    pub(super) memory: Guarded,
    registration: Option<Registration>,
    key: u64,
    access: Access,
    grants: Vec<Granted>,
    /// What the peer's operations make of it, one after the other.
    pub(super) model: Vec<u8>,
    /// Bytes that an operation of the peer's may have changed.
    touched: Vec<bool>,
    /// What it was when it was closed.
    closed: Option<Vec<u8>>,
}

/// A place that a peer can name: of a region, or of a grant.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) key: u64,
    /// Where in the region it starts.
    pub(super) start: usize,
    pub(super) len: usize,
    pub(super) access: Access,
}

impl Area {
    pub(super) fn new(table: &Arc<RegionTable>, len: usize, access: Access) -> Option<Self> {
        let model = pattern(0, len).to_vec();
        let mut memory = Guarded::of(&model);
        let range = (memory.addr(), len);
        // SAFETY: the words stay where they are, and the registration is dropped before them.
        let registration = unsafe { Registration::new("fuzz", table, range, access) }.ok()?;
        let key = registration.remote_key();
        let touched = vec![false; len];
        let (registration, grants, closed) = (Some(registration), Vec::new(), None);
        Some(Area { memory, registration, key, access, grants, model, touched, closed })
    }

    pub(super) fn is_open(&self) -> bool {
        self.registration.is_some()
    }

    /// The region itself, and its grants.
    pub(super) fn spots(&self) -> Vec<Spot> {
        let whole = Spot { key: self.key, start: 0, len: self.memory.len(), access: self.access };
        let grants = self.grants.iter().map(|one| Spot {
            key: one.grant.remote_key(),
            start: one.start,
            len: one.len,
            access: one.access,
        });
        std::iter::once(whole).chain(grants).collect()
    }

    /// Opens a part that starts on a word, if there is a connection.
    pub(super) fn grant(&mut self, to: EndpointId, start: usize, len: usize, access: Access) {
        let Some(registration) = &self.registration else { return };
        let access = access & self.access;
        // SAFETY: grants are dropped before the memory.
        let granted = unsafe { registration.grant(to, start..start + len, access) };
        self.grants.extend(granted.ok().map(|grant| Granted { grant, start, len, access }));
    }

    /// Takes the last grant back.
    pub(super) fn revoke(&mut self) {
        if let Some(mut granted) = self.grants.pop() {
            assert!(granted.grant.revoke().is_ok(), "a grant that is not revoked");
        }
    }

    /// Closes it, and its grants. Not a byte changes from now on.
    pub(super) fn close(&mut self) {
        self.grants.clear();
        if let Some(mut registration) = self.registration.take() {
            assert!(registration.deregister().is_ok(), "a region that is not closed");
            self.closed = Some(self.memory.bytes().to_vec());
        }
    }

    /// An operation of the peer's has these bytes there.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        self.model[at..at + bytes.len()].copy_from_slice(bytes);
        self.touched[at..at + bytes.len()].fill(true);
    }

    /// `is_clean`: the peer's operations came as they were posted. `is_whole`: and all of them were executed.
    pub(super) fn check(&self, is_clean: bool, is_whole: bool) {
        self.memory.check();
        let now = self.memory.bytes();
        if let Some(closed) = &self.closed {
            assert!(closed == now, "a region changed that was closed");
        } else if is_whole {
            assert!(self.model == now, "a region is not what the operations make of it");
        }
        let may_change = self.access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC);
        if (is_clean || !may_change) && self.model != now {
            let mut bytes = now.iter().zip(&self.model).zip(&self.touched);
            let is_left = bytes.all(|((now, model), touched)| *touched || now == model);
            assert!(is_left, "a byte changed that no operation may change");
        }
    }
}
