//! The keys of ServiceBus, which is not built in (feature `servicebus`): no effect.

#[cfg(test)]
use super::table::Table;
use super::table::{Row, Rule};

/// Below `modules`: see [`super::edgecore`].
pub(super) const MODULES: &[Row] = &[];

/// Below `modules.edged`.
pub(super) const EDGED: &[Row] = &[("serviceBusPorts", Rule::Idle)];

/// Every map in the shipped file.
#[cfg(test)]
pub(super) const TABLES: &[&Table] = &[];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceBus(());
