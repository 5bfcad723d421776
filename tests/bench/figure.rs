//! Figures: a measured value, its reference, and its limit.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// The limit of a figure.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// At most this many times the reference.
    Ratio(f64),
    /// At least this many times the reference.
    Share(f64),
    /// At most this much more than the reference.
    Above(f64),
    /// At most this much.
    Most(f64),
    /// At least this much.
    Least(f64),
}

/// One figure.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Dotted.
    pub name: &'static str,
    /// What was measured.
    pub value: f64,
    /// Of value and reference.
    pub unit: &'static str,
    /// Measured beside it.
    pub reference: Option<f64>,
    /// What it may be.
    pub limit: Option<Limit>,
}

impl Figure {
    /// Without a reference.
    pub fn alone(name: &'static str, value: f64, unit: &'static str, limit: Option<Limit>) -> Self {
        Self { name, value, unit, reference: None, limit }
    }

    /// Beside a reference; each the median of its rounds.
    pub fn beside(
        name: &'static str,
        values: &[f64],
        references: &[f64],
        unit: &'static str,
        limit: Limit,
    ) -> Self {
        let reference = Some(median(references));
        Self { name, value: median(values), unit, reference, limit: Some(limit) }
    }

    fn ratio(&self) -> Option<f64> {
        Some(self.value / self.reference?)
    }

    /// Whether it is within its limit; `None`: it has none.
    pub fn pass(&self) -> Option<bool> {
        Some(match self.limit? {
            Limit::Ratio(most) => self.ratio().is_some_and(|ratio| ratio <= most),
            Limit::Share(least) => self.ratio().is_some_and(|ratio| ratio >= least),
            Limit::Above(most) => self.reference.is_some_and(|it| self.value - it <= most),
            Limit::Most(most) => self.value <= most,
            Limit::Least(least) => self.value >= least,
        })
    }

    fn json(&self) -> Value {
        let (limit, limit_of) = match self.limit {
            None => (None, None),
            Some(Limit::Ratio(most)) => (Some(most), Some("ratio, at most")),
            Some(Limit::Share(least)) => (Some(least), Some("ratio, at least")),
            Some(Limit::Above(most)) => (Some(most), Some("value above the reference, at most")),
            Some(Limit::Most(most)) => (Some(most), Some("value, at most")),
            Some(Limit::Least(least)) => (Some(least), Some("value, at least")),
        };
        json!({
            "value": self.value,
            "unit": self.unit,
            "reference": self.reference,
            "ratio": self.ratio(),
            "limit": limit,
            "limit_of": limit_of,
            "pass": self.pass(),
        })
    }

    fn row(&self) -> String {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), digits);
        let limit = match self.limit {
            None => "-".to_owned(),
            Some(Limit::Ratio(most)) => format!("≤ {most:.2}×"),
            Some(Limit::Share(least)) => format!("≥ {least:.2}×"),
            Some(Limit::Above(most)) => format!("≤ +{most}"),
            Some(Limit::Most(most)) => format!("≤ {most}"),
            Some(Limit::Least(least)) => format!("≥ {least}"),
        };
        let pass = match self.pass() {
            None => "",
            Some(true) => "ok",
            Some(false) => "MISSED",
        };
        format!(
            "{:<28}{:>10} {:<8}{:>10}{:>8}  {limit:<9}{pass}",
            self.name,
            digits(self.value),
            self.unit,
            number(self.reference),
            number(self.ratio()),
        )
    }
}

/// Three or four significant digits.
fn digits(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        some if some >= 10.0 => format!("{value:.1}"),
        few if few >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// The median.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    assert!(!sorted.is_empty(), "the median of nothing");
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// All figures of a run.
#[derive(Debug, Default)]
pub struct Report {
    figures: Vec<Figure>,
}

impl Report {
    /// Adds figures; each is printed at once.
    pub fn add(&mut self, figures: impl Iterator<Item = Figure>) {
        for figure in figures {
            eprintln!("bench:   {}", figure.row());
            self.figures.push(figure);
        }
    }

    /// Nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.figures.is_empty()
    }

    /// Every figure with a limit is within it.
    pub fn passes(&self) -> bool {
        self.figures.iter().all(|figure| figure.pass() != Some(false))
    }

    /// A table for people.
    pub fn table(&self) -> String {
        let mut table = format!(
            "{:<28}{:>10} {:<8}{:>10}{:>8}  {:<9}\n",
            "figure", "value", "unit", "reference", "ratio", "limit"
        );
        for figure in &self.figures {
            writeln!(table, "{}", figure.row()).expect("a String takes all");
        }
        table
    }

    /// JSON, an object by name.
    pub fn json(&self) -> String {
        let all: Map<String, Value> =
            self.figures.iter().map(|figure| (figure.name.to_owned(), figure.json())).collect();
        let text = serde_json::to_string_pretty(&Value::Object(all)).expect("plain data");
        format!("{text}\n")
    }
}
