//! Stored values: how they begin, and how a secret authenticates them.
//!
//! A value is `FBXS`, a version, 1 if there is a secret else 0, the payload, and with a secret a code over the job, the
//! incarnation, the name and the payload. So a value cannot be changed, nor moved to another name, job or incarnation.

use fabric_core::Secret;
use fabric_util::proof::{HandshakeKeys, Prover, SEAL, Transcript};

use crate::error::{ExchangeError, Result};
use crate::job::Job;

const HEAD: [u8; 5] = *b"FBXS\x01";

/// As many bytes as a value has more than its payload.
pub(super) const OVERHEAD: usize = HEAD.len() + 1 + SEAL;

/// Makes and checks the values of one incarnation.
pub(super) struct Sealer(Option<Transcript>);

impl Sealer {
    pub(super) fn new(secret: Option<&Secret>, job: &Job) -> Self {
        Sealer(secret.map(|secret| {
            let mut transcript = HandshakeKeys::new(secret).transcript();
            transcript.add(&HEAD);
            transcript.add(&job.incarnation().to_le_bytes());
            transcript.add(&(job.name().len() as u32).to_le_bytes()); // at most MAX_JOB_NAME_BYTES
            transcript.add(job.name().as_bytes());
            transcript
        }))
    }

    /// Whether values are authenticated.
    pub(super) fn has_secret(&self) -> bool {
        self.0.is_some()
    }

    /// The value with this payload.
    pub(super) fn seal(&self, folder: &str, name: &str, payload: &[u8]) -> Vec<u8> {
        let level = [self.has_secret().into()];
        let mut value = [&HEAD[..], &level, payload].concat();
        if let Some(transcript) = &self.0 {
            let code = transcript.seal(Prover::Initiator, &covered(folder, name, payload));
            value.extend_from_slice(&code);
        }
        value
    }

    /// The payload of a value.
    ///
    /// # Errors
    /// `Malformed` and `Unauthenticated`, with the name.
    pub(super) fn open<'a>(&self, folder: &str, name: &str, value: &'a [u8]) -> Result<&'a [u8]> {
        let unauthenticated = |why: &str| {
            Err(ExchangeError::Unauthenticated(format!("the stored value {folder}/{name} {why}")))
        };
        let level = value.strip_prefix(&HEAD).and_then(<[u8]>::split_first);
        match (level, &self.0) {
            (Some((0, payload)), None) => Ok(payload),
            (Some((1, sealed)), Some(transcript)) => {
                let Some((payload, code)) = sealed.split_last_chunk::<SEAL>() else {
                    return unauthenticated("is cut off");
                };
                let covered = covered(folder, name, payload);
                match transcript.is_sealed(Prover::Initiator, &covered, code) {
                    true => Ok(payload),
                    false => unauthenticated("is by a process with another secret, or was changed"),
                }
            }
            (Some((0, _)), Some(_)) => unauthenticated("is by a process without a secret"),
            (Some((1, _)), None) => unauthenticated(
                "is by a process with a secret, and this one has none: name its file by FABRIC_SECRET_FILE",
            ),
            _ => Err(ExchangeError::Malformed(format!(
                "the stored value {folder}/{name} is none of fabric's, or of another version"
            ))),
        }
    }
}

/// What a code covers: lengths first, so that no other names have the same bytes.
fn covered(folder: &str, name: &str, payload: &[u8]) -> Vec<u8> {
    let lengths = [folder.len() as u32, name.len() as u32].map(u32::to_le_bytes).concat();
    [&lengths, folder.as_bytes(), name.as_bytes(), payload].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(secret: Option<u8>, incarnation: u64) -> Sealer {
        let secret = secret.map(|byte| Secret::new(&[byte; 32]).unwrap());
        Sealer::new(secret.as_ref(), &Job::new("job", incarnation, 2).unwrap())
    }

    #[test]
    fn a_value_is_of_one_job_and_name() {
        let ours = sealer(Some(1), 0);
        let value = ours.seal("keys", "ab", b"payload");
        assert_eq!(value.len(), 7 + OVERHEAD);
        assert_eq!(ours.open("keys", "ab", &value), Ok(&b"payload"[..]));
        for (sealer, folder, name) in [
            (sealer(Some(1), 1), "keys", "ab"),
            (sealer(Some(2), 0), "keys", "ab"),
            (sealer(Some(1), 0), "keysa", "b"),
            (sealer(Some(1), 0), "keys", "abc"),
            (sealer(None, 0), "keys", "ab"),
        ] {
            let opened = sealer.open(folder, name, &value);
            assert!(matches!(opened, Err(ExchangeError::Unauthenticated(_))), "{opened:?}");
        }
    }

    #[test]
    fn changes_are_noticed() {
        let ours = sealer(Some(1), 0);
        let value = ours.seal("keys", "a", b"payload");
        for at in 0..value.len() {
            let mut changed = value.clone();
            changed[at] ^= 1;
            assert!(ours.open("keys", "a", &changed).is_err(), "byte {at}");
            assert!(ours.open("keys", "a", &value[..at]).is_err(), "{at} bytes");
        }
        let open = sealer(None, 0);
        assert_eq!(open.open("k", "a", &open.seal("k", "a", b"x")), Ok(&b"x"[..]));
        let text = ours.open("k", "a", &open.seal("k", "a", b"x")).unwrap_err().to_string();
        assert!(text.contains("without a secret"), "{text}");
        assert!(matches!(open.open("k", "a", b"hello"), Err(ExchangeError::Malformed(_))));
    }
}
