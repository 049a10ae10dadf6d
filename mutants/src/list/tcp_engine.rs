//! Mutants of the TCP provider's engine: sockets, threads, wake-ups, connections.

use crate::mutant::{Mutant, Runs, edit};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "no_thread",
        about: "nothing happens on a connection unless the application polls",
        runs: Runs::Tcp,
        edits: &[edit(
            "Engine::progress",
            "conn.turn(scratch, outbox)",
            "if mode == Mode::Unattended && conn.link.is_announced() { Progress::Idle } else { conn.turn(scratch, outbox) }",
        )],
        cases: &["progress.target_sleep", "progress.target_compute"],
    },
    Mutant {
        name: "stop_reading",
        about: "a connection that cannot write does not read either",
        runs: Runs::Tcp,
        edits: &[edit(
            "Locked::exchange",
            "reads == READS_A_TURN",
            "reads == READS_A_TURN || self.full",
        )],
        cases: &["send.bidir_flood"],
    },
    Mutant {
        name: "left_for_no_turn",
        about: "a send that a message acknowledges waits for a turn that no application asks for",
        runs: Runs::Tests,
        edits: &[edit(
            "Locked::exchange",
            "may_defer && self.state.link.has_received()",
            "self.state.link.has_received()",
        )],
        cases: &[
            "anyfabric-util/lib/stream::tests::late::a_send_that_is_acknowledged_completes_with_the_message_where_no_turn_follows",
        ],
    },
    Mutant {
        name: "left_for_good",
        about: "a send that a message acknowledges waits for the next acknowledgement",
        runs: Runs::Tests,
        edits: &[edit(
            "Locked::completes_late",
            "link.has_finished()",
            "link.has_finished() && !MUTANT",
        )],
        cases: &[
            "anyfabric-util/lib/stream::tests::late::a_message_is_handed_out_before_the_send_that_it_acknowledges",
        ],
    },
    Mutant {
        name: "lost_wakeup",
        about: "a completion does not wake the sleeper who armed the queue",
        runs: Runs::Tcp,
        edits: &[edit(
            "CompletionRing::push",
            "unlikely(self.armed.load(Ordering::Relaxed))",
            "unlikely(self.armed.load(Ordering::Relaxed)) && false",
        )],
        cases: &["completion.wait_wakeup", "completion.fd_poll"],
    },
    Mutant {
        name: "handed_past_the_sleeper",
        about: "a completion that a poll makes does not wake the sleeper who armed the queue",
        runs: Runs::Tcp,
        edits: &[edit(
            "Outbox::take",
            "ring.armed.load(Ordering::Relaxed)",
            "ring.armed.load(Ordering::Relaxed) && false",
        )],
        cases: &["completion.fd_polled"],
    },
    Mutant {
        name: "never_armed_again",
        about: "a connection that the selector did without is not watched again",
        runs: Runs::Tcp,
        edits: &[edit("Engine::arm", "conn.is_disarmed()", "conn.is_disarmed() && false")],
        cases: &["progress.polls_stop"],
    },
    Mutant {
        name: "handed_past_the_ring",
        about: "a completion that a poll makes overtakes those that wait in the ring",
        runs: Runs::Tests,
        edits: &[edit(
            "Outbox::take",
            "ring.len.load(Ordering::Acquire) > 0",
            "ring.len.load(Ordering::Acquire) > 0 && false",
        )],
        cases: &[
            "anyfabric-util/lib/completion_ring::tests::a_poll_is_handed_what_it_makes_unless_something_comes_before",
        ],
    },
    Mutant {
        name: "arm_without_looking",
        about: "a queue is armed without a look at what came in between",
        runs: Runs::Tcp,
        edits: &[edit(
            "CompletionRing::arm",
            "if state.queue.is_empty() {",
            "if state.queue.is_empty() || MUTANT {",
        )],
        cases: &["completion.wait_race", "completion.fd_poll"],
    },
    Mutant {
        name: "no_hand_over",
        about: "an application that stops polling says so to no thread",
        runs: Runs::Tcp,
        edits: &[edit("SocketCq::arm", "self.engine.progress.stop_polling();", "")],
        cases: &["progress.armed_no_tick"],
    },
    Mutant {
        name: "batch_lost",
        about: "completions beyond the room of a poll are lost",
        runs: Runs::Tcp,
        edits: &[edit(
            "CompletionRing::take",
            "state.taken == state.queue.len()",
            "state.taken == state.queue.len() || MUTANT",
        )],
        cases: &["completion.poll_batch"],
    },
    Mutant {
        name: "leaked_socket",
        about: "the socket of a connection that ended is never closed",
        runs: Runs::Tcp,
        edits: &[edit(
            "Locked::settle_now",
            "state.transport = None;",
            "if MUTANT { std::mem::forget(state.transport.take()); }\n                    state.transport = None;",
        )],
        cases: &["connection.reconnect_1000", "scale.churn", "teardown.leak_check"],
    },
    Mutant {
        name: "event_before_messages",
        about: "the end of the stream is noticed before what was sent ahead of it is read",
        runs: Runs::Tcp,
        edits: &[edit(
            "Locked::exchange",
            "        let wrote = !holds && !silent && self.flush(AckPolicy::Due);",
            "        if MUTANT && self.host.has_ended() { self.lose(); return Progress::Closed; }\n        let wrote = !holds && !silent && self.flush(AckPolicy::Due);",
        )],
        cases: &["atomic.oob", "atomic.no_perm"],
    },
    Mutant {
        name: "closed_when_full",
        about: "a connection that is ended while its socket is full is closed without a word to the peer",
        runs: Runs::Tcp,
        edits: &[edit(
            "Locked::end",
            "self.state.flush_last();",
            "if MUTANT && self.state.full { self.state.link.close(); }\n        self.state.flush_last();",
        )],
        cases: &["teardown.close_unsent", "teardown.refused_unsent"],
    },
    Mutant {
        name: "refusal_dropped",
        about: "with its endpoint goes what an ended connection still has to send, a refusal too",
        runs: Runs::Tcp,
        edits: &[edit(
            "Link::end",
            "End::Quiet => self.hush(),",
            "End::Quiet => { self.hush(); if MUTANT { self.close(); } }",
        )],
        cases: &["teardown.close_unsent", "teardown.refused_unsent"],
    },
    Mutant {
        name: "domain_in_haste",
        about: "with its domain goes what an ended connection still has to send",
        runs: Runs::Tcp,
        edits: &[edit("Engine::turn", "if !self.lingers()", "if MUTANT || !self.lingers()")],
        cases: &["teardown.domain_unsent"],
    },
    Mutant {
        name: "left_keeps_place",
        about: "a request whose peer has left waits on",
        runs: Runs::Tcp,
        edits: &[edit(
            "PendingConnection::look_for_end",
            "if !is_quiet",
            "if !is_quiet && !MUTANT",
        )],
        cases: &["connection.backlog_left"],
    },
    Mutant {
        name: "handshakes_as_they_come",
        about: "handshakes of connections that come go on in the order in which something came for them",
        runs: Runs::Tests,
        edits: &[edit(
            "Acceptor::wait_for_turn",
            "Ok(()) => self.shake_hands(host),",
            "Ok(()) if MUTANT => pending.shake_hands(host), Ok(()) => self.shake_hands(host),",
        )],
        cases: &[
            "anyfabric-util/lib/sockets::acceptor::tests::a_client_from_elsewhere_has_its_turn_before_a_crowd_that_came_first",
        ],
    },
    Mutant {
        name: "first_come_first_served",
        about: "of what strangers share, none loses anything to another",
        runs: Runs::Tests,
        edits: &[edit("FairTable::may_displace_for", "most > self.count(of) + 1", "false")],
        cases: &[
            "anyfabric-tcp/hostile/crowds::in_a_full_backlog_the_address_that_has_most_makes_room",
            "anyfabric-async/crowds/a_crowd_that_does_not_finish_its_set_ups_keeps_nobody_out",
        ],
    },
    Mutant {
        name: "all_for_one",
        about: "one network may have all places for connections",
        runs: Runs::Tests,
        edits: &[edit("Admission::take", "state.count(from).all >= share", "false")],
        cases: &["anyfabric-async/crowds/a_crowd_of_connections_leaves_places_for_others"],
    },
    Mutant {
        name: "place_is_snatched",
        about: "a place that one makes room for goes to any that asks first",
        runs: Runs::Tests,
        edits: &[edit(
            "Permit::drop",
            "state.taken -= usize::from(next.is_none());",
            "state.taken -= 1;",
        )],
        cases: &[
            "anyfabric-util/lib/admission::tests::who_has_most_unused_ones_makes_room_for_others",
        ],
    },
    Mutant {
        name: "smallest_makes_room",
        about: "the network that has the fewest loses its oldest",
        runs: Runs::Tests,
        edits: &[edit("FairTable::displace", "self.ranking.last()?", "self.ranking.first()?")],
        cases: &["anyfabric-util/lib/fair_table::tests::who_has_most_loses_its_oldest"],
    },
    Mutant {
        name: "padded_data",
        about: "private data is padded to a fixed length",
        runs: Runs::Tcp,
        edits: &[edit(
            "PendingConnection::data",
            "self.state.lock().greeting.data().into()",
            "{ let mut data = self.state.lock().greeting.data().to_vec(); data.resize(data.len().next_multiple_of(16), 0); data.into() }",
        )],
        cases: &["connection.data_sizes", "connection.data_zero_tail"],
    },
    Mutant {
        name: "backlog_too_long",
        about: "one request more than the backlog waits",
        runs: Runs::Tcp,
        edits: &[edit("FairTable::insert_up_to", "self.len() >= max", "self.len() > max")],
        cases: &["connection.backlog_full"],
    },
    Mutant {
        name: "patient_connect",
        about: "connecting takes as long as it takes",
        runs: Runs::Tcp,
        edits: &[edit("Locked::connect_expired", "self.fail_connect(Error::TimedOut(None));", "")],
        cases: &["connection.connect_timeout"],
    },
    Mutant {
        name: "waiting_forgotten",
        about: "a listener that closes does not refuse the requests that wait",
        runs: Runs::Tcp,
        edits: &[edit(
            "Acceptor::close",
            "pending.refuse()",
            "if MUTANT { std::mem::forget((*pending).clone()) } else { pending.refuse() }",
        )],
        cases: &["connection.listen_close_pending"],
    },
    Mutant {
        name: "busy_idle",
        about: "the thread spins while nothing happens",
        runs: Runs::Tcp,
        edits: &[edit(
            "ProgressEngine::await_work",
            "event_loop.poll_events(&mut selector, !self.is_stopped())",
            "event_loop.poll_events(&mut selector, !MUTANT && !self.is_stopped())",
        )],
        cases: &["progress.idle_is_free"],
    },
    Mutant {
        name: "favourites",
        about: "some connections are served at every step, the others now and then",
        runs: Runs::Tcp,
        edits: &[edit(
            "Engine::progress",
            "let mut conn = if mode == Mode::Beside {",
            "if MUTANT && !conn.name.is_multiple_of(8) && !{ static TURN: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0); TURN.fetch_add(1, std::sync::atomic::Ordering::Relaxed) }.is_multiple_of(1 << 14) && self.lock(conn).link.is_announced() { return if mode == Mode::Unattended { Progress::More } else { Progress::Drained }; } let mut conn = if mode == Mode::Beside {",
        )],
        cases: &["scale.fan_in"],
    },
    Mutant {
        name: "accept_once",
        about: "a connection that comes while there are no descriptors is never taken",
        runs: Runs::Tcp,
        edits: &[edit(
            "Acceptor::take",
            "return self.look_again(host, RETRY);",
            "return if !MUTANT { self.look_again(host, RETRY) };",
        )],
        cases: &["scale.fd_exhaust"],
    },
    Mutant {
        name: "never_stalled",
        about: "a connection that is to end when nothing gets on waits for ever",
        runs: Runs::Tcp,
        edits: &[edit("StallWatch::look", "*unmoved += 1;", "")],
        cases: &["teardown.stalled", "teardown.stalled_unsignaled", "shared.stalled"],
    },
    Mutant {
        name: "stalled_though_it_gets_on",
        about: "what is under way for too long ends the connection, though it gets on",
        runs: Runs::Tcp,
        edits: &[edit("StallWatch::look", "last != found || !found.pending", "!found.pending")],
        cases: &["teardown.stalled_not_if_slow"],
    },
    Mutant {
        name: "stalled_though_idle",
        about: "a connection over which nothing is under way stalls",
        runs: Runs::Tcp,
        edits: &[edit("ConnState::under_way", "!sends.is_empty()", "true")],
        cases: &["teardown.stalled_not_if_idle"],
    },
    Mutant {
        name: "stalled_unseen_if_unwritten",
        about: "an operation for which nothing is written, since it waits for a receive, is not looked at",
        runs: Runs::Tests,
        edits: &[edit(
            "Locked::begin_to_look",
            "found.iter().any(|one| one.pending)",
            "found[1].pending",
        )],
        cases: &[
            "anyfabric-util/lib/stream::tests::stalls::a_send_that_waits_for_its_receive_is_under_way_though_nothing_is_written",
        ],
    },
    Mutant {
        name: "late_look_counts",
        about: "a process that was stopped takes what it has not read meanwhile for nothing",
        runs: Runs::Tests,
        edits: &[edit("StallWatch::look", "!late", "true")],
        cases: &[
            "anyfabric-util/lib/stall_watch::tests::a_look_that_comes_late_holds_nothing_against_the_peer",
        ],
    },
    Mutant {
        name: "untaken_answers_stay",
        about: "a peer that does not take what it asked for holds it for ever",
        runs: Runs::Tests,
        edits: &[edit(
            "ConnState::under_way",
            "outgoing.has_output() || unsent > 0 || !answers.is_empty()",
            "false",
        )],
        cases: &["anyfabric-tcp/hostile/stalls::one_that_does_not_take_what_it_asked_for_ends"],
    },
    Mutant {
        name: "half_messages_stay",
        about: "a peer that sends half a message holds its receive for ever",
        runs: Runs::Tests,
        edits: &[edit("ConnState::under_way", "incoming.is_begun()", "false")],
        cases: &[
            "anyfabric-tcp/hostile/stalls::half_a_message_ends_it_and_its_receive_is_canceled",
        ],
    },
];
