//! Interleaved rounds: in each, the base, the lines held against it and their peers run one right after the other, so
//! that the machine's mood is the same for all of them. Every other round goes backwards.

use indicatif::ProgressBar;
use serde_json::{Value, json};

use crate::outcome::Outcome;
use crate::run::{Case, Figure, Program, Setup};
use crate::stats::{interval, median};
use crate::targets::{Group, Line, Threshold};

/// One line of the table, measured.
pub(crate) struct Measured {
    pub(crate) title: &'static str,
    figure: Figure,
    threshold: Threshold,
    factor: f64,
    command: String,
    pub(crate) ours: Vec<f64>,
    base: Option<(Program, Vec<f64>)>,
    peers: Vec<(Program, String, Vec<f64>)>,
    /// What `fabric perf` reported in the last round, and of plain sockets.
    pub(crate) last: Value,
    pub(crate) base_last: Value,
}

pub(crate) fn measure(
    setup: &Setup,
    rounds: usize,
    group: &Group,
    bar: &ProgressBar,
) -> Outcome<Vec<Measured>> {
    let start = |line: &Line| Measured {
        title: line.title,
        figure: line.case.figure,
        threshold: line.threshold,
        factor: line.factor,
        command: line.case.args.clone(),
        ours: Vec::new(),
        base: group.base.as_ref().map(|base| (base.program, Vec::new())),
        peers: line
            .peers
            .iter()
            .map(|peer| (peer.program, peer.args.clone(), Vec::new()))
            .collect(),
        last: Value::Null,
        base_last: Value::Null,
    };
    let mut all: Vec<Measured> = group.lines.iter().map(start).collect();
    for round in 0..rounds {
        // (line, peer of it): none is the base.
        let mut turns: Vec<(Option<usize>, Option<usize>)> = Vec::new();
        turns.extend(group.base.is_some().then_some((None, None)));
        for (line, of) in group.lines.iter().enumerate() {
            turns.push((Some(line), None));
            turns.extend((0..of.peers.len()).map(|peer| (Some(line), Some(peer))));
        }
        if round % 2 == 1 {
            turns.reverse();
        }
        for turn in turns {
            run(setup, group, turn, &mut all, bar)?;
            bar.inc(1);
        }
    }
    Ok(all)
}

fn run(
    setup: &Setup,
    group: &Group,
    turn: (Option<usize>, Option<usize>),
    all: &mut [Measured],
    bar: &ProgressBar,
) -> Outcome {
    let case: &Case = match turn {
        (Some(line), Some(peer)) => &group.lines[line].peers[peer],
        (Some(line), None) => &group.lines[line].case,
        _ => group.base.as_ref().ok_or("a group without base has no base to run")?,
    };
    bar.set_message(format!("{} {}", case.program.name(), case.args));
    // Of a peer that was missing once, nothing more is asked.
    if let (Some(line), Some(peer)) = turn
        && all[line].ours.len() > 1
        && all[line].peers[peer].2.is_empty()
    {
        return Ok(());
    }
    let Some(sample) = case.best(setup)? else { return Ok(()) };
    match turn {
        (Some(line), Some(peer)) => all[line].peers[peer].2.push(sample.value),
        (Some(line), None) => {
            all[line].ours.push(sample.value);
            all[line].last = sample.all;
        }
        _ => {
            for one in all {
                if let Some((_, values)) = &mut one.base {
                    values.push(sample.value);
                }
                one.base_last = sample.all.clone();
            }
        }
    }
    Ok(())
}

/// Over the figures of a program that was not optimised.
pub(crate) const DEBUG_BUILD: &str =
    "The program measured is a debug build: these figures say nothing about the targets.";

/// Whether any line was measured with a debug build.
pub(crate) fn debug_build(lines: &[Measured]) -> bool {
    lines.iter().any(Measured::is_debug_build)
}

impl Measured {
    /// Ours to the base, each by its median; the value itself where there is no base.
    pub(crate) fn ratio(&self) -> f64 {
        let ours = median(&self.ours);
        match &self.base {
            None => ours,
            Some((_, base)) => match self.threshold {
                // More is better.
                Threshold::Reaches(_) if self.figure == Figure::Us => {
                    median(base) * self.factor / ours
                }
                _ => ours / (median(base) * self.factor),
            },
        }
    }

    /// Its 95 % interval.
    pub(crate) fn interval(&self) -> Option<(f64, f64)> {
        let (_, base) = self.base.as_ref()?;
        let base: Vec<f64> = base.iter().map(|value| value * self.factor).collect();
        let turned = matches!(self.threshold, Threshold::Reaches(_)) && self.figure == Figure::Us;
        Some(if turned { interval(&base, &self.ours) } else { interval(&self.ours, &base) })
    }

