//! What cases use, those of this crate and any that a provider's tests add.

pub use std::thread;
pub use std::time::{Duration, Instant};

pub use fabric::{
    Access, AtomicOp, AtomicType, Capabilities, Completion, DisconnectReason, EndpointState, Error,
    Event, Op, OpKind, Recv, RemoteRegion, Slices, Status,
};

pub use crate::case::{Case, Group, Needs, Turn};
pub use crate::check::{Failed, Outcome};
pub use crate::done::Done;
pub use crate::end::End;
pub use crate::forge::{forged_access, forged_key, forged_range};
pub use crate::freedom::Freedom;
pub use crate::guarded::{GUARD, Guarded};
pub use crate::pattern::{Pattern, Rng};
pub use crate::recorded::{RecordedEvents, RecordedQueue};
pub use crate::rig::Rig;
pub use crate::{check, check_bytes, check_eq, check_err, check_matches, fail};
