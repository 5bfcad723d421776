//! Checks the node's connection to its cloud: the store, the certificate, the network.

use super::{Row, Verdict, fail, ok, warn};
use crate::io::cloud::Inspection;
use crate::io::diagnostics::CloudFacts;
use crate::io::disk::{self, Health};
use crate::model::time::Timestamp;

/// The rows about the cloud.
pub(super) fn rows(facts: &CloudFacts) -> Vec<Row> {
    let mut rows = vec![store(&facts.store)];
    rows.extend(mode(&facts.store));
    rows.extend(aside(&facts.store));
    rows.push(certificate(&facts.link, facts.now_s));
    rows.extend(key("certificate", &facts.link));
    rows.push(match &facts.link.reach {
        Ok(()) => ok("cloud", format!("{} takes connections", facts.link.server)),
        Err(why) => {
            let detail = format!("{} cannot be reached: {why}", facts.link.server);
            let remedy = "pods on this node run without it; check the network, the DNS server, \
                          the cloud's port, and modules.edgeHub.websocket.server";
            warn("cloud", detail, remedy)
        }
    });
    rows.extend(facts.tunnel.iter().flat_map(|tunnel| streams(tunnel, facts)));
    rows
}

/// The stream tunnel: the network, and its certificate where that is not the link's.
fn streams(tunnel: &Inspection, facts: &CloudFacts) -> Vec<Row> {
    let name = "streams";
    let mut rows = Vec::new();
    if (&tunnel.certificate, &tunnel.ca) != (&facts.link.certificate, &facts.link.ca) {
        // A token is for the link's certificate, and pods run without the tunnel.
        let own = Inspection { has_token: false, ..tunnel.clone() };
        let row = certificate(&own, facts.now_s);
        rows.push(match row.verdict {
            Verdict::Fail => warn(name, row.detail, TUNNEL_FILES),
            _ => Row { name, ..row },
        });
    }
    if tunnel.open_key != facts.link.open_key {
        rows.extend(key(name, tunnel));
    }
    rows.push(match &tunnel.reach {
        Ok(()) => ok(name, format!("{} takes connections", tunnel.server)),
        Err(why) => {
            let detail = format!("{} cannot be reached: {why}", tunnel.server);
            let remedy = "pods run without it, but `kubectl logs` and `exec` do not; is \
                          CloudStream on, and its port open (modules.edgeStream.server)? \
                          modules.edgeStream.enable false switches it off";
            warn(name, detail, remedy)
        }
    });
    rows
}

const TUNNEL_FILES: &str = "kubectl logs and exec do not work without it; name files of the \
    cluster's CA in modules.edgeStream: tlsTunnelCAFile, tlsTunnelCertFile, \
    tlsTunnelPrivateKeyFile, or remove these keys to use the node's certificate";

/// A key that others may read.
fn key(name: &'static str, link: &Inspection) -> Option<Row> {
    let key = link.open_key.as_ref()?;
    let detail = format!("{key}: users other than its owner may read it");
    Some(warn(name, detail, &format!("chmod 600 {key}")))
}

fn store(store: &disk::Inspection) -> Row {
    let path = store.path.display();
    match &store.state {
        Health::Absent => ok("store", format!("{path} is made at the first start")),
        Health::InUse => ok("store", format!("{path} is in use by a running agent")),
        Health::Sound(rows) => ok("store", format!("{path}: rows {rows}, all intact")),
        Health::Damaged(why) => {
            let remedy = "the next start moves it aside, keeps the intact rows and requests the \
                          pods from the cloud; see `dmesg` for what is wrong with the disk";
            warn("store", format!("{path} is damaged: {why}"), remedy)
        }
        Health::Unusable(why) => {
            let remedy = "run as root on a file system that is mounted for writing, or name \
                          another file in database.dataSource";
            fail("store", format!("{path} cannot be used: {why}"), remedy)
        }
    }
}

fn mode(store: &disk::Inspection) -> Option<Row> {
    let mode = store.mode.filter(|mode| mode & 0o077 != 0)?;
    let path = store.path.display();
    let detail = format!("{path} has the mode {mode:04o}: other users may read the Secrets in it");
    Some(warn("store", detail, &format!("chmod 600 {path}")))
}

