//! What a look for devices found, for a moment: programs ask for lists in bursts, and a look opens each RDMA device.

use std::ffi::OsString;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::sync::lock;

/// How long it counts.
const FRESH: Duration = Duration::from_secs(1);

/// The variables of this library.
const PREFIX: &[u8] = b"FABRIC_";

/// What was found last.
pub(super) struct Found<T>(Mutex<Option<Look<T>>>);

struct Look<T> {
    at: Instant,
    /// What else it depended on: the variables, sorted.
    environment: Vec<(OsString, OsString)>,
    found: Arc<T>,
}

impl<T> Found<T> {
    pub(super) const fn new() -> Self {
        Found(Mutex::new(None))
    }

    /// What was found in the last second, in the same environment; else, or if it has to be `anew`, what `look` finds. A failure is
    /// not kept.
    pub(super) fn get<E>(
        &self,
        now: Instant,
        anew: bool,
        look: impl FnOnce() -> Result<T, E>,
    ) -> Result<Arc<T>, E> {
        let environment = environment();
        let is_fresh = |last: &&Look<T>| {
            now.saturating_duration_since(last.at) < FRESH && last.environment == environment
        };
        if let (false, Some(last)) = (anew, lock(&self.0).as_ref().filter(is_fresh)) {
            return Ok(last.found.clone());
        }
        let found = Arc::new(look()?);
        *lock(&self.0) = Some(Look { at: now, environment, found: found.clone() });
        Ok(found)
    }
}

fn environment() -> Vec<(OsString, OsString)> {
    let ours = |(name, _): &(OsString, OsString)| name.as_encoded_bytes().starts_with(PREFIX);
    let mut variables: Vec<_> = std::env::vars_os().filter(ours).collect();
    variables.sort();
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_looks_once() {
        let (found, now) = (Found::new(), Instant::now());
        let get =
            |now, anew, number| found.get(now, anew, || Ok::<_, ()>(number)).map(|found| *found);
        assert_eq!([get(now, false, 1), get(now, false, 2)], [Ok(1), Ok(1)]);
        assert_eq!([get(now, true, 3), get(now, false, 4)], [Ok(3), Ok(3)]);
        let later = now + FRESH;
        assert_eq!(found.get(later, false, || Err(())).map(|found| *found), Err(()));
        assert_eq!(get(later, false, 5), Ok(5));
    }
}
