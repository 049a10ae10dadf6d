//! Tables of what is not there.

use crate::abi::{OpsAtomic, OpsCollective, OpsTagged};
use crate::entry::refused;

pub(super) static TAGGED: OpsTagged = OpsTagged { size: size_of::<OpsTagged>(), all: [refused; 9] };
pub(super) static ATOMIC: OpsAtomic =
    OpsAtomic { size: size_of::<OpsAtomic>(), all: [refused; 13] };
pub(super) static COLLECTIVE: OpsCollective =
    OpsCollective { size: size_of::<OpsCollective>(), all: [refused; 11] };
