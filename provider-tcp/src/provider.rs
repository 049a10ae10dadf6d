//! The provider: discovery and opening.

use std::sync::Arc;
use std::time::Duration;

use fabric_core::setting::{number, unknown};
use fabric_core::{Device, EventSink, Info, Provider, Result, Setting};
use fabric_util::log_line;

use crate::NAME;
use crate::device;
use crate::domain::TcpDomain;
use crate::settings::Settings;

const GATHER: &str = "gather_us";
const ADVERSARY: &str = "adversary";

const SETTINGS: &[Setting] = &[
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

/// The TCP provider. [`settings`](Provider::settings) has what can be set.
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpProvider {
    settings: Settings,
}

impl TcpProvider {
    /// The provider that users get.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Provider for TcpProvider {
    type Domain = TcpDomain;

    fn name(&self) -> &'static str {
        NAME
    }

    fn devices(&self) -> Vec<Device> {
        let mut devices = device::devices(NAME);
        if let Some(seed) = self.settings.adversary {
            let detail = (ADVERSARY.to_owned(), format!("on, seed {seed}"));
            let infos = devices.iter_mut().filter_map(|device| device.state.as_mut().ok());
            infos.for_each(|info| info.details.push(detail.clone()));
        }
        devices
    }

    fn settings(&self) -> &'static [Setting] {
        SETTINGS
    }

    fn configure(&self, name: &str, value: &str) -> Result<Self> {
        let TcpProvider { mut settings } = *self;
        match name {
            GATHER => {
                let max = Duration::from_micros(number(name, value, 0..=1000)?);
                settings.hold = (!max.is_zero()).then_some(max);
            }
            ADVERSARY => settings.adversary = Some(number(name, value, 0..=u64::MAX)?),
            _ => return Err(unknown(NAME, name, SETTINGS)),
        }
        Ok(TcpProvider { settings })
    }

    fn open(&self, info: &Info, events: Arc<dyn EventSink>) -> Result<TcpDomain> {
        if let Some(seed) = self.settings.adversary {
            log_line!(Warn, "{NAME}:{}: the adversary is on, seed {seed}", info.device);
        }
        TcpDomain::open(info, events, self.settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_checked() {
        let set = |name, value| TcpProvider::new().configure(name, value).map(|p| p.settings);
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
        let provider = TcpProvider::new().configure("adversary", "7").unwrap();
        let both = provider.configure("gather_us", "0").unwrap().settings;
        assert_eq!((both.hold, both.adversary), (None, Some(7)));
    }
}