fn aside(store: &disk::Inspection) -> Option<Row> {
    let last = store.aside.last()?.display();
    let count = store.aside.len();
    let detail = format!("{count} damaged before, the last is {last}");
    let remedy = format!(
        "see `dmesg` for what is wrong with the disk; then rm {}.corrupt-*",
        store.path.display()
    );
    Some(warn("store", detail, &remedy))
}

const JOIN: &str = "edged join --cloudcore-ipport HOST:10000 --token TOKEN, with a token of \
    `keadm gettoken` or `edgecontroller token`";

fn certificate(link: &Inspection, now_s: Option<i64>) -> Row {
    let name = "certificate";
    let (file, validity) = match (&link.certificate, &link.ca) {
        (Ok(found), Ok(())) => found,
        (Err(why), _) | (Ok(_), Err(why)) if link.has_token => {
            return ok(name, format!("requested at the next start, with the token; now: {why}"));
        }
        (Err(why), _) | (Ok(_), Err(why)) => return fail(name, why.to_string(), JOIN),
    };
    let (begins, ends) = (Timestamp(validity.not_before_s), Timestamp(validity.not_after_s));
    let Some(now_s) = now_s else {
        return ok(name, format!("{file} is valid from {begins} until {ends}"));
    };
    if validity.not_after_s < now_s {
        let detail = format!("{file} expired at {ends}");
        return if link.has_token { warn(name, detail, TOKEN) } else { fail(name, detail, JOIN) };
    }
    if now_s < validity.not_before_s {
        let remedy = "set this machine's clock (ntpd, chrony, a clock chip)";
        return warn(
            name,
            format!("{file} is valid from {begins}, which is in the future"),
            remedy,
        );
    }
    let days = (validity.not_after_s - now_s) / 86_400;
    if days < DAYS_LEFT_MIN {
        let remedy = "it is renewed automatically while the node is connected: is \
                      rotateCertificates true, and can the cloud be reached?";
        return warn(name, format!("{file} expires at {ends}, in {days} days"), remedy);
    }
    ok(name, format!("{file} is valid until {ends}"))
}

