//! In the place of the watchdog's keys where it was left out (feature `watchdog`): no effect.

#[cfg(test)]
use super::edgecore::Table;
use super::edgecore::{Row, Rule};

/// Below `modules.edged`.
pub(super) const EDGED: &[Row] = &[("watchdog", Rule::Idle)];

/// Every map that the shipped file shows.
#[cfg(test)]
pub(super) const TABLES: &[&Table] = &[];
