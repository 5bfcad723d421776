//! The keys of the cloud, which is not built in (feature `cloud`): they have no effect.

#[cfg(test)]
use super::table::Table;
use super::table::{Row, Rule};

use crate::model::error::Input;
use Rule::{Idle, Take};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cloud {
    none: (),
}

impl Cloud {
    pub fn is_configured(&self) -> bool {
        false
    }

    /// Without settings there is no error.
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as where there may be one")]
    pub(super) fn finish(&mut self) -> Result<(), Input> {
        Ok(())
    }
}

/// Keys that matter to a cloud only have no effect without one.
const QUIET: Rule = Take(|_, _| Ok(()));

/// At the top of the file.
pub(super) const ROOT: &[Row] = &[("database", QUIET)];
/// Below `modules`.
pub(super) const MODULES: &[Row] = &[("edgeHub", Idle), ("metaManager", QUIET)];
/// Below `modules.edged`.
pub(super) const EDGED: &[Row] = &[
    ("registerNode", QUIET),
    ("registerNodeNamespace", QUIET),
    ("registerSchedulable", QUIET),
    ("registerWithTaints", QUIET),
    ("reportEvent", QUIET),
];
/// Below `tailoredKubeletConfig`.
pub(super) const TAILORED: &[Row] = &[
    ("eventBurst", QUIET),
    ("eventRecordQPS", QUIET),
    ("nodeLeaseDurationSeconds", QUIET),
    ("nodeStatusMaxImages", QUIET),
    ("nodeStatusReportFrequency", QUIET),
    ("nodeStatusUpdateFrequency", QUIET),
    ("registerNode", QUIET),
    ("registerWithTaints", QUIET),
    ("syncFrequency", QUIET),
];

/// Every map in the shipped file.
#[cfg(test)]
pub(super) const TABLES: &[&Table] = &[];
