//! Plots as SVG, which the report holds inline.

use std::collections::BTreeSet;

use plotters::coord::ranged1d::{KeyPointHint, Ranged, ValueFormatter};
use plotters::prelude::*;

use crate::curves::{Axis, Chart};
use crate::outcome::Outcome;
use crate::run::Program;

const SIZE: (u32, u32) = (960, 430);
/// To the right of a plot, where no curve is hidden by them.
const NAMES_WIDTH: u32 = 230;
const FONT: &str = "sans-serif";

/// Blue is ours, each operation in its own shade; the others have one colour each, in every plot.
fn colour(program: Program, number: usize) -> RGBColor {
    const OURS: [RGBColor; 4] = [
        RGBColor(31, 86, 173),
        RGBColor(74, 144, 217),
        RGBColor(128, 90, 190),
        RGBColor(24, 150, 160),
    ];
    match program {
        Program::Fabric | Program::Tagged => OURS[number % OURS.len()],
        Program::Raw | Program::Ring => RGBColor(110, 110, 110),
        Program::FabricTcp => RGBColor(120, 90, 170),
        Program::Libfabric => RGBColor(214, 112, 22),
        Program::Ucx => RGBColor(46, 140, 70),
        Program::Perftest => RGBColor(180, 50, 60),
    }
}

/// A logarithmic axis, with labels where they read well.
struct LogAxis {
    from: f64,
    to: f64,
    marks: Vec<f64>,
}

impl LogAxis {
    fn new((from, to): (f64, f64), marks: impl Iterator<Item = f64>) -> Self {
        LogAxis { from, to, marks: marks.filter(|mark| (from..=to).contains(mark)).collect() }
    }

    /// A mark at each place where something was measured; of percentiles 50 %, 90 %, 99 % ...
    fn across(chart: &Chart, range: (f64, f64)) -> Self {
        if chart.x == Axis::Percentile {
            return Self::new(range, [2.0].into_iter().chain((1..7).map(|p| 10_f64.powi(p))));
        }
        let points = chart.curves.iter().flat_map(|curve| &curve.points);
        let places: BTreeSet<u64> = points.map(|point| point.0 as u64).collect();
        Self::new(range, places.into_iter().map(|place| place as f64))
    }

    /// Marks at powers of ten, their doubles and fives.
    fn up(range: (f64, f64)) -> Self {
        let powers = (-4..9).map(|power| 10_f64.powi(power));
        Self::new(range, powers.flat_map(|power| [1.0, 2.0, 5.0].map(|m| m * power)))
    }
}

impl Ranged for LogAxis {
    type FormatOption = plotters::coord::ranged1d::NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (low, high): (i32, i32)) -> i32 {
        let share = (value.max(self.from) / self.from).ln() / (self.to / self.from).ln();
        low + (f64::from(high - low) * share).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.from..self.to
    }
}

impl ValueFormatter<f64> for LogAxis {
    fn format(value: &f64) -> String {
        plain(*value)
    }
}

fn plain(value: f64) -> String {
    if value >= 1.0 { format!("{value:.0}") } else { format!("{value}") }
}

fn bytes(value: f64) -> String {
    match value {
        v if v >= f64::from(1 << 20) => format!("{:.0} MiB", v / f64::from(1 << 20)),
        v if v >= 1024.0 => format!("{:.0} KiB", v / 1024.0),
        v => format!("{v:.0} B"),
    }
}

fn label(axis: Axis, value: f64) -> String {
    match axis {
        Axis::Bytes => bytes(value),
        Axis::Connections => plain(value),
        Axis::Percentile => format!("{} %", (1e6 - 1e6 / value).round() / 1e4),
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(low, high), value| (low.min(value), high.max(value)))
}

/// Lines over a logarithmic axis.
pub(crate) fn lines(chart: &Chart) -> Outcome<String> {
    let points = || chart.curves.iter().flat_map(|curve| &curve.points);
    let (left, right) = bounds(points().map(|point| point.0));
    let (bottom, top) = bounds(points().map(|point| point.1));
    if !(left.is_finite() && bottom > 0.0 && right > left) {
        return Ok(String::new());
    }
    let across = LogAxis::across(chart, (left, right));
    let up = LogAxis::up((bottom / 1.3, top * 1.3));
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (area, names) = root.split_horizontally(SIZE.0 - NAMES_WIDTH);
        let mut plot = ChartBuilder::on(&area)
            .margin(14)
            .margin_right(30)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(across, up)?;
        let what = match chart.x {
            Axis::Bytes => "size",
            Axis::Connections => "connections",
            Axis::Percentile => "percentile",
        };
        let axis = chart.x;
        plot.configure_mesh()
            .bold_line_style(RGBColor(225, 225, 225))
            .light_line_style(TRANSPARENT)
            .axis_style(RGBColor(120, 120, 120))
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .x_desc(what)
            .y_desc(chart.y)
            .x_label_formatter(&|value| label(axis, *value))
            .y_label_formatter(&|value| plain(*value))
            .draw()?;
        let mut ours = 0;
        for (number, curve) in chart.curves.iter().enumerate() {
            let colour = colour(curve.program, ours);
            ours += usize::from(curve.program == Program::Fabric);
            let points = curve.points.iter().copied();
            plot.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
            if chart.x != Axis::Percentile {
                plot.draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?;
            }
            let y = 30 + 22 * number as i32;
            names.draw(&PathElement::new([(0, y), (22, y)], colour.stroke_width(3)))?;
            names.draw(&Text::new(curve.name.clone(), (30, y - 7), (FONT, 13)))?;
        }
        root.present()?;
    }
    Ok(svg)
}

/// A bar for each rate, with its number at the end.
pub(crate) fn bars(unit: &str, bars: &[(String, Program, f64)]) -> Outcome<String> {
    let max = bars.iter().map(|bar| bar.2).fold(0.0, f64::max);
    if max <= 0.0 {
        return Ok(String::new());
    }
    const ROW: i32 = 34;
    const NAMES: i32 = 250;
    let height = ROW * bars.len() as i32 + 16;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (SIZE.0, height as u32)).into_drawing_area();
        root.fill(&WHITE)?;
        let text = (FONT, 14).into_font();
        let room = f64::from(SIZE.0 as i32 - NAMES - 120);
        for (number, (name, program, value)) in bars.iter().enumerate() {
            let top = 8 + ROW * number as i32;
            let end = NAMES + (room * value / max).round() as i32;
            let fill = colour(*program, 0).filled();
            root.draw(&Rectangle::new([(NAMES, top + 4), (end, top + ROW - 6)], fill))?;
            root.draw(&Text::new(name.clone(), (8, top + 9), text.clone()))?;
            let value = format!("{value:.3} {unit}");
            root.draw(&Text::new(value, (end + 8, top + 9), text.clone()))?;
        }
        root.present()?;
    }
    Ok(svg)
}
