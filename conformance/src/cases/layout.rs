//! Lengths and places that cases of several groups use.

use std::ops::Range;

/// Lengths from 1 to `most`: powers of two and their neighbours, where thresholds of protocols lie; above 1 MiB one
/// length a power.
pub(super) fn sizes(max: u64) -> Vec<usize> {
    let around = |shift: u32| {
        let power = 1u64 << shift;
        if shift <= 20 { power - 1..power + 2 } else { power + 1..power + 2 }
    };
    let mut sizes: Vec<u64> =
        (0..=26).flat_map(around).filter(|size| (1..max).contains(size)).collect();
    sizes.push(max);
    sizes.sort_unstable();
    sizes.dedup();
    sizes.into_iter().map(|size| size as usize).collect()
}

/// `count` lengths that are all over the place, from 1 to 1 + 60 `scale`.
pub(super) fn uneven(count: usize, scale: usize) -> Vec<usize> {
    (0..count).map(|i| 1 + (i * i * 7 + i * 3) % 61 * scale).collect()
}

/// Places in one buffer for segments of these lengths: the last one first, with gaps between them, so that none
/// follows the one before it. The buffer ends where the first one does.
pub(super) fn places(lens: &[usize]) -> Vec<Range<usize>> {
    const GAP: usize = 5;
    let mut end = 0;
    let place = |len: &usize| {
        let start = end + GAP;
        end = start + len;
        start..end
    };
    let mut places: Vec<_> = lens.iter().rev().map(place).collect();
    places.reverse();
    places
}

/// The image of a buffer of `0xee` after `bytes` went to these places, one after the other.
pub(super) fn scattered(bytes: &[u8], places: &[Range<usize>]) -> Vec<u8> {
    let mut image = vec![0xee; places.first().map_or(0, |first| first.end)];
    let mut rest = bytes;
    for place in places {
        let (now, later) = rest.split_at(place.len().min(rest.len()));
        image[place.start..place.start + now.len()].copy_from_slice(now);
        rest = later;
    }
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_end_at_the_max() {
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(10), [1, 2, 3, 4, 5, 7, 8, 9, 10]);
        assert_eq!(sizes(4 << 20).split_off(59), [(1 << 21) + 1, 4 << 20]);
    }

    #[test]
    fn bytes_go_to_their_places() {
        let places = places(&[2, 1]);
        assert_eq!(places, [11..13, 5..6]);
        let image = scattered(&[1, 2, 3], &places);
        assert_eq!((&image[11..], image[5]), (&[1, 2][..], 3));
        assert_eq!(image.iter().filter(|byte| **byte == 0xee).count(), 10);
    }
}
