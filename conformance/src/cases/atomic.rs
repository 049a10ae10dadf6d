//! One-sided atomics.

use crate::prelude::*;

pub(super) const CASES: &[Case] = &[];
