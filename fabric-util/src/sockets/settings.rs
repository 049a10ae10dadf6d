//! How a provider is set.

use std::time::Duration;

use fabric_core::setting::{choice, number, unknown};
use fabric_core::{Capabilities, Info, Result, Setting};

use super::conn::SocketStream;
use super::family::{PeerMemory, SocketFamily, Trust};
use crate::fault::RandomSchedule;
use crate::progress::Schedule;
use crate::splitmix::mix;
use crate::stream::Protected;

/// How long a post is held back at most, unless set otherwise.
const HOLD: Duration = Duration::from_micros(200);

const GATHER: &str = "gather_us";
const ADVERSARY: &str = "adversary";
const TRUST: &str = "trust";
const TRUSTS: &[(&str, Trust)] = &[("user", Trust::User), ("none", Trust::None)];

const SETTINGS: &[Setting] = &[
    Setting::new(
        GATHER,
        "how long a post may wait for the application's next poll, in microseconds (0 to 1000), while earlier ones are \
         unacknowledged, so that many go in one system call; 0 writes each at once",
        "200",
    ),
    Setting::new(
        ADVERSARY,
        "for tests: the provider does all that the contract permits (cuts, delays, odd orders), as this seed says (a \
         whole number)",
        "none: it does its best",
    ),
    Setting::new(
        TRUST,
        "whose processes may reach registered memory by themselves, without a part of this process: those of the same `user`, \
         or of `none`",
        "user",
    ),
];

/// What can be set of a family, which may share memory.
pub(super) fn settings<F: SocketFamily>() -> &'static [Setting] {
    if F::Memory::SHARED { SETTINGS } else { &SETTINGS[..SETTINGS.len() - 1] }
}

/// How a provider is set.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketSettings {
    /// How long posts may be held back; `None`: not at all.
    pub(super) hold: Option<Duration>,
    /// For tests: the seed of the faults that are injected.
    pub(super) adversary: Option<u64>,
    /// Whose processes may reach memory by themselves.
    pub(super) trust: Trust,
}

impl Default for SocketSettings {
    fn default() -> Self {
        SocketSettings { hold: Some(HOLD), adversary: None, trust: Trust::User }
    }
}

impl SocketSettings {
    /// These settings with one of them changed.
    ///
    /// # Errors
    /// As [`Provider::configure`](fabric_core::Provider::configure).
    pub(super) fn with<F: SocketFamily>(mut self, name: &str, value: &str) -> Result<Self> {
        match name {
            GATHER => {
                let max = Duration::from_micros(number(name, value, 0..=1000)?);
                self.hold = (!max.is_zero()).then_some(max);
            }
            ADVERSARY => self.adversary = Some(number(name, value, 0..=u64::MAX)?),
            TRUST if F::Memory::SHARED => {
                self.trust = choice(name, value, TRUSTS)?;
            }
            _ => return Err(unknown(F::NAME, name, settings::<F>())),
        }
        Ok(self)
    }

    /// Says what a device is by them.
    pub(super) fn declare<F: SocketFamily>(&self, info: &mut Info) {
        let mut say = |name: &str, what: String| info.details.push((name.to_owned(), what));
        if let Some(seed) = self.adversary {
            say("adversary", format!("on, seed {seed}"));
        }
        if F::Memory::SHARED {
            let (word, _) =
                TRUSTS.iter().find(|(_, trust)| *trust == self.trust).unwrap_or(&TRUSTS[0]);
            say(TRUST, (*word).to_owned());
            if self.trust == Trust::User {
                info.capabilities |= Capabilities::PROGRESS_WHILE_STOPPED;
            }
        }
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

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::super::testing::Loopback;
    use super::*;

    #[test]
    fn settings_are_checked() {
        let set = |name, value| SocketSettings::default().with::<Loopback>(name, value);
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
        let both = SocketSettings::default().with::<Loopback>("adversary", "7").unwrap();
        let both = both.with::<Loopback>("gather_us", "0").unwrap();
        assert_eq!((both.hold, both.adversary), (None, Some(7)));
    }
}
