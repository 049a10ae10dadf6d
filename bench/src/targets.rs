//! What is measured, beside what, and what it should come to. Data only.

use crate::run::{Case, Figure, Program};

/// What a line should come to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Threshold {
    /// At most so many times the base.
    AtMost(f64),
    AtLeast(f64),
    /// At most so much by itself.
    Absolute(f64),
    /// The 95 % interval of the ratio, arranged so that more is better, reaches this.
    Reaches(f64),
}

/// One line of the table.
pub(crate) struct Line {
    pub(crate) title: &'static str,
    pub(crate) case: Case,
    /// The base counts so many times: a round trip is two halves.
    pub(crate) factor: f64,
    pub(crate) threshold: Threshold,
    pub(crate) peers: Vec<Case>,
}

/// Lines that are measured beside one base, one right after the other.
pub(crate) struct Group {
    /// None: the lines stand for themselves.
    pub(crate) base: Option<Case>,
    pub(crate) lines: Vec<Line>,
}

fn fabric(figure: Figure, args: &str) -> Case {
    Case::new(Program::Fabric, figure, args)
}

fn raw(figure: Figure, args: &str) -> Case {
    // Until both ends have come to their processors.
    Case::new(Program::Raw, figure, &format!("--op send --warmup 5000 {args}"))
}

fn ucx(figure: Figure, args: &str) -> Case {
    Case::new(Program::Ucx, figure, &format!("{args} -w 1000"))
}

fn pingpong(size: usize) -> Case {
    let args = format!("-p tcp -e msg -S {size} -I 20000");
    Case::new(Program::Libfabric, Figure::Us, &args)
}

fn line(title: &'static str, threshold: Threshold, case: Case, peers: Vec<Case>) -> Line {
    Line { title, case, factor: 1.0, threshold, peers }
}

/// Against a base that is half of it.
fn round_trip(title: &'static str, threshold: Threshold, case: Case, peers: Vec<Case>) -> Line {
    Line { factor: 2.0, ..line(title, threshold, case, peers) }
}

