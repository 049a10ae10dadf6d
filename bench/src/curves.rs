//! Curves over the size of messages, and over the number of connections: medians of interleaved rounds.

use std::collections::BTreeMap;
use std::time::Instant;

use indicatif::ProgressBar;
use serde::Serialize;

use crate::outcome::Outcome;
use crate::run::{Case, Figure, Program, Setup};
use crate::stats::median;

#[derive(Serialize)]
pub(crate) struct Chart {
    pub(crate) title: &'static str,
    pub(crate) x: Axis,
    pub(crate) y: &'static str,
    pub(crate) curves: Vec<Curve>,
}

#[derive(Clone, Copy, PartialEq, Serialize)]
pub(crate) enum Axis {
    Bytes,
    Connections,
    Percentile,
}

#[derive(Serialize)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) program: Program,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A curve to measure: the same case at several places.
struct Plan {
    name: &'static str,
    unit: f64,
    /// By the place on the axis. Of ours one run may measure many places.
    cases: Vec<(f64, Case)>,
}

const SIZES: &str = "8,64,512,4K,32K,256K,1M";
const SIZE_BYTES: [usize; 7] = [8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20];

fn over_sizes(name: &'static str, program: Program, figure: Figure, args: &str) -> Plan {
    let unit = if figure == Figure::Us { 1.0 } else { 1e-9 };
    Plan {
        name,
        unit,
        cases: vec![(0.0, Case::new(program, figure, &format!("{args} --size {SIZES}")))],
    }
}

fn peer_over_sizes(
    name: &'static str,
    program: Program,
    figure: Figure,
    args: impl Fn(usize, usize) -> String,
) -> Plan {
    let unit = if figure == Figure::Us { 1.0 } else { 1e-9 };
    let cases = SIZE_BYTES.map(|size| {
        let count = (200_000_000 / (size + 20_000)).clamp(200, 5000);
        (size as f64, Case::new(program, figure, &args(size, count)))
    });
    Plan { name, unit, cases: cases.into() }
}

/// Measures all charts. When time presses, without the peers.
pub(crate) fn charts(
    setup: &Setup,
    rounds: usize,
    quick: bool,
    bar: &ProgressBar,
) -> Outcome<Vec<Chart>> {
    use Figure::{BytesPerS, Us};
    use Program::{Fabric, Libfabric, Raw, Ucx};
    let mut latency = vec![
        over_sizes("plain sockets", Raw, Us, "--op send"),
        over_sizes("fabric send", Fabric, Us, "--op send"),
        over_sizes("fabric write", Fabric, Us, "--op write"),
        over_sizes("fabric read (round trip)", Fabric, Us, "--op read"),
    ];
    let mut bandwidth = vec![
        over_sizes("plain sockets", Raw, BytesPerS, "--op send --mode bandwidth"),
        over_sizes("fabric send", Fabric, BytesPerS, "--op send --mode bandwidth"),
        over_sizes("fabric write", Fabric, BytesPerS, "--op write --mode bandwidth"),
        over_sizes("fabric read", Fabric, BytesPerS, "--op read --mode bandwidth"),
    ];
    if !quick {
        latency.push(peer_over_sizes("libfabric (mean)", Libfabric, Us, |size, n| {
            format!("-p tcp -e msg -S {size} -I {n}")
        }));
        latency.push(peer_over_sizes("UCX active message", Ucx, Us, |size, n| {
            format!("-t ucp_am_lat -s {size} -n {n} -w 100")
        }));
        bandwidth.push(peer_over_sizes("UCX put", Ucx, BytesPerS, |size, n| {
            format!("-t ucp_put_bw -s {size} -n {n} -w 100")
        }));
    }
    let scaling = vec![
        over_endpoints("1 MiB writes", "--op write --mode bandwidth --size 1M --depth 16"),
        over_endpoints("64 KiB sends", "--op send --mode bandwidth --size 64K --depth 16"),
    ];
    Ok(vec![
        chart(setup, rounds, "Latency over size", (Axis::Bytes, "us"), &latency, bar)?,
        chart(setup, rounds, "Bandwidth over size", (Axis::Bytes, "GB/s"), &bandwidth, bar)?,
        chart(
            setup,
            rounds,
            "Bandwidth over endpoints of one domain",
            (Axis::Connections, "GB/s"),
            &scaling,
            bar,
        )?,
    ])
}

fn over_endpoints(name: &'static str, args: &str) -> Plan {
    let case = |endpoints: usize| {
        let args = format!("{args} --endpoints {endpoints}");
        (endpoints as f64, Case::new(Program::Fabric, Figure::BytesPerS, &args))
    };
    Plan { name, unit: 1e-9, cases: [1, 2, 4, 8, 16, 64].map(case).into() }
}

fn chart(
    setup: &Setup,
    rounds: usize,
    title: &'static str,
    (x, y): (Axis, &'static str),
    plans: &[Plan],
    bar: &ProgressBar,
) -> Outcome<Chart> {
    let mut found: Vec<BTreeMap<u64, Vec<f64>>> = plans.iter().map(|_| BTreeMap::new()).collect();
    for _ in 0..rounds {
        for (plan, points) in plans.iter().zip(&mut found) {
            bar.set_message(format!("{title}: {}", plan.name));
            let mut add = |x: f64, value: f64| {
                points.entry(x as u64).or_default().push(value * plan.unit);
            };
            for (at, case) in &plan.cases {
                if !matches!(case.program, Program::Fabric | Program::Raw) {
                    let hurry = Instant::now() >= setup.hurry;
                    if let Some(sample) = if hurry { None } else { case.best(setup)? } {
                        add(*at, sample.value);
                    }
                    continue;
                }
                for sample in case.perf(setup)? {
                    let size = sample.all["size"].as_f64().unwrap_or(0.0);
                    add(if x == Axis::Bytes { size } else { *at }, sample.value);
                }
            }
            bar.inc(1);
        }
    }
    let curve = |(plan, points): (&Plan, BTreeMap<u64, Vec<f64>>)| Curve {
        name: plan.name.to_owned(),
        program: plan.cases[0].1.program,
        points: points.into_iter().map(|(x, values)| (x as f64, median(&values))).collect(),
    };
    let curves = plans.iter().zip(found).map(curve).filter(|curve| !curve.points.is_empty());
    Ok(Chart { title, x, y, curves: curves.collect() })
}
