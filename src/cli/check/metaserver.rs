//! Checks MetaServer: whether it is on, where, and who may do what there.

use super::{Row, fail, ok, warn};
use crate::io::diagnostics::MetaServerFacts;

/// The rows of a MetaServer that is on.
pub(super) fn rows(facts: &MetaServerFacts) -> Vec<Row> {
    let authorization = facts.settings.authorization();
    let scheme = if authorization.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{}", facts.settings.server);
    if !facts.has_cloud {
        let remedy = "modules.edgeHub, or modules.metaManager.metaServer.enable: false";
        return vec![warn("metaserver", "is on, and no cloud is configured: it is off", remedy)];
    }
    let mut rows = vec![match &facts.answers {
        Ok(()) => ok("metaserver", format!("{url} accepts connections")),
        Err(why) => {
            let remedy = "start edged, or look whether another program has the port";
            warn("metaserver", format!("{url} does not answer: {why}"), remedy)
        }
    }];
    if let Some(authorization) = authorization {
        let url = format!("https://{}", authorization.dummy);
        rows.push(match &facts.for_pods {
            Ok(()) => ok("pods", format!("{url} accepts connections")),
            Err(why) => {
                let remedy = "`edged` logs why: it takes CAP_NET_ADMIN, and a kernel with \
                              CONFIG_DUMMY or CONFIG_BRIDGE; pods have no KUBERNETES_SERVICE_HOST";
                fail("pods", format!("{url} does not answer: {why}"), remedy)
            }
        });
        let remedy = "modules.metaManager.metaServer.serviceAccountKeyFiles";
        rows.extend(facts.keys.iter().map(|why| fail("keys", why.as_str(), remedy)));
        return rows;
    }
    if facts.settings.writes {
        let detail = "every program on this machine may change objects with the cloud's rights";
        let remedy = "modules.metaManager.metaServer.writes: false";
        rows.push(warn("writes", detail, remedy));
    }
    if facts.settings.keadm_ctl {
        let detail = "every program on this machine, and every pod on its network, may run \
                      commands in all containers";
        let remedy = "modules.metaManager.metaServer.keadmCtl: false";
        rows.push(warn("keadm ctl", detail, remedy));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::System;
    use crate::model::metaserver::MetaServerSettings;

    #[test]
    fn it_says_where_it_is_and_what_is_open() {
        let mut facts = MetaServerFacts {
            settings: MetaServerSettings::default(),
            has_cloud: true,
            answers: Ok(()),
            for_pods: Err(System::new("refused")),
            keys: vec!["/k: not found".to_owned()],
        };
        let lines = |facts: &MetaServerFacts| -> Vec<String> {
            let line = |row: Row| format!("{} {}: {}", row.verdict.word(), row.name, row.detail);
            rows(facts).into_iter().map(line).collect()
        };
        let open = "ok metaserver: http://127.0.0.1:10550 accepts connections";
        assert_eq!(lines(&facts), [open]);
        facts.settings.writes = true;
        facts.answers = Err(System::new("refused"));
        let got = lines(&facts);
        assert_eq!(got[0], "warn metaserver: http://127.0.0.1:10550 does not answer: refused");
        assert!(got[1].starts_with("warn writes: every program"), "{got:?}");
        facts.settings.keadm_ctl = true;
        let got = lines(&facts);
        assert!(got[2].starts_with("warn keadm ctl: every program"), "{got:?}");
        facts.settings.requires_authorization = true;
        let got = lines(&facts);
        assert_eq!(got[1], "fail pods: https://169.254.30.10:10550 does not answer: refused");
        assert_eq!((&*got[2], got.len()), ("fail keys: /k: not found", 3), "rules say who writes");
        facts.has_cloud = false;
        assert!(lines(&facts)[0].contains("no cloud is configured"));
    }
}
