//! What an operation finds done, and what may still be under way.

use crate::prelude::*;

pub(super) const CASES: &[Case] = &[];
