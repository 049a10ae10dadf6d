//! Planted bugs of the provider that joins two.

use crate::mutant::{Mutant, Runs, edit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "auto_far_unwatched",
        about: "who sleeps on the queue is not woken by what comes the far way",
        runs: Runs::Tests,
        edits: &[edit(
            "AutoCq::new",
            "watch([near.fd(), far.fd()])",
            "watch([near.fd(), near.fd()])",
        )],
        cases: &["anyfabric-auto/ways/peers_of_all_kinds_meet_in_one_region_and_one_queue"],
    },
    Mutant {
        name: "auto_receives_apart",
        about: "receives of a shared queue are for peers of one way only",
        runs: Runs::Tests,
        edits: &[edit("SharedReceiveQueue::beside", "other.receives.clone()", "Arc::default()")],
        cases: &["anyfabric-auto/ways/peers_of_both_ways_share_a_receive_queue"],
    },
    Mutant {
        name: "auto_far_unpolled",
        about: "polls find nothing that comes the far way",
        runs: Runs::Tests,
        edits: &[edit("Queues::use_far", "self.far_used.store(true, Ordering::Release);", "")],
        cases: &["anyfabric-auto/ways/one_queue_serves_both_ways_in_turns"],
    },
    Mutant {
        name: "auto_far_polled_once",
        about: "a far queue that was idle for long is looked at no more",
        runs: Runs::Tests,
        edits: &[edit(
            "Queues::is_time_for_far",
            "(PATIENCE..PATIENCE + RARELY - 1).contains(&idle)",
            "idle >= PATIENCE",
        )],
        cases: &["anyfabric-auto/ways/one_queue_serves_both_ways_in_turns"],
    },
    Mutant {
        name: "auto_near_first",
        about: "the far queue is looked at only where the near one left room",
        runs: Runs::Tests,
        edits: &[edit(
            "Queues::poll_both",
            "self.far_first.store(!far_first, Ordering::Relaxed);",
            "",
        )],
        cases: &["anyfabric-auto/ways/one_that_always_finds_something_near_hears_its_far_peer"],
    },
    Mutant {
        name: "auto_other_key",
        about: "shared memory gives a registration a key of its own",
        runs: Runs::Tests,
        edits: &[edit("AutoRegistration::new", "far.remote_base()", "far.remote_base() + 8")],
        cases: &["anyfabric-auto/ways/peers_of_all_kinds_meet_in_one_region_and_one_queue"],
    },
    Mutant {
        name: "auto_receives_lost",
        about: "receives that were posted before the way was known are forgotten",
        runs: Runs::Tests,
        edits: &[edit("AutoEndpoint::go", "open.receives.clone()", "Vec::new()")],
        cases: &[
            "anyfabric-auto/ways/receives_that_were_posted_before_go_the_way_that_the_connection_does",
            "anyfabric-auto/ways/what_was_never_connected_ends_as_everywhere",
        ],
    },
    Mutant {
        name: "auto_tried_once",
        about: "an attempt that fails at once has chosen the way for good",
        runs: Runs::Tests,
        edits: &[edit(
            "AutoEndpoint::go",
            "begun.is_ok() || way.ops().quiesce().is_err()",
            "begun.is_ok() || way.ops().quiesce().is_ok()",
        )],
        cases: &["anyfabric-auto/ways/an_endpoint_can_be_tried_again_the_other_way"],
    },
    Mutant {
        name: "auto_requests_mixed",
        about: "requests that came by shared memory are answered the far way",
        runs: Runs::Tests,
        edits: &[edit("near_request", "id.0 | NEAR", "id.0")],
        cases: &["anyfabric-auto/ways/peers_of_all_kinds_meet_in_one_region_and_one_queue"],
    },
    Mutant {
        name: "auto_outlives_the_device",
        about: "connections by shared memory go on when the device is lost",
        runs: Runs::Tests,
        edits: &[edit("FarEvents::event", "self.ends.lose();", "")],
        cases: &["anyfabric-auto/lost/connections_by_shared_memory_end_with_the_device"],
    },
    Mutant {
        name: "auto_trusts_any_listener",
        about: "a listener of another user is as good as one of the same",
        runs: Runs::Tests,
        edits: &[edit("dial_near", "is_same_user(&socket)", "socket.local_addr().is_ok()")],
        cases: &["anyfabric-shm/users/a_listener_of_another_user_is_not_near"],
    },
    Mutant {
        name: "auto_silent_detour",
        about: "want of descriptors is a reason to go the far way",
        runs: Runs::Tests,
        edits: &[edit(
            "Ways::look",
            "Err(Error::system(\"connect\", provider_shm::NAME, cause).at(to))",
            "Ok(Err(cause.to_string()))",
        )],
        cases: &["anyfabric-auto/descriptors/want_of_descriptors_is_no_reason_to_go_another_way"],
    },
];
