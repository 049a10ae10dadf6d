//! Values of arguments: how they are read, and what one is that is not given.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An address with a port; names are looked up.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let mut found = text.to_socket_addrs().map_err(|error| error.to_string())?;
    found.next().ok_or_else(|| "the name has no address".to_owned())
}

pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<u64>() {
        Ok(seconds @ 1..=3600) => Ok(Duration::from_secs(seconds)),
        _ => Err("a number of seconds from 1 to 3600 is expected".to_owned()),
    }
}

pub(super) fn minutes(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(minutes) if (0.0..=1e6).contains(&minutes) => {
            Ok(Duration::from_secs_f64(60.0 * minutes))
        }
        _ => Err("minutes are expected, as 90 or 0.5".to_owned()),
    }
}

pub(super) fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(factor) if (1.0..=100.0).contains(&factor) => Ok(factor),
        _ => Err("a number from 1 to 100 is expected".to_owned()),
    }
}

pub(super) fn name_and_reason(text: &str) -> Result<(String, String), String> {
    match text.split_once(':').map(|(name, reason)| (name.trim(), reason.trim())) {
        Some((name, reason)) if !name.is_empty() && !reason.is_empty() => {
            Ok((name.to_owned(), reason.to_owned()))
        }
        _ => Err("a provider's name, a colon and a reason are expected".to_owned()),
    }
}

/// A seed that differs from run to run, short enough to be typed again.
pub(super) fn seed_of_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::from(since.subsec_nanos() ^ since.as_secs() as u32)
}
