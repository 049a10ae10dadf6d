//! What there is, and why the rest is not.

mod choosing;
mod offers;

use crate::prelude::*;

pub(super) const CASES: &[Case] = cases! { Discovery:
    offers::enum_all, Needs::NOTHING,
        "every device is listed, usable with capabilities and limits or unusable with a reason";
    choosing::filter_caps, Needs::RMA.and(Capabilities::ATOMIC),
        "devices match the wanted capabilities completely, or are left out with what they lack";
    choosing::impossible_hint, Needs::NOTHING,
        "an inject of 2^40 bytes: no device matches, and the reason names the limit";
    offers::limits_exact, Needs::NOTHING,
        "each declared maximum alone, the rest default: it can be asked for, and made";
    offers::limits_plus1, Needs::NOTHING,
        "one more than each declared maximum: an error that names the limit";
    choosing::bad_address, Needs::NOTHING,
        "addresses that no peer has, and one of another machine to listen on: InvalidArgument from the call";
    choosing::no_device, Needs::NOTHING,
        "a device that is not there, and each provider without one: an error that names it and says why";
    choosing::misspelt_provider, Needs::NOTHING,
        "a misspelt provider or device: an error with the nearest name";
    choosing::excluded, Needs::NOTHING, "an excluded provider is listed as such and never chosen";
    offers::atomic_query, Needs::ALL,
        "each atomic operation on each type works exactly if the device says that it has it";
    choosing::selection_is_visible, Needs::NOTHING,
        "a domain names its provider and device, the choice that led to them, and what was passed over";
};
