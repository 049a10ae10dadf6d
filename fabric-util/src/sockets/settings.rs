//! How a provider is set.

use std::time::Duration;

use fabric_core::setting::{number, unknown};
use fabric_core::{Result, Setting};

use super::conn::SocketStream;
use super::family::SocketFamily;
use crate::fault::RandomSchedule;
use crate::progress::Schedule;
use crate::splitmix::mix;
use crate::stream::Protected;

/// How long a post is held back at most, unless set otherwise.
const HOLD: Duration = Duration::from_micros(50);

const GATHER: &str = "gather_us";
const ADVERSARY: &str = "adversary";

pub(super) const SETTINGS: &[Setting] = &[
    Setting::new(
        GATHER,
        "how long a post may wait for the application's next poll, in microseconds (0 to 1000), while earlier ones are \
         unacknowledged, so that many go in one system call; 0 writes each at once",
        "50",
    ),
    Setting::new(
        ADVERSARY,
        "for tests: the provider takes every liberty that the contract leaves (cuts, delays, odd orders), as this seed \
         says (a whole number)",
        "none: it does its best",
    ),
];

/// How a provider is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketSettings {
    /// How long posts may be held back; `None`: not at all.
    pub(super) hold: Option<Duration>,
    /// For tests: the seed of the faults that are injected.
    pub(super) adversary: Option<u64>,
}

impl Default for SocketSettings {
    fn default() -> Self {
        SocketSettings { hold: Some(HOLD), adversary: None }
    }
}

impl SocketSettings {
    /// These settings with one of them changed.
    ///
    /// # Errors
    /// As [`Provider::configure`](fabric_core::Provider::configure).
    pub(super) fn with(mut self, provider: &'static str, name: &str, value: &str) -> Result<Self> {
        match name {
            GATHER => {
                let max = Duration::from_micros(number(name, value, 0..=1000)?);
                self.hold = (!max.is_zero()).then_some(max);
            }
            ADVERSARY => self.adversary = Some(number(name, value, 0..=u64::MAX)?),
            _ => return Err(unknown(provider, name, SETTINGS)),
        }
        Ok(self)
    }

    /// The transport of the connection with this name.
    pub(super) fn stream<F: SocketFamily>(
        &self,
        transport: Protected<F::Transport>,
        name: usize,
    ) -> SocketStream<F> {
        SocketStream::<F>::new(transport, self.adversary.map(|seed| mix(seed ^ mix(name as u64))))
    }

    /// The order in which connections are served, if it is not the usual one.
    pub(super) fn schedule(&self) -> Option<Box<dyn Schedule>> {
        self.adversary.map(|seed| Box::new(RandomSchedule::new(seed)) as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked() {
        let set = |name, value| SocketSettings::default().with("tcp", name, value);
        assert_eq!(set("gather_us", "7").unwrap().hold, Some(Duration::from_micros(7)));
        assert_eq!(set("gather_us", "0").unwrap().hold, None);
        assert_eq!(set("adversary", "7").unwrap().adversary, Some(7));
        let text = set("gather_us", "1001").unwrap_err().to_string();
        assert!(text.contains(r#"gather_us="1001" is not a whole number in 0..=1000"#), "{text}");
        let text = set("gather", "1").unwrap_err().to_string();
        assert!(text.contains("there are: gather_us, adversary"), "{text}");
    }

    #[test]
    fn settings_add_up() {
        let both = SocketSettings::default().with("tcp", "adversary", "7").unwrap();
        let both = both.with("tcp", "gather_us", "0").unwrap();
        assert_eq!((both.hold, both.adversary), (None, Some(7)));
    }
}
