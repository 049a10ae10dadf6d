//! What a client and the server say to each other once they have shaken hands: messages, and how they are bytes.
//!
//! A message is the postcard encoding of [`Request`] or [`Answer`]. A client numbers its requests; the answer has the number.
//! Times are milliseconds.

use std::time::Duration;

use fabric_util::proof::SEAL;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::error::{ExchangeError, MissingRanks, Result};
use crate::job::{MAX_JOB_NAME_BYTES, MAX_KEY_BYTES, Membership};
use crate::limits::Limits;

/// As many bytes as a client takes for one message: the longest part of a gather, or the longest blob.
pub(crate) const MAX_ANSWER: usize = Limits::MAX_BLOB_BYTES as usize + (64 << 10);
/// As many requests as a client has at the server that wait for something: more of them wait at its end. The server ends a
/// connection with more.
pub(crate) const MAX_WAITS: usize = 32;

/// What a request has beside its blob: its number, the variant, a key and its lengths.
const REQUEST_OVERHEAD: usize = MAX_KEY_BYTES + MAX_JOB_NAME_BYTES + 64;

/// As many bytes as the server takes for one message.
pub(crate) fn max_request(limits: &Limits) -> usize {
    limits.blob_bytes as usize + REQUEST_OVERHEAD
}

/// From the client, with a number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) number: u32,
    pub(crate) ask: Ask,
}

/// What a client wants. The first one is to join.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ask {
    Join {
        membership: Membership,
        /// Drawn at random for each call, the same in all its attempts: by it the server knows one whose answer was lost.
        token: [u8; SEAL],
        /// Which attempt of the call it is.
        attempt: u32,
    },
    Put {
        key: String,
        blob: ByteBuf,
    },
    Get {
        key: String,
        wait_ms: u64,
    },
    Gather {
        round: u32,
        first: u32,
        wait_ms: u64,
    },
    Barrier {
        name: String,
        round: u32,
        wait_ms: u64,
    },
    /// This rank's part of a gather that all ranks have taken.
    Forget {
        round: u32,
    },
    Leave {
        is_lost: bool,
    },
    /// The answer to joining came: from now on this rank is lost if its connection ends. It has no answer.
    Here,
}

/// From the server, with the number of what it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) number: u32,
    pub(crate) say: Say,
}

/// What the server answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Say {
    Joined(Limits),
    /// Of a put: whether the key has these bytes.
    Kept(bool),
    Blob(ByteBuf),
    Blobs(Vec<ByteBuf>),
    /// Of a barrier: none are missing if it was passed.
    Missing(MissingRanks),
    /// What was waited for did not come.
    Late,
    Forgotten,
    Left,
    Failed(ExchangeError),
}

/// A message as bytes.
///
/// # Errors
/// `Malformed`: it has no encoding, which does not happen with the messages above.
pub(crate) fn encode(message: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_stdvec(message)
        .map_err(|error| ExchangeError::Malformed(format!("a message has no encoding: {error}")))
}

/// A message from bytes, all of them.
///
/// # Errors
/// `Malformed`, whatever the bytes are; it takes no more memory than a small multiple of theirs.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => {
            let rest = rest.len();
            Err(ExchangeError::Malformed(format!("{rest} bytes follow a message")))
        }
        Err(error) => Err(ExchangeError::Malformed(format!("no message: {error}"))),
    }
}

