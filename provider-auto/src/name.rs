//! The provider's name.

/// As `FABRIC_PROVIDER` has it.
pub const NAME: &str = "auto";
