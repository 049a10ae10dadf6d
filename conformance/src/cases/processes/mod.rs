//! What only shows with a second process that is stopped or killed, or with a link that is cut.
//!
//! These cases belong to several groups; each group's table here follows its own.

mod killed;
mod links;
mod mesh;
mod stopped;

use crate::prelude::*;

const KILLED_FREEDOM: Freedom = Freedom::Whole(
    "how much was done when the process died, and whether a death looks like a close",
);

pub(super) const SEND: &[Case] = cases! { Send:
    killed::ok_survives_kill9, Needs::SEND_RMA.process(),
        "what has completed at the sender is received, though its process is killed at once"
        .freedom(KILLED_FREEDOM).limit_s(120).trap();
};

pub(super) const ATOMIC: &[Case] = cases! { Atomic:
    links::exactly_once_under_loss, Needs::ATOMIC.lossy_link(),
        "over a link that loses packets, each add is executed once, and each old value returned once"
        .limit_s(300);
};

pub(super) const PROGRESS: &[Case] = cases! { Progress:
    stopped::target_stopped, Needs::ALL.process(),
        "a stopped target process: operations finish if the connection declares it, else once it goes on";
    stopped::stopped_with_liveness, Needs::SEND_RMA.and(Capabilities::LIVENESS).process(),
        "a process stopped for 6 intervals is alive, idle and with much to take: the connection stays";
};

pub(super) const SCALE: &[Case] = cases! { Scale:
    mesh::mesh, Needs::ALL.process(),
        "8 processes, each connected to each, all operations at once: every byte and every count is right"
        .limit_s(240);
};

pub(super) const TEARDOWN: &[Case] = cases! { Teardown:
    killed::kill9_idle, Needs::SEND.process(),
        "an idle peer is killed: Disconnected within 5 s, receives Canceled in order"
        .freedom(Freedom::Statuses("the death of a process looks like a close or like a loss"));
    killed::kill9_busy, Needs::SEND_RMA.process(),
        "a busy peer is killed: each operation ends once, in order, one Disconnected within 5 s"
        .freedom(KILLED_FREEDOM);
    killed::peer_restart, Needs::SEND.process(),
        "a killed peer comes back at its address: new connections work, the old endpoint stays dead"
        .freedom(Freedom::Statuses("the death of a process looks like a close or like a loss"));
    links::link_cut_idle, Needs::SEND.and(Capabilities::LIVENESS).cut_link(),
        "the link is cut, nothing pending: Disconnected(PeerLost) at both ends within three intervals"
        .limit_s(120);
    links::link_cut_busy, Needs::SEND_RMA.and(Capabilities::LIVENESS).cut_link(),
        "the link is cut under load: the oldest operation PeerLost, the others Canceled, in time"
        .freedom(Freedom::Whole("how much was done when the link was cut")).limit_s(120);
    links::link_cut_unmatched, Needs::SEND_RMA.and(Capabilities::LIVENESS).cut_link(),
        "the link is cut behind a send without a receive: it is PeerLost, what waits Canceled, in time"
        .limit_s(120);
    links::link_cut_each_kind, Needs::ALL.and(Capabilities::LIVENESS).cut_link(),
        "the link is cut under traffic of each kind: initiator and target know in time, while it is silent"
        .freedom(Freedom::Whole("how much was done when the link was cut")).limit_s(120);
    links::link_cut_idle_then_used, Needs::SEND_RMA.and(Capabilities::LIVENESS).cut_link(),
        "the link is cut, and used for the first time one and a half intervals later: both ends know in time"
        .limit_s(120);
};
