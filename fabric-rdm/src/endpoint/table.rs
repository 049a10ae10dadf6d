//! Values by keys that never name another value: what completions and handles of the application name.

use fabric_core::cold_path;

/// Names a value of a [`Table`], also after it was taken out, and then none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct OpKey {
    index: u32,
    generation: u32,
}

/// Values by their keys, with no allocation while there are no more than there were before.
#[derive(Debug)]
pub(super) struct Table<T> {
    slots: Vec<TableSlot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct TableSlot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Table<T> {
    /// The key that the next value gets.
    pub(super) fn next_key(&self) -> OpKey {
        let index = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        let generation = self.slots.get(index as usize).map_or(0, |slot| slot.generation);
        OpKey { index, generation }
    }

    pub(super) fn insert(&mut self, value: T) -> OpKey {
        self.insert_with(|| value)
    }

    /// The value is made where it stays: nothing in between can fail, so that it need not be whole elsewhere before.
    #[inline(always)] // once for each operation
    pub(super) fn insert_with(&mut self, make: impl FnOnce() -> T) -> OpKey {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.add_slot(),
        };
        // The slot is there.
        let slot = self.slots.get_mut(index as usize);
        let generation = slot.map_or(0, |slot| {
            slot.value = Some(make());
            slot.generation
        });
        OpKey { index, generation }
    }

    #[cold]
    fn add_slot(&mut self) -> u32 {
        self.slots.push(TableSlot { generation: 0, value: None });
        (self.slots.len() - 1) as u32
    }

    pub(super) fn get(&self, key: OpKey) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_ref() } else { None }
    }

    pub(super) fn get_mut(&mut self, key: OpKey) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, key: OpKey) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            cold_path();
            return None;
        }
        let value = slot.value.take()?;
        // One that old that it comes again is kept by no application.
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }

    /// All values, in no order that means something.
    pub(super) fn iter(&self) -> impl Iterator<Item = (OpKey, &T)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| {
            let key = OpKey { index, generation: slot.generation };
            slot.value.as_ref().map(|value| (key, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_value_and_then_none() {
        let mut table = Table::default();
        let expected = table.next_key();
        let first = table.insert("first");
        assert_eq!((first, table.len()), (expected, 1));
        assert_eq!(table.remove(first), Some("first"));
        assert_eq!((table.remove(first), table.get(first), table.len()), (None, None, 0));
        let second = table.insert("second");
        assert_ne!(first, second);
        assert_eq!((table.get(first), table.get(second)), (None, Some(&"second")));
        assert_eq!(
            table.iter().map(|(key, value)| (key, *value)).collect::<Vec<_>>(),
            [(second, "second")]
        );
    }

    #[test]
    fn generations_wrap() {
        let mut table = Table::default();
        let first = table.insert(1);
        table.slots[0].generation = u32::MAX;
        let last = OpKey { generation: u32::MAX, ..first };
        assert_eq!(table.remove(last), Some(1));
        assert_eq!(table.insert(2), first);
    }
}