fn bandwidth(titles: [&'static str; 3], size: &str, bytes: &str, min: f64) -> Group {
    use Figure::BytesPerS;
    let at = |op: &str| fabric(BytesPerS, &format!("--op {op} --mode bandwidth --size {size}"));
    let peer = |test: &str| ucx(BytesPerS, &format!("-t {test} -s {bytes} -n 2000"));
    let [send, write, read] = titles;
    let threshold = Threshold::AtLeast(min);
    Group {
        base: Some(raw(BytesPerS, &format!("--mode bandwidth --size {size}"))),
        lines: vec![
            line(send, threshold, at("send"), vec![peer("tag_bw")]),
            line(write, threshold, at("write"), vec![peer("ucp_put_bw")]),
            line(read, threshold, at("read"), vec![peer("ucp_get")]),
        ],
    }
}

/// TCP over loopback.
pub(crate) fn tcp(quick: bool) -> Vec<Group> {
    use Figure::{BytesPerS, RatePerS, Us};
    use Threshold::{AtLeast, AtMost};
    let lat = |op: &str| fabric(Us, &format!("--op {op}"));
    let asleep = |op: &str| fabric(Us, &format!("--op {op} --target sleep"));
    let half = AtMost(1.10);
    let mut groups = vec![
        Group {
            base: Some(raw(Us, "--size 64")),
            lines: vec![
                line(
                    "64 B send, half round trip",
                    half,
                    lat("send"),
                    vec![pingpong(64), ucx(Us, "-t ucp_am_lat -s 64 -n 10000")],
                ),
                line(
                    "64 B write, half round trip",
                    half,
                    lat("write"),
                    vec![ucx(Us, "-t ucp_put_lat -s 64 -n 10000")],
                ),
                round_trip(
                    "64 B read, round trip",
                    AtMost(1.12),
                    lat("read"),
                    vec![ucx(Us, "-t ucp_get -s 64 -O 1 -n 10000")],
                ),
            ],
        },
        Group {
            base: Some(raw(Us, "--size 8")),
            lines: vec![round_trip(
                "8 B fetch-add, round trip",
                AtMost(1.12),
                lat("fetch-add"),
                vec![ucx(Us, "-t ucp_fadd -s 8 -n 10000")],
            )],
        },
        Group {
            base: Some(raw(Us, "--size 64 --target sleep")),
            lines: vec![round_trip(
                "64 B read, target asleep",
                AtMost(1.15),
                asleep("read"),
                vec![],
            )],
        },
        Group {
            base: Some(raw(Us, "--size 8 --target sleep")),
            lines: vec![round_trip(
                "8 B fetch-add, target asleep",
                AtMost(1.15),
                asleep("fetch-add"),
                vec![],
            )],
        },
        Group {
            base: Some(raw(RatePerS, "--mode rate --size 64")),
            lines: vec![
                line(
                    "64 B sends, one post each",
                    AtLeast(1.5),
                    fabric(RatePerS, "--op send --mode rate"),
                    vec![ucx(RatePerS, "-t tag_bw -s 64 -n 200000")],
                ),
                line(
                    "64 B sends, each written at once",
                    AtLeast(0.95),
                    fabric(RatePerS, "--op send --mode rate").with("FABRIC_TCP_GATHER_US", "0"),
                    vec![],
                ),
                line(
                    "64 B sends, batches of 32",
                    AtLeast(8.0),
                    fabric(RatePerS, "--op send --mode rate --batch 32"),
                    vec![],
                ),
            ],
        },
        bandwidth(["64 KiB sends", "64 KiB writes", "64 KiB reads"], "64K", "65536", 1.15),
        bandwidth(["1 MiB sends", "1 MiB writes", "1 MiB reads"], "1M", "1048576", 1.02),
        Group {
            base: Some(fabric(BytesPerS, "--op write --mode bandwidth --size 1M --depth 16")),
            lines: vec![line(
                "1 MiB writes, 16 endpoints / 1",
                AtLeast(1.0),
                fabric(
                    BytesPerS,
                    "--op write --mode bandwidth --size 1M --depth 16 --endpoints 16",
                ),
                vec![],
            )],
        },
        Group { base: Some(lat("send")), lines: crowds(quick) },
        idle(),
    ];
    if quick {
        leave_out_peers(&mut groups);
    }
    groups
}

/// Shared memory, beside the least that two processes can do with it.
pub(crate) fn shm(quick: bool) -> Vec<Group> {
    use Figure::{BytesPerS, Us};
    use Threshold::{AtLeast, AtMost};
    let ring = |figure, what: &str| Some(Case::new(Program::Ring, figure, what));
    let tcp = |figure, args: &str| Case::new(Program::FabricTcp, figure, args);
    let lat = |op: &str, rest: &str| format!("--op {op} {rest}");
    let both = |title, threshold, args: String, others: Vec<Case>| {
        let peers = [tcp(Us, &args)].into_iter().chain(others).collect();
        line(title, threshold, fabric(Us, &args), peers)
    };
    let large = |title, threshold, op: &str, others: Vec<Case>| {
        let args = format!("--op {op} --mode bandwidth --size 1M --depth 16");
        let peers = [tcp(BytesPerS, &args)].into_iter().chain(others).collect();
        line(title, threshold, fabric(BytesPerS, &args), peers)
    };
    let pingpong = Case::new(Program::Libfabric, Us, "-p shm -e rdm -S 64 -I 200000");
    let mut groups = vec![
        Group {
            base: ring(Us, "message"),
            lines: vec![
                both(
                    "64 B send, half round trip",
                    AtMost(2.5),
                    lat("send", ""),
                    vec![pingpong, ucx(Us, "-t ucp_am_lat -s 64 -n 500000")],
                ),
                both(
                    "64 B write, half round trip",
                    AtMost(2.5),
                    lat("write", ""),
                    vec![ucx(Us, "-t ucp_put_lat -s 64 -n 500000")],
                ),
                both(
                    "64 B read, target asleep",
                    AtMost(2.5),
                    lat("read", "--target sleep"),
                    vec![],
                ),
            ],
        },
        Group {
            base: ring(Us, "fetch-add"),
            lines: vec![both(
                "8 B fetch-add, round trip",
                AtMost(12.0),
                lat("fetch-add", "--target sleep"),
                vec![ucx(Us, "-t ucp_fadd -s 8 -n 500000")],
            )],
        },
        Group {
            base: ring(BytesPerS, "copy"),
            lines: vec![
                large(
                    "1 MiB writes",
                    AtLeast(0.95),
                    "write",
                    vec![ucx(BytesPerS, "-t ucp_put_bw -s 1048576 -n 20000")],
                ),
                large(
                    "1 MiB sends",
                    AtLeast(0.8),
                    "send",
                    vec![ucx(BytesPerS, "-t tag_bw -s 1048576 -n 20000")],
                ),
            ],
        },
        Group {
            base: ring(Us, "wake"),
            lines: vec![both(
                "64 B send, both ends asleep",
                AtMost(1.2),
                lat("send", "--wait sleep --target sleep"),
                vec![],
            )],
        },
        Group { base: Some(fabric(Us, "--op send")), lines: crowds(true) },
        idle(),
    ];
    if quick {
        leave_out_peers(&mut groups);
    }
    groups
}

/// Reliable datagram endpoints over TCP.
pub(crate) fn rdm(quick: bool) -> Vec<Group> {
    use Figure::{BytesPerS, IdleBytes, Us};
    use Threshold::{Absolute, AtLeast, AtMost};
    let tagged = |figure, args: &str| Case::new(Program::Tagged, figure, args);
    let rxm = |size: usize| {
        let args = format!("-p tcp;ofi_rxm -e rdm -S {size} -I 20000");
        Case::new(Program::Libfabric, Us, &args)
    };
    let beside_ucx = |title, size: usize| Group {
        base: Some(ucx(Us, &format!("-t tag_lat -s {size} -n 20000"))),
        lines: vec![line(
            title,
            AtMost(1.0),
            tagged(Us, &format!("latency --size {size}")),
            vec![rxm(size), fabric(Us, &format!("--op send --size {size}"))],
        )],
    };
    let ten_thousand = |title, what: &str| Group {
        base: Some(tagged(Us, &format!("latency --{what} 10"))),
        lines: vec![line(
            title,
            AtMost(1.3),
            tagged(Us, &format!("latency --{what} 10000")),
            vec![],
        )],
    };
    let of_peer = |title, what, max| line(title, Absolute(max), tagged(IdleBytes, what), vec![]);
    let mut groups = vec![
        beside_ucx("64 B tagged, half round trip", 64),
        beside_ucx("4 KiB tagged, half round trip", 4096),
        ten_thousand("64 B, 10000 receives posted / 10", "posted"),
        ten_thousand("64 B, 10000 messages wait / 10", "unexpected"),
        Group {
            base: Some(fabric(BytesPerS, "--op write --mode bandwidth --size 1M --depth 16")),
            lines: vec![line(
                "1 MiB tagged / plain writes",
                AtLeast(0.95),
                tagged(BytesPerS, "bandwidth --size 1048576"),
                vec![ucx(BytesPerS, "-t tag_bw -s 1048576 -n 2000")],
            )],
        },
        Group {
            base: None,
            lines: vec![
                of_peer("memory of a peer, not connected", "idle-peer --peers 10000", 128.0),
                of_peer("memory of a peer, connected", "open-peer", 8192.0),
            ],
        },
    ];
    if quick {
        leave_out_peers(&mut groups);
    }
    groups
}

/// What idle connections cost.
fn idle() -> Group {
    let of = |title, figure, max| {
        line(title, Threshold::Absolute(max), fabric(figure, "--mode idle --idle 1000"), vec![])
    };
    Group {
        base: None,
        lines: vec![
            of("memory of an idle connection", Figure::IdleBytes, 8192.0),
            of("wake-ups, 1000 idle connections", Figure::Wakeups, 0.0),
        ],
    }
}

fn leave_out_peers(groups: &mut [Group]) {
    groups.iter_mut().flat_map(|group| &mut group.lines).for_each(|line| line.peers.clear());
}

/// One pair at work beside connections that are idle.
fn crowds(quick: bool) -> Vec<Line> {
    let beside = |title, idle: usize| {
        let case = fabric(Figure::Us, &format!("--op send --idle {idle}"));
        line(title, Threshold::AtMost(1.2), case, vec![])
    };
    let mut lines = vec![beside("64 B send beside 1000 idle / 1", 999)];
    // Two descriptors a connection are not needed, but some are left over for everything else.
    if !quick && descriptors() > 12_000 {
        lines.push(beside("64 B send beside 10000 idle / 1", 9999));
    }
    lines
}

/// How many this process may have open.
fn descriptors() -> u64 {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|line| line.starts_with("Max open files"));
    line.and_then(|line| line.split_whitespace().nth(3)?.parse().ok()).unwrap_or(0)
}

