//! Keys of MetaServer's authenticated form, which is not built in (feature `metaserver-auth`): no
//! effect.

use crate::config::table::{Row, Rule};

/// Below `modules.metaManager.metaServer`.
pub(super) const META_SERVER: &[Row] = &[
    ("apiAudiences", Rule::Idle),
    ("dummyServer", Rule::Idle),
    ("serviceAccountIssuers", Rule::Idle),
    ("serviceAccountKeyFiles", Rule::Idle),
];
