//! The keys of the built-in runtime, which is not built in (feature `runtime`): no effect.

use super::table::{Row, Rule, Table};

/// Below `modules.edged`.
pub(super) const EDGED: &[Row] = &[
    ("builtinRuntime", Rule::Map(&BUILTIN)),
    ("cniBinDir", Rule::Idle),
    ("cniConfDir", Rule::Idle),
];

const BUILTIN: Table = Table {
    rules: &[],
    more: &[],
    unused: "dataDir insecureRegistries ociProgram registryCAFile registryMirrors",
};

/// Every map in the shipped file.
#[cfg(test)]
pub(super) const TABLES: &[&Table] = &[&BUILTIN];
