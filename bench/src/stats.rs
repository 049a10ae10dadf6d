//! Medians, and how sure they are.

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// Draws for the bootstrap.
const DRAWS: usize = 10_000;

/// The interval that holds the ratio of the medians with 95 %: percentile bootstrap over the pairs.
pub(crate) fn interval(ours: &[f64], base: &[f64]) -> (f64, f64) {
    let pairs: Vec<(f64, f64)> = ours.iter().copied().zip(base.iter().copied()).collect();
    if pairs.is_empty() {
        return (f64::NAN, f64::NAN);
    }
    // SplitMix64 from a fixed seed: the same samples give the same interval.
    let mut state = 0_u64;
    let mut draw = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ word >> 31) % pairs.len() as u64) as usize
    };
    let mut ratios: Vec<f64> = (0..DRAWS)
        .map(|_| {
            let (ours, base): (Vec<_>, Vec<_>) = pairs.iter().map(|_| pairs[draw()]).unzip();
            median(&ours) / median(&base)
        })
        .collect();
    ratios.sort_by(f64::total_cmp);
    (ratios[DRAWS * 25 / 1000], ratios[DRAWS * 975 / 1000])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn intervals_hold_the_ratio_and_shrink_with_the_spread() {
        let base: Vec<f64> = (0..11).map(|i| 100.0 + f64::from(i)).collect();
        let ours: Vec<f64> = base.iter().map(|value| value * 2.0).collect();
        let (low, high) = interval(&ours, &base);
        assert!((low - 2.0).abs() < 0.1 && (high - 2.0).abs() < 0.1, "{low} {high}");
        let noisy: Vec<f64> = (0..11).map(|i| 100.0 + 20.0 * f64::from(i)).collect();
        let (low, high) = interval(&noisy, &base);
        assert!(low < 1.8 && high > 2.0, "{low} {high}");
    }
}
