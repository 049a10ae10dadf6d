//! The store: blocks that no thread has, by class and extent.

use super::class::{block_len, blocks_of};
use crate::block::Block;

#[derive(Default)]
pub(super) struct Store {
    classes: Vec<Class>,
    /// Bytes of extents that have all their blocks here.
    idle: usize,
}

#[derive(Default)]
struct Class {
    /// The extents, oldest first, with those of their blocks that are here. The oldest serve first, so that the youngest
    /// fall idle and go.
    extents: Vec<(u64, Vec<Block>)>,
    /// No extent before this one has blocks here.
    first: usize,
}

/// The bytes of an extent of the class.
fn extent_len(class: usize) -> usize {
    block_len(class) * blocks_of(class)
}

impl Store {
    fn class(&mut self, class: usize) -> &mut Class {
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, Class::default);
        }
        &mut self.classes[class]
    }

    pub(super) fn take(&mut self, class: usize) -> Option<Block> {
        let Class { extents, first } = self.class(class);
        while extents.get(*first)?.1.is_empty() {
            *first += 1;
        }
        let blocks = &mut extents[*first].1;
        let whole = blocks.len() == blocks_of(class);
        let block = blocks.pop();
        if whole {
            self.idle -= extent_len(class);
        }
        block
    }

    pub(super) fn give(&mut self, block: Block) {
        self.put(block.extent().class, block.extent().id, [block]);
    }

    /// The blocks of a new extent.
    pub(super) fn add(&mut self, blocks: Vec<Block>) {
        if let Some((class, id)) = blocks.first().map(|one| (one.extent().class, one.extent().id)) {
            self.put(class, id, blocks);
        }
    }

    /// Takes blocks of an extent in.
    #[inline]
    fn put(&mut self, class: usize, id: u64, more: impl IntoIterator<Item = Block>) {
        let Class { extents, first } = self.class(class);
        let index = match extents.binary_search_by_key(&id, |extent| extent.0) {
            Ok(index) => index,
            Err(index) => {
                extents.insert(index, (id, Vec::with_capacity(blocks_of(class))));
                index
            }
        };
        *first = (*first).min(index);
        let blocks = &mut extents[index].1;
        blocks.extend(more);
        if blocks.len() == blocks_of(class) {
            self.idle += extent_len(class);
        }
    }

    /// Takes out idle extents, largest classes and youngest first, until at most `keep` bytes of them are left. The
    /// caller drops them outside the locks.
    pub(super) fn shrink(&mut self, keep: usize) -> Vec<Vec<Block>> {
        let mut out = Vec::new();
        for class in (0..self.classes.len()).rev() {
            let Class { extents, first } = &mut self.classes[class];
            let mut index = extents.len();
            while self.idle > keep && index > 0 {
                index -= 1;
                if extents[index].1.len() == blocks_of(class) {
                    out.push(extents.remove(index).1);
                    self.idle -= extent_len(class);
                    *first = 0;
                }
            }
        }
        out
    }
}
