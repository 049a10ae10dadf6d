//! What there is, and why the rest is not.

use crate::prelude::*;

pub(super) const CASES: &[Case] = &[];
