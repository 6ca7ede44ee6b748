//! Samples, rows, the table and the JSON file.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

#[derive(Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64() * 1e3);
    }

    pub(crate) fn median(&self) -> Duration {
        Duration::from_secs_f64(self.percentile(50) / 1e3)
    }

    /// The 99th of a hundred.
    pub(crate) fn tail(&self) -> Duration {
        Duration::from_secs_f64(self.percentile(99) / 1e3)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The value below which `hundredths` of the samples lie, in milliseconds.
    fn percentile(&self, hundredths: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let place = (sorted.len() * hundredths).div_ceil(100).saturating_sub(1);
        sorted.get(place).copied().unwrap_or(f64::NAN)
    }
}

pub(crate) enum Goal {
    /// Ours divided by the baseline, at the median.
    RatioAtMost(f64),
    /// Per second.
    RateAtLeast(f64),
    /// Ours, at the median, in the row's unit.
    AtMost(f64),
    /// Ours, at the 99th of a hundred, in the row's unit.
    TailAtMost(f64),
    /// Ours divided by the baseline.
    RatioAtLeast(f64),
    /// Ours divided by the baseline, at the 99th of a hundred.
    TailRatioAtMost(f64),
}

#[derive(Serialize)]
pub(crate) struct Row {
    name: String,
    unit: &'static str,
    n: usize,
    p50: f64,
    p99: Option<f64>,
    baseline: &'static str,
    baseline_p50: f64,
    baseline_p99: Option<f64>,
    ratio: f64,
    goal: Option<String>,
    met: Option<bool>,
    note: String,
}

impl Row {
    pub(crate) fn latency(
        name: String,
        ours: &Samples,
        baseline: &'static str,
        bare: &Samples,
        goal: Option<Goal>,
        note: String,
    ) -> Self {
        let (p50, baseline_p50) = (ours.percentile(50), bare.percentile(50));
        let row = Self {
            name,
            unit: "ms",
            n: ours.0.len(),
            p50: round(p50),
            p99: Some(round(ours.percentile(99))),
            baseline,
            baseline_p50: round(baseline_p50),
            baseline_p99: Some(round(bare.percentile(99))),
            ratio: round(p50 / baseline_p50),
            goal: None,
            met: None,
            note,
        };
        row.judged(goal)
    }

    /// One number against another.
    pub(crate) fn figure(
        name: String,
        unit: &'static str,
        (n, ours): (usize, f64),
        baseline: &'static str,
        bare: f64,
        goal: Option<Goal>,
        note: String,
    ) -> Self {
        let row = Self::rate(name, (n, ours), baseline, (n, bare), None, note);
        Self { unit, ..row }.judged(goal)
    }

    pub(crate) fn rate(
        name: String,
        (n, ours): (usize, f64),
        baseline: &'static str,
        (_, bare): (usize, f64),
        goal: Option<Goal>,
        note: String,
    ) -> Self {
        let row = Self {
            name,
            unit: "1/s",
            n,
            p50: round(ours),
            p99: None,
            baseline,
            baseline_p50: round(bare),
            baseline_p99: None,
            ratio: round(ours / bare),
            goal: None,
            met: None,
            note,
        };
        row.judged(goal)
    }

    fn judged(mut self, goal: Option<Goal>) -> Self {
        match goal {
            Some(Goal::RatioAtMost(most)) => {
                self.met = Some(self.ratio <= most);
                self.goal = Some(format!("ratio <= {most}"));
            }
            Some(Goal::RateAtLeast(least)) => {
                self.met = Some(self.p50 >= least);
                self.goal = Some(format!(">= {least}/s"));
            }
            Some(Goal::AtMost(most)) => {
                self.met = Some(self.p50 <= most);
                self.goal = Some(format!("<= {most} {}", self.unit));
            }
            Some(Goal::TailAtMost(most)) => {
                self.met = self.p99.map(|tail| tail <= most);
                self.goal = Some(format!("p99 <= {most} {}", self.unit));
            }
            Some(Goal::RatioAtLeast(least)) => {
                self.met = Some(self.ratio >= least);
                self.goal = Some(format!("ratio >= {least}"));
            }
            Some(Goal::TailRatioAtMost(most)) => {
                let tails = self.p99.zip(self.baseline_p99);
                self.met = tails.map(|(ours, bare)| ours / bare <= most);
                self.goal = Some(format!("p99 ratio <= {most}"));
            }
            None => {}
        }
        self
    }
}

#[derive(Default)]
pub(crate) struct Report(Vec<Row>);

impl Report {
    pub(crate) fn push(&mut self, row: Row) {
        self.0.push(row);
    }

    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        let header = ["what", "n", "p50", "p99", "base p50", "base p99", "ratio", "goal", "met"];
        let mut line = |cells: [&str; 9]| {
            let [name, rest @ ..] = cells;
            let rest: String = rest.iter().map(|cell| format!("{cell:>15}")).collect();
            writeln!(out, "{name:<36}{rest}")
        };
        let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        let mut lines = vec![line(header)];
        for row in &self.0 {
            let met = row.met.map_or("-", |met| if met { "yes" } else { "NO" });
            lines.push(line([
                &row.name,
                &row.n.to_string(),
                &format!("{:.2} {}", row.p50, row.unit),
                &number(row.p99),
                &number(Some(row.baseline_p50)),
                &number(row.baseline_p99),
                &number(Some(row.ratio)),
                row.goal.as_deref().unwrap_or("-"),
                met,
            ]));
        }
        debug_assert!(lines.iter().all(Result::is_ok), "writing to a string cannot fail");
        out
    }

    /// Keeps the rows under this name in `bench/results/`.
    pub(crate) fn write(&self, name: &str) -> anyhow::Result<()> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/results");
        std::fs::create_dir_all(&folder).context("make the results folder")?;
        let path = folder.join(name);
        let mut text = serde_json::to_string_pretty(&self.0)?;
        text.push('\n');
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}