/// A time for the wire: rounded up, so that a short one is not taken for none.
pub(crate) fn to_ms(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::job::Job;

    fn any_membership() -> impl Strategy<Value = Membership> {
        ("[a-z ]{1,20}", any::<u64>(), 1u32..1000).prop_map(|(name, incarnation, size)| {
            Membership::new(Job::new(name, incarnation, size).unwrap(), size / 2).unwrap()
        })
    }

    fn any_blob() -> impl Strategy<Value = ByteBuf> {
        vec(any::<u8>(), 0..600).prop_map(ByteBuf::from)
    }

    fn any_ask() -> impl Strategy<Value = Ask> {
        prop_oneof![
            (any_membership(), any::<[u8; SEAL]>(), any::<u32>())
                .prop_map(|(membership, token, attempt)| Ask::Join { membership, token, attempt }),
            Just(Ask::Here),
            (any::<String>(), any_blob()).prop_map(|(key, blob)| Ask::Put { key, blob }),
            (any::<String>(), any::<u64>()).prop_map(|(key, wait_ms)| Ask::Get { key, wait_ms }),
            any::<(u32, u32, u64)>().prop_map(|(round, first, wait_ms)| Ask::Gather {
                round,
                first,
                wait_ms
            }),
            any::<(String, u32, u64)>().prop_map(|(name, round, wait_ms)| Ask::Barrier {
                name,
                round,
                wait_ms
            }),
            any::<u32>().prop_map(|round| Ask::Forget { round }),
            any::<bool>().prop_map(|is_lost| Ask::Leave { is_lost }),
        ]
    }

    fn any_say() -> impl Strategy<Value = Say> {
        let missing = (vec(any::<u32>(), 0..8), any::<u32>())
            .prop_map(|(first, count)| MissingRanks { first, count });
        let error = prop_oneof![
            any::<String>().prop_map(|key| ExchangeError::Conflict { key }),
            any::<u32>().prop_map(|rank| ExchangeError::RankLost { rank }),
            (any::<String>(), any::<u64>())
                .prop_map(|(what, max)| ExchangeError::Full { what, max }),
        ];
        prop_oneof![
            Just(Say::Joined(Limits::default())),
            any::<bool>().prop_map(Say::Kept),
            any_blob().prop_map(Say::Blob),
            vec(any_blob(), 0..5).prop_map(Say::Blobs),
            missing.prop_map(Say::Missing),
            Just(Say::Late),
            Just(Say::Left),
            error.prop_map(Say::Failed),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
        #[test]
        fn messages_survive(number: u32, ask in any_ask(), say in any_say()) {
            let request = Request { number, ask };
            prop_assert_eq!(decode(&encode(&request).unwrap()), Ok(request));
            let answer = Answer { number, say };
            prop_assert_eq!(decode(&encode(&answer).unwrap()), Ok(answer));
        }

        #[test]
        fn what_is_cut_off_or_followed_is_refused(number: u32, ask in any_ask()) {
            let bytes = encode(&Request { number, ask }).unwrap();
            for len in 0..bytes.len() {
                prop_assert!(decode::<Request>(&bytes[..len]).is_err());
            }
            let followed = [&bytes[..], &[0]].concat();
            prop_assert!(decode::<Request>(&followed).is_err());
        }

        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes: Vec<u8>) {
            for error in [decode::<Request>(&bytes).err(), decode::<Answer>(&bytes).err()].into_iter().flatten() {
                prop_assert!(matches!(error, ExchangeError::Malformed(_)), "{}", error);
            }
        }

        #[test]
        fn every_request_within_the_bounds_fits(blob_bytes in 1u32..8192) {
            let limits = Limits { blob_bytes, ..Limits::default() };
            let ask = Ask::Put {
                key: "k".repeat(MAX_KEY_BYTES + 1),
                blob: ByteBuf::from(vec![0xff; blob_bytes as usize]),
            };
            let bytes = encode(&Request { number: u32::MAX, ask }).unwrap();
            prop_assert!(bytes.len() <= max_request(&limits));
        }
    }

    #[test]
    fn times_are_rounded_up() {
        let ms = [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(7), Duration::MAX];
        assert_eq!(ms.map(to_ms), [0, 1, 7, u64::MAX]);
    }

    /// The format is fixed: clients of other builds send it.
    #[test]
    fn the_bytes_are_these() {
        let ask = Ask::Put { key: "ab".into(), blob: ByteBuf::from(vec![9, 8]) };
        assert_eq!(
            encode(&Request { number: 300, ask }),
            Ok(vec![0xac, 2, 1, 2, b'a', b'b', 2, 9, 8])
        );
        let answer = Answer { number: 1, say: Say::Kept(true) };
        assert_eq!(encode(&answer), Ok(vec![1, 1, 1]));
    }
}
