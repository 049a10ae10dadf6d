//! Completion queues: exactly once, in order, never lost.

use crate::prelude::*;

pub(super) const CASES: &[Case] = &[];
