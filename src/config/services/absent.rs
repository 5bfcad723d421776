//! The keys of Services by name, which are not built in (feature `services`): no effect.

use super::Config;
#[cfg(test)]
use super::table::Table;
use super::table::{Row, Rule};

/// Below `modules.edged`.
pub(super) const EDGED: &[Row] = &[("services", Rule::Idle)];

/// Every map in the shipped file.
#[cfg(test)]
pub(super) const TABLES: &[&Table] = &[];

pub(super) fn finish(_: &mut Config) {}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Services(());
