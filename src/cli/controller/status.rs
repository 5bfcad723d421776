//! `edgecontroller status`: prints the controller's state in a few lines.

use std::io::Write;

use lexopt::prelude::*;
use serde::Deserialize;

use super::list;
use crate::cli::Error;
use crate::controller::overview::{
    JobOverview, Overview, PolicyOverview, ResourceOverview, RuleOverview,
};

/// The answer to `GET /status`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    /// Why the API server cannot be reached, if that is so.
    trouble: Option<String>,
    tunnels: usize,
    streams: usize,
    #[serde(flatten)]
    overview: Overview,
}

/// Parses the flags, requests the state and prints it. The exit code is 1 where nodes are not
/// served.
pub(super) fn run(mut args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let (mut server, mut data) = (None, None);
    while let Some(arg) = args.next()? {
        match arg {
            Long("server") => server = Some(args.value()?.string()?),
            Long("data") => data = Some(args.value()?.string()?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let controller = (list::CONTROLLER.at)(server.as_deref(), data.as_deref())?;
    let body = controller.get("/status")?;
    let state: State = serde_json::from_slice(&body).map_err(|error| {
        Error::Failed(format!("got an answer that is not a controller's status: {error}"))
    })?;
    print(&state, out)?;
    Ok(u8::from(state.trouble.is_some() || !state.overview.is_ready))
}

fn print(state: &State, out: &mut dyn Write) -> std::io::Result<()> {
    let mut line = |name: &str, text: &str| writeln!(out, "{name:10} {text}");
    let Overview { is_ready, leads, nodes, queued, calls, resources, policy, rules, jobs } =
        &state.overview;
    let health = match (&state.trouble, is_ready) {
        (Some(why), _) => format!("NOT REACHED: {why}"),
        (None, false) => "NOT READY: not all objects are known yet".to_owned(),
        (None, true) => "ready".to_owned(),
    };
    line("objects", &health)?;
    line("leader", if *leads { "this replica" } else { "another replica, or none" })?;
    let State { tunnels, streams, .. } = state;
    line("nodes", &format!("{nodes} connected, {queued} objects wait for them"))?;
    line("tunnels", &format!("{tunnels}, {streams} requests through them"))?;
    line("calls", &format!("{calls} of the API server not answered yet"))?;
    match resources.as_deref() {
        None => line("metaserver", "off")?,
        Some(resources) => {
            let watches: usize = resources.iter().map(|it| it.watches).sum();
            let count = resources.len();
            line("metaserver", &format!("{count} resources, {watches} watches of nodes"))?;
            for resource in resources {
                line("", &resource_line(resource))?;
            }
        }
    }
    match policy {
        None => line("access", "off: nodes get no rules of service accounts")?,
        Some(policy) => {
            line("access", &policy_line(policy))?;
            policy.refused.iter().try_for_each(|refused| line("", refused))?;
        }
    }
    line("rules", &rules.len().to_string())?;
    for rule in rules {
        line("", &rule_line(rule))?;
        for error in &rule.errors {
            line("", &format!("  {error}"))?;
        }
    }
    line("jobs", &format!("{} not over", jobs.len()))?;
    jobs.iter().try_for_each(|job| line("", &job_line(job)))
}

fn policy_line(of: &PolicyOverview) -> String {
    let PolicyOverview { accounts, objects, bytes, trouble, refused: _ } = of;
    let kib = bytes.div_ceil(1024);
    let state =
        if trouble.is_empty() { String::new() } else { format!(", NOTHING SENT: {trouble}") };
    format!(
        "rules of {accounts} service accounts, of {objects} accounts, roles and bindings of {kib} \
         KiB{state}"
    )
}

fn resource_line(of: &ResourceOverview) -> String {
    let ResourceOverview { name, state, objects, bytes, nodes, watches, trouble } = of;
    if !trouble.is_empty() {
        return format!("{name}, REFUSED: {trouble}");
    }
    let kib = bytes.div_ceil(1024);
    format!("{name}, {state}, {objects} objects of {kib} KiB, {watches} watches of {nodes} nodes")
}

fn rule_line(of: &RuleOverview) -> String {
    let RuleOverview { name, trouble, delivered, failed, errors: _ } = of;
    let state =
        if trouble.is_empty() { String::new() } else { format!(", NOT IN FORCE: {trouble}") };
    format!("{name}, {delivered} messages delivered, {failed} failed{state}")
}

fn job_line(of: &JobOverview) -> String {
    let JobOverview { name, phase, nodes, working, done, failed } = of;
    let phase = if phase.is_empty() { "new" } else { phase };
    format!("{name}, {phase}, {done} of {nodes} nodes done, {failed} failed, {working} at work")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(state: &str) -> String {
        let state: State = serde_json::from_str(state).expect(state);
        let mut out = Vec::new();
        print(&state, &mut out).expect("writes to memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_controller_that_is_well_says_what_it_does() {
        let text = printed(
            r#"{"trouble": null, "tunnels": 2, "streams": 1, "is_ready": true, "leads": true,
                "nodes": 3, "queued": 4, "calls": 5,
                "resources": [{"name": "services", "state": "watching", "objects": 6,
                    "bytes": 1025, "nodes": 2, "watches": 7}],
                "policy": {"accounts": 2, "objects": 30, "bytes": 1025},
                "rules": [{"name": "n/r", "delivered": 8, "failed": 1, "errors": ["no answer"]}],
                "jobs": [{"name": "nodeupgradejob/j", "phase": "InProgress", "nodes": 9,
                    "working": 2, "done": 3, "failed": 1}]}"#,
        );
        assert_eq!(
            text,
            "objects    ready\n\
             leader     this replica\n\
             nodes      3 connected, 4 objects wait for them\n\
             tunnels    2, 1 requests through them\n\
             calls      5 of the API server not answered yet\n\
             metaserver 1 resources, 7 watches of nodes\n           \
             services, watching, 6 objects of 2 KiB, 7 watches of 2 nodes\n\
             access     rules of 2 service accounts, of 30 accounts, roles and bindings of 2 KiB\n\
             rules      1\n           \
             n/r, 8 messages delivered, 1 failed\n             no answer\n\
             jobs       1 not over\n           \
             nodeupgradejob/j, InProgress, 3 of 9 nodes done, 1 failed, 2 at work\n"
        );
    }

    #[test]
    fn each_trouble_is_reported() {
        let text = printed(
            r#"{"trouble": "connection refused",
                "resources": [{"name": "gateways.x.org", "trouble": "404: not there"}],
                "policy": {"trouble": "not listed yet: roles", "refused": ["n/a: too many"]},
                "rules": [{"name": "n/r", "trouble": "it has no endpoint"}],
                "jobs": [{"name": "imageprepulljob/j"}]}"#,
        );
        for want in [
            "objects    NOT REACHED: connection refused\n",
            "leader     another replica, or none\n",
            "and bindings of 0 KiB, NOTHING SENT: not listed yet: roles\n",
            "           n/a: too many\n",
            "           gateways.x.org, REFUSED: 404: not there\n",
            "           n/r, 0 messages delivered, 0 failed, NOT IN FORCE: it has no endpoint\n",
            "           imageprepulljob/j, new, 0 of 0 nodes done, 0 failed, 0 at work\n",
        ] {
            assert!(text.contains(want), "{want:?} is not in {text}");
        }
        let text = printed("{}");
        assert!(text.contains("objects    NOT READY: not all objects are known yet\n"), "{text}");
        assert!(text.contains("metaserver off\n"), "{text}");
        assert!(text.contains("access     off: nodes"), "{text}");
    }
}
