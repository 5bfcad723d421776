//! Checks MetaServer: whether it is on, where, and who may do what there.

use super::{Row, ok, warn};
use crate::io::diagnostics::MetaServerFacts;

/// The rows of a MetaServer that is on.
pub(super) fn rows(facts: &MetaServerFacts) -> Vec<Row> {
    let url = format!("http://{}", facts.settings.server);
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
    if facts.settings.writes {
        let detail = "every program on this machine may change objects with the cloud's rights";
        let remedy = "modules.metaManager.metaServer.writes: false";
        rows.push(warn("writes", detail, remedy));
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
        facts.has_cloud = false;
        assert!(lines(&facts)[0].contains("no cloud is configured"));
    }
}
