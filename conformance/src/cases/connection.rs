//! Connecting, accepting, rejecting, listening.

use crate::prelude::*;

pub(super) const CASES: &[Case] = &[];
