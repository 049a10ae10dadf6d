//! Values by small numbers: places that are used again, with no allocation while there are no more values than there were
//! before.

/// As many values as there may be: [`Links`](super::links::Links) needs a bit of each number.
pub(super) const MAX_VALUES: u32 = (1 << 31) - 1;

/// As many bytes as a value takes.
#[cfg(test)]
pub(super) const fn slot_len<T>() -> usize {
    size_of::<Slot<T>>()
}

/// Values, each at a number below the most that there were at a time.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<Slot<T>>,
    /// The place that was given up last: what it had is still in the cache.
    free: Option<u32>,
    len: u32,
    max: u32,
}

#[derive(Debug)]
enum Slot<T> {
    Used(T),
    /// The next free one.
    Free(Option<u32>),
}

impl<T> Slab<T> {
    /// For at most `max` values, and never more than [`MAX_VALUES`].
    pub(super) fn new(max: u32) -> Self {
        Slab { slots: Vec::new(), free: None, len: 0, max: max.min(MAX_VALUES) }
    }

    /// Adds a value. `None`: it is full.
    #[inline]
    pub(super) fn insert(&mut self, value: T) -> Option<u32> {
        if self.is_full() {
            return None;
        }
        self.len += 1;
        let at = self.free.unwrap_or(self.slots.len() as u32);
        match self.slots.get_mut(at as usize) {
            Some(slot) => {
                if let Slot::Free(next) = *slot {
                    self.free = next;
                }
                *slot = Slot::Used(value);
            }
            None => self.slots.push(Slot::Used(value)),
        }
        Some(at)
    }

    /// Takes a value out.
    #[inline]
    pub(super) fn remove(&mut self, at: u32) -> Option<T> {
        let slot = self.slots.get_mut(at as usize)?;
        if let Slot::Free(_) = slot {
            return None;
        }
        self.len -= 1;
        match std::mem::replace(slot, Slot::Free(self.free.replace(at))) {
            Slot::Used(value) => Some(value),
            Slot::Free(_) => None,
        }
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> Option<&T> {
        match self.slots.get(at as usize)? {
            Slot::Used(value) => Some(value),
            Slot::Free(_) => None,
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        match self.slots.get_mut(at as usize)? {
            Slot::Used(value) => Some(value),
            Slot::Free(_) => None,
        }
    }

    /// All values are at numbers below it.
    pub(super) fn end(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len >= self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let mut slab = Slab::new(3);
        assert_eq!(["a", "b", "c"].map(|value| slab.insert(value)), [Some(0), Some(1), Some(2)]);
        assert_eq!(slab.insert("d"), None, "full");
        assert_eq!((slab.remove(1), slab.remove(1), slab.remove(9)), (Some("b"), None, None));
        assert_eq!((slab.get(1), slab.get(2), slab.get(3)), (None, Some(&"c"), None));
        assert_eq!(slab.remove(0), Some("a"));
        assert_eq!(slab.end(), 3);
        assert_eq!((slab.insert("e"), slab.insert("f")), (Some(0), Some(1)), "the last one first");
        *slab.get_mut(1).unwrap() = "g";
        assert_eq!((slab.remove(1), slab.len(), slab.slots.len()), (Some("g"), 2, 3));
    }
}
