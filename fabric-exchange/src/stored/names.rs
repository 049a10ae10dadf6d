//! The names of what is stored: legal as names of files, whatever the key is.

use sha2::{Digest, Sha256};

/// As many bytes of a key can be read in its name.
const READABLE: usize = 40;
/// As many bytes of the hash are in a name. No two keys that anyone can find have the same.
const HASH: usize = 20;

/// The name of a key: what is readable of it, for people, and a hash of it, which is what counts.
pub(super) fn name_of(key: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    let readable: String = key.chars().take(READABLE).map(legal).collect();
    let hash = Sha256::digest(key.as_bytes());
    let hash: String = hash.iter().take(HASH).map(|byte| format!("{byte:02x}")).collect();
    // Names begin with a letter.
    format!("n{readable}-{hash}")
}

/// The folder of a barrier.
pub(super) fn gate(name: &str, round: u32) -> String {
    format!("gates-{}.{round}", name_of(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_key_has_a_legal_name_of_its_own() {
        let long = "x".repeat(300);
        let keys = [
            "",
            ".",
            "..",
            "a/b",
            "a-b",
            "a b",
            "A-b",
            "é",
            "\0",
            "nul",
            long.as_str(),
            &long[1..],
        ];
        let names: BTreeSet<_> = keys.map(name_of).into_iter().collect();
        assert_eq!(names.len(), keys.len());
        for name in &names {
            assert!(name.len() < 128 && name.starts_with('n'), "{name}");
            assert!(
                name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'),
                "{name}"
            );
        }
    }

    /// Processes of other builds look for the same names.
    #[test]
    fn the_names_are_these() {
        assert_eq!(name_of("ua b"), "nua-b-91cd29587aa7054c3be67e53a869a3a700289377");
        assert!(gate("x", 3).starts_with("gates-nx-2d711642b726b04401627ca9fbac32f5c8530fb1."));
    }
}
