//! Checks what Services by name need, from the switch to an answer.

use super::{Row, fail, ok, warn};
use crate::io::diagnostics::ServiceFacts;
use crate::io::link;

/// The rows about Services that are served.
pub(super) fn rows(facts: &ServiceFacts) -> Vec<Row> {
    let address = facts.settings.address.to_string();
    let mut rows = vec![resolver(facts, &address)];
    if !facts.process {
        let remedy = "start edged: it starts the process that serves them";
        rows.push(warn("services", "no process serves them", remedy));
        return rows;
    }
    let name = link::SERVICES.name;
    rows.push(match &facts.link {
        Ok(true) => ok("link", format!("{name} is there")),
        Ok(false) => {
            let remedy = "`edged status` says why: it takes CAP_NET_ADMIN, and a kernel with \
                          CONFIG_DUMMY or CONFIG_BRIDGE";
            fail("link", format!("there is no link {name}"), remedy)
        }
        Err(why) => warn("link", format!("{name} cannot be looked for: {why}"), ""),
    });
    rows.push(match &facts.answers {
        Ok(()) => ok("names", format!("{address} answers for its zone")),
        Err(why) => {
            let remedy = "`edged status` says why";
            fail("names", format!("{address} does not answer: {why}"), remedy)
        }
    });
    rows
}

fn resolver(facts: &ServiceFacts, address: &str) -> Row {
    if facts.cluster_dns.iter().any(|server| server == address) {
        return ok("resolver", format!("pods ask {address}; those made before it was set do not"));
    }
    let servers = facts.cluster_dns.join(" ");
    let remedy = format!("clusterDNS: [{address}], or leave it empty");
    warn("resolver", format!("pods ask {servers}, not {address}: they find no Service"), &remedy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::settings::ServiceSettings;

    #[test]
    fn each_link_of_the_chain_has_a_row() {
        let mut facts = ServiceFacts {
            settings: ServiceSettings::default(),
            cluster_dns: vec!["169.254.96.16".to_owned()],
            link: Ok(true),
            process: true,
            answers: Ok(()),
        };
        let lines = |facts: &ServiceFacts| -> Vec<String> {
            let line = |row: Row| format!("{} {}: {}", row.verdict.word(), row.name, row.detail);
            rows(facts).into_iter().map(line).collect()
        };
        assert!(lines(&facts).iter().all(|line| line.starts_with("ok ")), "{:?}", lines(&facts));
        facts.cluster_dns = vec!["10.96.0.10".to_owned()];
        let line = "warn resolver: pods ask 10.96.0.10, not 169.254.96.16: they find no Service";
        assert_eq!(lines(&facts)[0], line);
        (facts.link, facts.answers) = (Ok(false), Err("refused".to_owned()));
        assert_eq!(lines(&facts)[1], "fail link: there is no link edgemesh0");
        assert_eq!(lines(&facts)[2], "fail names: 169.254.96.16 does not answer: refused");
        facts.process = false;
        assert_eq!(lines(&facts)[1..], ["warn services: no process serves them"]);
    }
}