    /// Whether the program measured was not optimised: then the ratio says nothing about the target.
    fn is_debug_build(&self) -> bool {
        [&self.last, &self.base_last].iter().any(|result| result["debug_build"] == true)
    }

    /// None if the base, or ours, could not be measured.
    pub(crate) fn met(&self) -> Option<bool> {
        let ratio = self.ratio();
        ratio.is_finite().then_some(match self.threshold {
            Threshold::AtMost(max) | Threshold::Absolute(max) => ratio <= max,
            Threshold::AtLeast(min) => ratio >= min,
            Threshold::Reaches(min) => self.interval().is_some_and(|(_, high)| high >= min),
        })
    }

    pub(crate) fn target(&self) -> String {
        match self.threshold {
            Threshold::AtMost(max) => format!("<= {max:.2} x"),
            Threshold::AtLeast(min) => format!(">= {min:.2} x"),
            Threshold::Absolute(max) => format!("<= {}", self.figure.show(max)),
            Threshold::Reaches(min) => format!("reaches {min:.2} x"),
        }
    }

    /// The cells of its row: title, target, base, ours, ratio, interval, verdict, peers.
    pub(crate) fn row(&self) -> [String; 8] {
        let show = |values: &[f64], factor: f64| match median(values) * factor {
            value if value.is_nan() => "-".to_owned(),
            value => self.figure.show(value),
        };
        let base = self.base.as_ref();
        let based = |program: Program| {
            if program == Program::Raw { String::new() } else { format!(" ({})", program.name()) }
        };
        let ratio = if base.is_some() && self.met().is_some() {
            format!("{:.2}", self.ratio())
        } else {
            "-".to_owned()
        };
        let interval = self.interval().filter(|(low, _)| low.is_finite());
        let peers = self.peers.iter().filter(|(_, _, values)| !values.is_empty());
        let peer = |(program, args, values): &(Program, String, Vec<f64>)| {
            let test = args.split_once("-t ").and_then(|(_, rest)| rest.split(' ').next());
            let ratio = base.map(|(_, base)| median(values) / (median(base) * self.factor));
            let name = program.name();
            let name = test.map_or_else(|| name.to_owned(), |test| format!("{name} {test}"));
            format!("{name} {:.2}", ratio.unwrap_or_else(|| median(values)))
        };
        [
            self.title.to_owned(),
            self.target(),
            base.map_or_else(
                || "-".to_owned(),
                |(program, values)| show(values, self.factor) + &based(*program),
            ),
            show(&self.ours, 1.0),
            ratio,
            interval.map_or_else(|| "-".to_owned(), |(low, high)| format!("{low:.2}-{high:.2}")),
            match self.met() {
                _ if self.is_debug_build() => "debug build",
                Some(true) => "met",
                Some(false) => "missed",
                None => "not measured",
            }
            .to_owned(),
            peers.map(peer).collect::<Vec<_>>().join(", "),
        ]
    }

    pub(crate) fn is_rate(&self) -> bool {
        self.figure == Figure::RatePerS
    }

    /// The medians of all who were measured, with names: the base first.
    pub(crate) fn figures(&self) -> Vec<(String, Program, f64)> {
        let base = self.base.iter().map(|(program, values)| {
            (format!("{}, one by one", program.name()), *program, median(values))
        });
        let ours = (self.title.replace("64 B", "fabric"), Program::Fabric, median(&self.ours));
        let peers = self.peers.iter().filter(|(_, _, values)| !values.is_empty());
        let peers = peers.map(|(program, _, values)| {
            (format!("{}, one by one", program.name()), *program, median(values))
        });
        base.chain([ours]).chain(peers).collect()
    }

    pub(crate) fn json(&self) -> Value {
        let peers: Vec<Value> = self
            .peers
            .iter()
            .map(|(program, args, values)| {
                json!({ "program": program.name(), "args": args, "values": values })
            })
            .collect();
        json!({
            "title": self.title,
            "target": self.target(),
            "figure": self.figure,
            "command": self.command,
            "ours": self.ours,
            "base": self.base.as_ref().map(|(program, values)| {
                json!({ "program": program.name(), "values": values, "factor": self.factor })
            }),
            "ratio": self.ratio(),
            "interval": self.interval(),
            "met": self.met().filter(|_| !self.is_debug_build()),
            "peers": peers,
            "last": self.last,
        })
    }
}
