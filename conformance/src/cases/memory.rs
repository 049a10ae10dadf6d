//! Registration: what can be registered, and what its end means.

use crate::prelude::*;

pub(super) const CASES: &[Case] = &[];
