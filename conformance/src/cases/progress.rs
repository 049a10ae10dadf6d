//! What happens while nobody calls.

use crate::prelude::*;

pub(super) const CASES: &[Case] = &[];
