//! The keys of the watchdog, which is not built in (feature `watchdog`): no effect.

#[cfg(test)]
use super::table::Table;
use super::table::{Row, Rule};

/// Below `modules.edged`.
pub(super) const EDGED: &[Row] = &[("watchdog", Rule::Idle)];

/// Every map in the shipped file.
#[cfg(test)]
pub(super) const TABLES: &[&Table] = &[];
