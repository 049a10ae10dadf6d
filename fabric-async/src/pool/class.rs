//! Size classes: which lengths share blocks, how many blocks an extent has, what is cached where.

/// The smallest block. Blocks start and end on cache lines, so that neighbours never share one.
pub(crate) const MIN_BLOCK: usize = 64;

/// Up to here a class is twice the one before; above, there are four classes to each doubling, so that at most a fifth
/// of a large block is wasted.
const COARSE: usize = 4096;

/// The largest block that caches of threads hold.
const CACHED: usize = 256 << 10;

/// Bytes of one class in one thread's cache.
const CACHE_BYTES: usize = 512 << 10;

/// The least that is registered at once, if blocks are smaller.
const EXTENT: usize = 256 << 10;

const COARSE_CLASSES: usize = (COARSE / MIN_BLOCK).trailing_zeros() as usize + 1;

/// The class whose blocks hold `len` bytes.
#[inline]
pub(crate) fn class_of(len: usize) -> usize {
    if len <= COARSE {
        let blocks = len.max(MIN_BLOCK).next_power_of_two();
        return (blocks / MIN_BLOCK).trailing_zeros() as usize;
    }
    // The doubling that `len` lies in, and the quarter of it.
    let top = (len - 1).ilog2() as usize;
    let quarter = ((len - 1) >> (top - 2)) & 3;
    COARSE_CLASSES + (top - COARSE.ilog2() as usize) * 4 + quarter
}

/// The bytes of a block.
#[inline]
pub(crate) fn block_len(class: usize) -> usize {
    if class < COARSE_CLASSES {
        return MIN_BLOCK << class;
    }
    let (doubling, quarter) = ((class - COARSE_CLASSES) / 4, (class - COARSE_CLASSES) % 4);
    (COARSE << doubling) / 4 * (5 + quarter)
}

/// Blocks of one extent: some for small ones, one for large ones.
pub(crate) fn blocks_of(class: usize) -> usize {
    (EXTENT / block_len(class)).max(1)
}

/// Blocks that a thread's cache holds; 0 if it caches none.
#[inline]
pub(crate) fn cached(class: usize) -> usize {
    match block_len(class) {
        len if len > CACHED => 0,
        len => (CACHE_BYTES / len).clamp(1, 64),
    }
}

/// The classes that threads cache.
pub(crate) fn cached_classes() -> usize {
    class_of(CACHED) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_has_the_smallest_block_that_holds_it() {
        let mut before = 0;
        for class in 0..class_of(1 << 32) {
            let len = block_len(class);
            assert!(len > before && len.is_multiple_of(MIN_BLOCK), "{class}: {before} {len}");
            assert_eq!(class_of(len), class);
            assert_eq!(class_of(before + 1), class);
            assert!(class == 0 || len <= 2 * before, "{class}");
            assert!(len <= COARSE || (len - before) * 5 <= len, "{class}: {before} {len}");
            before = len;
        }
    }
}
