/// The provider's name, as users write it in `FABRIC_PROVIDER`.
pub const NAME: &str = "shm";