const TOKEN: &str = "the next start requests a new one with the token, if that is still valid";
/// It is renewed after nine tenths of its lifetime at the latest; of a year that leaves 36 days.
const DAYS_LEFT_MIN: i64 = 14;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::model::error::System;
    use crate::model::link::Validity;

    const NOW_S: i64 = 1_800_000_000;
    const DAY_S: i64 = 86_400;

    fn facts() -> CloudFacts {
        let validity =
            Validity { not_before_s: NOW_S - 100 * DAY_S, not_after_s: NOW_S + 265 * DAY_S };
        CloudFacts {
            store: disk::Inspection {
                path: PathBuf::from("/s/edgecore.db"),
                mode: Some(0o600),
                state: Health::Sound(41),
                aside: Vec::new(),
            },
            link: Inspection {
                server: "c:10000".to_owned(),
                certificate: Ok(("/c/server.crt".to_owned(), validity)),
                ca: Ok(()),
                open_key: None,
                has_token: false,
                reach: Ok(()),
            },
            tunnel: None,
            now_s: Some(NOW_S),
        }
    }

    /// With this one change, exactly this row with this remedy is reported.
    fn check(change: impl Fn(&mut CloudFacts), start: &str, remedy: &str) {
        let mut facts = facts();
        change(&mut facts);
        let rows = rows(&facts);
        let bad: Vec<_> = rows.iter().filter(|row| row.verdict != Verdict::Ok).collect();
        let [row] = &bad[..] else { panic!("{start}: {bad:#?}") };
        let line = format!("{} {}: {}", row.verdict.word(), row.name, row.detail);
        assert!(line.starts_with(start), "{line}\n{start}");
        let found = row.remedy.as_deref().unwrap_or_default();
        assert!(found.contains(remedy), "{found}\n{remedy}");
    }

    #[test]
    fn a_node_that_has_joined_is_well() {
        let all = [Health::Sound(41), Health::Absent, Health::InUse];
        for state in all {
            let mut facts = facts();
            facts.store.state = state;
            assert!(rows(&facts).iter().all(|row| row.verdict == Verdict::Ok));
        }
        let mut facts = facts();
        (facts.link.certificate, facts.link.has_token) = (Err(System::new("none").into()), true);
        let rows = rows(&facts);
        let applied = rows.iter().any(|row| row.detail.contains("requested at the next start"));
        assert!(applied && rows.iter().all(|row| row.verdict == Verdict::Ok), "{rows:#?}");
    }

    #[test]
    fn the_store_is_judged() {
        let is = |facts: &mut CloudFacts, state: Health| facts.store.state = state;
        check(
            |facts| is(facts, Health::Damaged("no".to_owned())),
            "warn store: /s/edgecore.db is damaged: no",
            "dmesg",
        );
        check(
            |facts| is(facts, Health::Unusable("no".to_owned())),
            "fail store: /s/edgecore.db cannot be used: no",
            "database.dataSource",
        );
        check(
            |facts| facts.store.mode = Some(0o644),
            "warn store: /s/edgecore.db has the mode 0644",
            "chmod 600 /s/edgecore.db",
        );
        check(
            |facts| facts.store.aside = vec!["/s/edgecore.db.corrupt-3".into()],
            "warn store: 1 damaged before, the last is /s/edgecore.db.corrupt-3",
            "rm /s/edgecore.db.corrupt-*",
        );
    }

    #[test]
    fn the_certificate_and_the_way_are_judged() {
        let ends = |facts: &mut CloudFacts, at_s: i64| {
            let found = facts.link.certificate.as_mut().expect("there is one");
            found.1.not_after_s = at_s;
        };
        let none =
            |facts: &mut CloudFacts| facts.link.certificate = Err(System::new("none").into());
        check(none, "fail certificate: none", "edged join");
        check(
            |facts| facts.link.ca = Err(System::new("none").into()),
            "fail certificate: none",
            "--token",
        );
        check(
            |facts| ends(facts, NOW_S - 1),
            "fail certificate: /c/server.crt expired",
            "edged join",
        );
        check(
            |facts| {
                ends(facts, NOW_S - 1);
                facts.link.has_token = true;
            },
            "warn certificate: /c/server.crt expired",
            "token",
        );
        check(
            |facts| ends(facts, NOW_S + 3 * DAY_S),
            "warn certificate: /c/server.crt expires at 2027-01-18T08:00:00Z, in 3 days",
            "rotateCertificates",
        );
        check(
            |facts| facts.now_s = Some(NOW_S - 200 * DAY_S),
            "warn certificate: /c/server.crt is valid from",
            "clock",
        );
        check(
            |facts| facts.link.open_key = Some("/c/server.key".to_owned()),
            "warn certificate: /c/server.key: users other",
            "chmod 600 /c/server.key",
        );
        check(
            |facts| facts.link.reach = Err(System::new("refused")),
            "warn cloud: c:10000 cannot be reached: refused",
            "DNS server",
        );
    }

    #[test]
    fn the_tunnel_is_judged() {
        let with = |facts: &mut CloudFacts, change: &dyn Fn(&mut Inspection)| {
            let mut tunnel = Inspection { server: "c:10004".to_owned(), ..facts.link.clone() };
            change(&mut tunnel);
            facts.tunnel = Some(tunnel);
        };
        let mut well = facts();
        with(&mut well, &|_| {});
        let lines: Vec<_> = rows(&well).iter().map(|row| row.detail.clone()).collect();
        assert_eq!(lines.last().map(String::as_str), Some("c:10004 takes connections"));
        check(
            |facts| with(facts, &|tunnel| tunnel.reach = Err(System::new("refused"))),
            "warn streams: c:10004 cannot be reached: refused",
            "modules.edgeStream.enable",
        );
        check(
            |facts| {
                with(facts, &|tunnel| tunnel.certificate = Err(System::new("none").into()));
                // Nothing applies for a certificate of the tunnel's own.
                facts.link.has_token = true;
            },
            "warn streams: none",
            "tlsTunnelCertFile",
        );
        check(
            |facts| with(facts, &|tunnel| tunnel.open_key = Some("/t/server.key".to_owned())),
            "warn streams: /t/server.key: users other",
            "chmod 600 /t/server.key",
        );
        let mut both = facts();
        both.link.certificate = Err(System::new("none").into());
        with(&mut both, &|_| {});
        let bad = rows(&both).iter().filter(|row| row.verdict != Verdict::Ok).count();
        assert_eq!(bad, 1, "one certificate is reported once");
    }
}
