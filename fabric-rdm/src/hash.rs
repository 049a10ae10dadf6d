//! Hashes of what peers choose.

use ahash::RandomState;
use fabric_core::Result;

use crate::identity::random_bytes;

/// A hasher with a secret key, of its own for each table.
///
/// Tags, sources and identities are chosen by peers. With a known hash a peer could choose thousands that all meet in one
/// place of a table, and each operation of every other peer would have to step over them. It cannot without the key, and
/// nothing that it sees depends on that.
///
/// # Errors
/// [`Error::Internal`](fabric_core::Error::Internal): the system gives no random numbers.
pub(crate) fn keyed_hasher() -> Result<RandomState> {
    let keys: [u64; 4] = zerocopy::transmute!(random_bytes::<32>("hash key")?);
    Ok(RandomState::with_seeds(keys[0], keys[1], keys[2], keys[3]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_own_key() {
        let (one, other) = (keyed_hasher().unwrap(), keyed_hasher().unwrap());
        assert_eq!(one.hash_one(7), one.hash_one(7));
        assert_ne!(one.hash_one(7), other.hash_one(7));
    }
}