/// Verbs: the same signaling, inline data, lists and depth at both.
pub(crate) fn verbs(quick: bool) -> Vec<Group> {
    use Figure::{BytesPerS, RatePerS, Us};
    let n = if quick { 200 } else { 1000 };
    let deep = if quick { 128 } else { 512 };
    let perftest = |figure, args: &str| Some(Case::new(Program::Perftest, figure, args));
    let one = |base: Option<Case>, title, figure, args: String| Group {
        base,
        lines: vec![line(title, Threshold::Reaches(0.97), fabric(figure, &args), vec![])],
    };
    let lat = |op: &str, rest: &str| format!("--op {op} --iterations {n} --warmup 20 {rest}");
    // Where operations are one-sided perftest's server sleeps, which on few processors matters.
    let stream = |mode: &str, size: &str, count: usize| {
        format!(
            "--op write --mode {mode} --size {size} --iterations {count} --warmup 16 --target sleep"
        )
    };
    vec![
        one(
            perftest(Us, &format!("ib_send_lat -s 64 -I 64 -n {n}")),
            "64 B send, half round trip",
            Us,
            lat("send", "--inject"),
        ),
        one(
            perftest(Us, &format!("ib_write_lat -s 64 -I 64 -n {n}")),
            "64 B write, half round trip",
            Us,
            lat("write", "--inject"),
        ),
        one(
            perftest(Us, &format!("ib_read_lat -s 64 -n {n}")),
            "64 B read, round trip",
            Us,
            lat("read", "--target sleep"),
        ),
        one(
            perftest(Us, &format!("ib_atomic_lat -A FETCH_AND_ADD -n {n}")),
            "8 B fetch-add, round trip",
            Us,
            lat("fetch-add", "--target sleep"),
        ),
        one(
            perftest(BytesPerS, &format!("ib_write_bw -s 65536 -n {deep} -t 128 -l 1 -Q 1 -N")),
            "64 KiB writes",
            BytesPerS,
            stream("bandwidth", "64K", deep),
        ),
        one(
            perftest(BytesPerS, "ib_write_bw -s 1048576 -n 128 -t 128 -l 1 -Q 1 -N"),
            "1 MiB writes",
            BytesPerS,
            stream("bandwidth", "1M", 128),
        ),
        one(
            perftest(RatePerS, &format!("ib_write_bw -s 64 -n {} -t 128 -l 1 -Q 1 -N", 4 * n)),
            "64 B writes, one post each",
            RatePerS,
            stream("rate", "64", 4 * n),
        ),
        one(
            Some(Case::new(Program::Libfabric, Us, &format!("-p verbs -e msg -S 64 -I {n}"))),
            "64 B ping-pong",
            Us,
            lat("send", "--inject --signal 0"),
        ),
    ]
}
