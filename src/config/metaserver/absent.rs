//! The keys of MetaServer, which is not built in (feature `metaserver`): reported if it is on.

use super::Config;
use super::table::{Row, Rule, Table, truth};
use crate::model::error::Input;

/// Below `modules.metaManager`.
#[cfg_attr(not(feature = "cloud"), expect(dead_code, reason = "read beside the cloud's keys"))]
pub(super) const META: &[Row] = &[("metaServer", Rule::Module(&META_SERVER, false))];

const META_SERVER: Table = Table {
    rules: &[("enable", Rule::Take(|_, value| truth(value).map(drop)))],
    more: &[],
    unused: "apiAudiences clusterResources dummyServer keadmCtl resources server \
        serviceAccountIssuers serviceAccountKeyFiles tlsCaFile tlsCertFile \
        tlsPrivateKeyFile writes",
};

/// Without settings there is no error.
#[expect(clippy::unnecessary_wraps, reason = "as where there may be one")]
pub(super) fn check(_: &Config) -> Result<(), Input> {
    Ok(())
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaServer(());
