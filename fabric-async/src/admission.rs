//! How a peer gets a place for its connection: see [`fabric_util::admission`].

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use fabric::Endpoint;
use fabric_util::admission::{Admission, Permit};

use crate::error::{Error, Result};
use crate::oneshot::Oneshot;
use crate::timers::{Timer, within};
use crate::wakers::Wakers;

/// Whether nothing was sent over an endpoint yet, in either direction.
pub(crate) fn is_unused(endpoint: &Endpoint) -> bool {
    let counters = endpoint.counters();
    counters.posted_sends == 0 && counters.received == 0
}

/// A place for a peer that connects from here. If a connection leaves for it, this waits until that is gone, for at most
/// `patience`.
///
/// # Errors
/// `TooManyConnections`; `TimedOut` if the place was not free in time.
pub(crate) async fn admit(
    places: &Arc<Admission>,
    from: IpAddr,
    patience: Duration,
    timer: Timer,
) -> Result<Permit> {
    if let Some(permit) = places.take(from) {
        return Ok(permit);
    }
    if !places.displace_for(from) {
        let ((of_it, taken), max) = (places.counts(from), places.limits().connections);
        return Err(Error::TooManyConnections { from, of_it, taken, max });
    }
    let place = Oneshot::new();
    let send = place.clone();
    let (permit, has_place) = places.take_in_turn(from, move || send.send((), &mut Wakers::new()));
    if !has_place {
        within(timer, patience, |cx| place.poll(cx).map(Ok)).await?;
    }
    Ok(permit)
}
