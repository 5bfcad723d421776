//! The keys of MetaServer, which is not built in (feature `metaserver`): reported if it is on.

use super::table::{Row, Rule, Table, truth};

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

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetaServer(());
