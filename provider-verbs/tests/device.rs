//! On a real device: what discovery says of it, its loss, peers that die or only stop, what is left when all is gone.
//!
//! Without a device every test is ignored, and a line says so; with `FABRIC_TEST_DEVICE=1` that is a failure.
//! The tests run one at a time: they count the descriptors of the process, and take the CPU for themselves.

#![allow(clippy::unwrap_used, clippy::panic)] // a test of this kind is no `#[test]` that clippy knows

#[path = "../src/ffi/bindings/mod.rs"]
mod bindings;
#[path = "device/calls.rs"]
mod calls;
#[path = "device/discovery.rs"]
mod discovery;
#[path = "../../tests/faults/mod.rs"]
mod faults;
#[path = "device/flush.rs"]
mod flush;
#[path = "../../tests/held/mod.rs"]
mod held;
#[path = "device/inject.rs"]
mod inject;
#[path = "device/loopback.rs"]
mod loopback;
#[path = "device/loss.rs"]
mod loss;
#[path = "device/many.rs"]
mod many;
#[path = "device/path.rs"]
mod path;
#[path = "device/peers.rs"]
mod peers;
#[path = "device/port.rs"]
mod port;
#[path = "device/refusals.rs"]
mod refusals;
#[path = "device/rig.rs"]
mod rig;
#[path = "device/shared.rs"]
mod shared;
#[path = "device/signals.rs"]
mod signals;
#[path = "device/sinks.rs"]
mod sinks;
#[path = "device/software.rs"]
mod software;
#[path = "device/stays.rs"]
mod stays;
#[path = "device/unconfirmed.rs"]
mod unconfirmed;
#[path = "device/unsignaled.rs"]
mod unsignaled;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// A test, and whether it can run on the device there is.
struct Case {
    name: &'static str,
    run: fn(),
    /// Makes a device and takes it away: for Soft-RoCE, as root.
    software: bool,
}

const fn case(name: &'static str, run: fn()) -> Case {
    Case { name, run, software: false }
}

const fn software(name: &'static str, run: fn()) -> Case {
    Case { name, run, software: true }
}

const CASES: [Case; 37] = [
    case("a_killed_idle_peer_is_noticed", peers::killed_idle),
    case("a_killed_busy_peer_is_noticed", peers::killed_busy),
    case("a_stopped_peer_is_not_lost", peers::stopped),
    case("a_peer_that_takes_no_message_is_not_lost", peers::takes_nothing),
    case("endpoints_leave_a_shared_queue_while_others_use_it", many::leave_a_shared_queue),
    case("200_domains_leave_nothing", many::domains),
    case("500_pairs_leave_nothing", many::pairs),
    case("60_pairs_at_once_leave_nothing", many::pairs_at_once),
    case("injects_on_a_device_without_inline", inject::without_inline),
    case("a_refusal_is_noticed_while_regions_go", refusals::noticed_while_regions_go),
    case("path_settings_reach_the_queue_pair", path::settings_reach_the_queue_pair),
    case("vectors_and_relaxed_ordering", path::vectors_and_relaxed_ordering),
    case("the_way_out_leads_to_the_device", path::the_way_out_leads_to_the_device),
    case("signals_disturb_nothing", signals::disturb_nothing),
    case("unsignaled_operations_leave_nothing_busy", unsignaled::leave_nothing_busy),
    case("nor_when_the_peer_dies", unsignaled::leave_nothing_busy_when_the_peer_dies),
    case("an_address_that_leads_nowhere_is_refused", loopback::is_refused_at_once),
    case("a_sink_may_panic", sinks::may_panic),
    case("a_sink_may_call_back", sinks::may_call_back),
    case("a_sink_may_drop_the_domain", sinks::may_drop_the_domain),
    case("a_fault_of_the_thread_ends_the_domain", sinks::a_fault_ends_the_domain),
    case("a_disconnect_ends_a_begun_shared_receive", shared::disconnect_ends_what_was_begun),
    case("a_peer_ends_a_begun_shared_receive", shared::peer_ends_what_was_begun),
    case("an_endpoint_that_goes_ends_a_begun_shared_receive", shared::quiesce_ends_what_was_begun),
    case("shared_receives_outlive_endpoints", shared::ends_leave_the_rest),
    case("every_call_may_fail", calls::may_fail),
    case("a_lost_confirmation_ends_no_connection", unconfirmed::ends_no_connection),
    case("a_refused_flush_is_tried_again", flush::is_tried_again),
    case("a_queue_pair_that_stays_keeps_its_memory", stays::keeps_its_memory),
    case("discovery_looks_at_no_empty_slot", discovery::looks_at_no_empty_slot),
    software("a_port_that_is_down_is_told", discovery::a_port_that_is_down),
    software("a_file_that_may_not_be_opened_is_told", discovery::a_file_that_may_not_be_opened),
    software("little_memory_to_lock_is_told", discovery::little_memory_to_lock),
    software("a_port_that_goes_down_is_an_event", port::is_an_event),
    software("a_lost_device_ends_everything", loss::ends_everything),
    software("a_device_taken_away_too", loss::ends_everything_silently),
    software("a_lost_device_that_goes_on_frees_nothing", loss::is_believed_once_it_has_stopped),
];

fn main() -> ExitCode {
    // SAFETY: each passes its calls on, or fails as the library's may.
    #[cfg(not(feature = "rdma-sys"))]
    unsafe {
        provider_verbs::interpose(calls::interposed);
    }
    if let Some(code) = peers::play() {
        return code;
    }
    if let Some(code) = software::play() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials()).exit_code()
}

fn trials() -> Vec<Trial> {
    let missing = rig::try_open().err().map(|error| error.to_string());
    let wanted = std::env::var_os("FABRIC_TEST_DEVICE").is_some_and(|value| value == "1");
    if missing.is_some() {
        println!("no RDMA device here: run it in the guest: scripts/softroce -- {}", program());
    }
    let software = software::can_make_devices();
    let trial = |case: &Case| {
        let (run, lacks) = (case.run, missing.clone().filter(|_| wanted));
        let ignored =
            missing.is_some() && !wanted || missing.is_none() && case.software && !software;
        Trial::test(case.name, move || match lacks {
            Some(reason) => Err(reason.into()),
            None => {
                run();
                Ok(())
            }
        })
        .with_ignored_flag(ignored)
    };
    CASES.iter().map(trial).collect()
}

fn program() -> String {
    std::env::args().next().unwrap_or_default()
}
