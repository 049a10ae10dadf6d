//! Mutants of reliable datagram endpoints: attempts, places and what is wanted of them, appointments, shortages.

use crate::mutant::{Mutant, Runs, edit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "rdm_requests_first",
        about: "as long as a request waits, an endpoint makes no attempt of its own",
        runs: Runs::Tcp,
        edits: &[edit("Core::on_held", "self.hurry_waiting()", "None")],
        cases: &["rdm.asked_without_end"],
    },
    Mutant {
        name: "rdm_appointment_believed",
        about: "a peer that says to come again in a thousand years is asked then",
        runs: Runs::Tests,
        edits: &[edit(
            "PeerConnection::retry_at_appointment",
            "wait.max(retry).min(connect / 2)",
            "wait.max(retry)",
        )],
        cases: &["anyfabric-rdm/lib/connection::tests::attempts::asked_again_when_the_peer_says"],
    },
    Mutant {
        name: "rdm_appointment_at_once",
        about: "a peer that says to come again at once is asked without end",
        runs: Runs::Tests,
        edits: &[edit(
            "PeerConnection::retry_at_appointment",
            "wait.max(retry).min(connect / 2)",
            "wait.min(connect / 2)",
        )],
        cases: &["anyfabric-rdm/lib/connection::tests::attempts::asked_again_when_the_peer_says"],
    },
    Mutant {
        name: "rdm_busy_is_unreachable",
        about: "a peer that answers, and has no place, is taken for unreachable as soon as one that does not answer",
        runs: Runs::Tests,
        edits: &[edit(
            "PeerConnection::is_there",
            "self.wanted.map(|since| since.max(now.min(last)))",
            "self.wanted",
        )],
        cases: &[
            "anyfabric-rdm/lib/connection::tests::attempts::a_peer_that_answers_is_not_unreachable",
        ],
    },
    Mutant {
        name: "rdm_failed_together",
        about: "attempts that failed together are made again together",
        runs: Runs::Tests,
        edits: &[edit("PeerConnection::retry_later", "wait - wait / 512 * part.into()", "wait")],
        cases: &["anyfabric-rdm/lib/connection::tests::attempts::attempts_are_spread"],
    },
    Mutant {
        name: "rdm_appointments_together",
        about: "all that are refused come again at the same time",
        runs: Runs::Tests,
        edits: &[edit("Appointments::next", "last.saturating_add(self.interval)", "last")],
        cases: &["anyfabric-rdm/lib/endpoint::appointments::tests::each_has_a_time_of_its_own"],
    },
    Mutant {
        name: "rdm_appointments_without_end",
        about: "the more are refused, the later they come again, and those behind them",
        runs: Runs::Tests,
        edits: &[edit(
            "Appointments::next",
            "if is_near { self.last.max(first) } else { first }",
            "self.last.max(first)",
        )],
        cases: &[
            "anyfabric-rdm/lib/endpoint::appointments::tests::a_crowd_without_end_shares_its_times",
        ],
    },
    Mutant {
        name: "rdm_attempts_take_all",
        about: "attempts take all places, and none is left to accept by",
        runs: Runs::Tests,
        edits: &[edit("Attempts::new", "max_open as usize / 2", "max_open as usize")],
        cases: &["anyfabric-rdm/lib/endpoint::attempts::tests::fewer_while_peers_do_not_answer"],
    },
    Mutant {
        name: "rdm_silence_unnoticed",
        about: "peers that do not answer are asked as many at a time as those that do",
        runs: Runs::Tests,
        edits: &[edit(
            "Attempts::is_unanswered",
            "self.allowed = (self.allowed / 2).max(self.max.div_ceil(MIN_PART));",
            "",
        )],
        cases: &["anyfabric-rdm/lib/endpoint::attempts::tests::fewer_while_peers_do_not_answer"],
    },
    Mutant {
        name: "rdm_descriptors_for_attempts",
        about: "attempts leave no descriptors for what they are accepted by",
        runs: Runs::Tests,
        edits: &[edit("Process::has_enough", "attempts.load(Ordering::Relaxed) + 2", "1")],
        cases: &[
            "anyfabric-rdm/lib/endpoint::shortage::tests::attempts_leave_room_for_those_that_come_in",
        ],
    },
    Mutant {
        name: "rdm_all_try_at_once",
        about: "while descriptors are short all endpoints try whether there are more, and not one now and then",
        runs: Runs::Tests,
        edits: &[edit("Process::may_try", "(at <= now).then_some(next)", "Some(next)")],
        cases: &[
            "anyfabric-rdm/lib/endpoint::shortage::tests::one_tries_now_and_then_and_more_is_learned",
        ],
    },
    Mutant {
        name: "rdm_parked_for_nothing",
        about: "connections are parked for attempts that have a place",
        runs: Runs::Tests,
        edits: &[edit(
            "Core::places_wanted",
            "(attempts + self.held.len()).saturating_sub(free)",
            "attempts + self.held.len()",
        )],
        cases: &["anyfabric-rdm/crowd/all_to_all::places_enough"],
    },
    Mutant {
        name: "rdm_parks_all_for_one",
        about: "while a peer does not answer its parking, others are parked in its place, one after the other",
        runs: Runs::Tests,
        edits: &[edit("Core::survey", "found.draining += usize::from(lasts < patience);", "")],
        cases: &["anyfabric-rdm/hostile/connections::unanswered_parking_parks_no_others"],
    },
];
