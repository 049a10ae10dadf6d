//! The report for people: one file, with everything in it.

use std::fmt::Write;

use crate::curves::{Axis, Chart, Curve};
use crate::machine::Machine;
use crate::micro;
use crate::outcome::Outcome;
use crate::plots;
use crate::rounds::{DEBUG_BUILD, Measured};
use crate::run::Program;

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1060px;margin:2em auto;padding:0 1em;color:#222}\
h1{font-size:1.6em}h2{font-size:1.2em;margin-top:2em}table{border-collapse:collapse;width:100%;font-size:13.5px}\
th,td{text-align:left;padding:.35em .6em;border-bottom:1px solid #ddd;white-space:nowrap}td:last-child{white-space:normal}\
th{border-bottom:2px solid #999}.met{color:#1a7a34;font-weight:600}.missed{color:#b3261e;font-weight:600}\
.not{color:#777}figure{margin:1em 0}figcaption{color:#555;font-size:13.5px}svg{max-width:100%;height:auto}";

pub(crate) const HEADS: [&str; 8] =
    ["", "target", "base", "fabric", "ratio", "95 %", "", "others, as multiples of the base"];

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

pub(crate) fn report(
    machine: &Machine,
    title: &str,
    debug_build: bool,
    lines: &[Measured],
    plots: &[Plot],
    micro: &[String],
) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>\
         <title>fabric: performance</title><style>{STYLE}</style><h1>fabric: performance</h1><p>{}</p><table>",
        escape(title)
    );
    if debug_build {
        let _ = write!(out, "<caption class=missed>{DEBUG_BUILD}</caption>");
    }
    for (name, value) in machine.rows() {
        let _ = write!(out, "<tr><th>{name}<td>{}", escape(&value));
    }
    out.push_str("</table><h2>Targets</h2><table><tr>");
    HEADS.iter().for_each(|head| out.push_str(&format!("<th>{head}")));
    for row in lines.iter().map(Measured::row).chain(micro::rows(micro)) {
        out.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let class = match (column, &cell[..]) {
                (6, "met") => " class=met",
                (6, "missed") => " class=missed",
                (6, _) => " class=not",
                _ => "",
            };
            let _ = write!(out, "<td{class}>{}", escape(cell));
        }
    }
    out.push_str(
        "</table><p>Medians of interleaved rounds; the ratio is that of the medians, with its 95 % interval (bootstrap over \
         the rounds). The base is a program on plain TCP sockets unless another one is named.</p>",
    );
    for Plot { title, svg } in plots {
        let _ = write!(out, "<h2>{title}</h2><figure>{svg}</figure>");
    }
    if !micro.is_empty() {
        let _ = write!(out, "<h2>Without a network</h2><pre>{}</pre>", escape(&micro.join("\n")));
    }
    out.push_str("</html>\n");
    out
}

/// A picture of the report, also a file of its own.
pub(crate) struct Plot {
    title: &'static str,
    pub(crate) svg: String,
}

impl Plot {
    /// The name of its file.
    pub(crate) fn file(&self) -> String {
        let words = self.title.split(|c: char| !c.is_ascii_alphanumeric());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        words.join("-").to_lowercase() + ".svg"
    }
}

/// All that there is to draw.
pub(crate) fn plots(lines: &[Measured], charts: &[Chart]) -> Outcome<Vec<Plot>> {
    let mut all = Vec::new();
    for chart in charts.iter().chain([&percentiles(lines)]) {
        all.push(Plot { title: chart.title, svg: plots::lines(chart)? });
    }
    all.push(Plot { title: "Message rate, 64 B", svg: plots::bars("M/s", &rates(lines))? });
    all.retain(|plot| !plot.svg.is_empty());
    Ok(all)
}

/// The tail of the latencies: what share of the operations took no longer.
fn percentiles(lines: &[Measured]) -> Chart {
    let curve = |name: &str, program, result: &serde_json::Value| {
        let pairs = result["percentiles_us"].as_array().cloned().unwrap_or_default();
        let point = |pair: &serde_json::Value| {
            let (percent, us) = (pair[0].as_f64()?, pair[1].as_f64()?);
            // On the axis is one in how many is slower: 90 % is 10, 99.9 % is 1000.
            (50.0..100.0).contains(&percent).then(|| (100.0 / (100.0 - percent), us))
        };
        let points = pairs.iter().filter_map(point).collect();
        Curve { name: name.to_owned(), program, points }
    };
    let mut curves = Vec::new();
    for title in
        ["64 B send, half round trip", "64 B write, half round trip", "64 B read, round trip"]
    {
        let Some(line) = lines.iter().find(|line| line.title == title) else { continue };
        if curves.is_empty() && !line.base_last.is_null() {
            curves.push(curve("plain sockets, half round trip", Program::Raw, &line.base_last));
        }
        curves.push(curve(title, Program::Fabric, &line.last));
    }
    curves.retain(|curve| !curve.points.is_empty());
    Chart { title: "Percentiles of latency, 64 B", x: Axis::Percentile, y: "us", curves }
}

fn rates(lines: &[Measured]) -> Vec<(String, Program, f64)> {
    let mut bars: Vec<(String, Program, f64)> = Vec::new();
    for line in lines.iter().filter(|line| line.is_rate()) {
        for (name, program, value) in line.figures() {
            if !bars.iter().any(|bar| bar.0 == name) {
                bars.push((name, program, value / 1e6));
            }
        }
    }
    bars
}
