//! The keys of the watchdog, which is not built in (feature `watchdog`): no effect.

#[cfg(test)]
use super::edgecore::Table;
use super::edgecore::{Row, Rule};

/// Below `modules.edged`.
pub(super) const EDGED: &[Row] = &[("watchdog", Rule::Idle)];

/// Every map in the shipped file.
#[cfg(test)]
pub(super) const TABLES: &[&Table] = &[];
