//! `edgecontroller get nodes`: prints the nodes as `kubectl get nodes` does, and when each was last
//! seen. That time is by the node's own clock: its lease, or its status if it has no lease.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::Value;

use crate::cli::list::{self, Form, Options};
use crate::cli::table::Columns;
use crate::cli::{Error, age};
use crate::io::client;

/// Parses the flags, requests the nodes and prints them.
pub(super) fn run(args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let options = Options::parse(args, list::CONTROLLER)?;
    let agent = options.agent(list::CONTROLLER)?;
    let wide = options.form == Form::Wide;
    let mut columns = Columns::default();
    let mut shown: Option<BTreeMap<String, Row>> = None;
    options.print_turns(out, &mut |out| {
        let list = options.fetch(&agent, "/api/v1/nodes", "metadata")?;
        options.expect_named(&list, "nodes")?;
        if options.print_whole(&list, out)? {
            return Ok(());
        }
        let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        let rows: BTreeMap<String, Row> =
            items.iter().map(Row::of).map(|row| (row.name.clone(), row)).collect();
        if rows.is_empty() && !options.watch {
            return Ok(writeln!(out, "No nodes.")?);
        }
        let leases = options.fetch(&agent, LEASES, "metadata")?;
        let seen = last_seen(items, &leases);
        let now = client::wall_s();
        let before = shown.replace(rows.clone());
        let mut lines = Vec::new();
        if before.is_none() {
            lines.push(header(wide));
        }
        let before = before.unwrap_or_default();
        let changed = rows.iter().filter(|(name, row)| before.get(*name) != Some(*row));
        lines.extend(changed.map(|(name, row)| row.line(wide, seen.get(name).copied(), now)));
        Ok(columns.print_all(&lines, 0, out)?)
    })?;
    Ok(0)
}

fn header(wide: bool) -> Vec<String> {
    let mut cells = vec!["NAME", "STATUS", "LAST-SEEN", "AGE", "VERSION"];
    if wide {
        cells.extend(["INTERNAL-IP", "OS-IMAGE", "KERNEL-VERSION", "CONTAINER-RUNTIME"]);
    }
    cells.into_iter().map(str::to_owned).collect()
}

/// When each node was last seen, in seconds since 1970.
fn last_seen(nodes: &[Value], leases: &Value) -> BTreeMap<String, i64> {
    let mut seen = BTreeMap::new();
    let beats = nodes.iter().filter_map(|node| {
        let ready = find(&node["status"]["conditions"], "Ready");
        Some((node, age::seconds(ready["lastHeartbeatTime"].as_str()?)?))
    });
    let leases = leases["items"].as_array().into_iter().flatten();
    let renewed = leases
        .filter_map(|lease| Some((lease, age::seconds(lease["spec"]["renewTime"].as_str()?)?)));
    for (object, at) in beats.chain(renewed) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let newest = seen.entry(name.to_owned()).or_insert(at);
        *newest = at.max(*newest);
    }
    seen
}

/// The element with this type in a list.
fn find(list: &Value, kind: &str) -> Value {
    let mut list = list.as_array().into_iter().flatten();
    list.find(|element| element["type"] == kind).cloned().unwrap_or_default()
}

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// One node, without the ages.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    name: String,
    status: String,
    created_at: Option<i64>,
    version: String,
    more: [String; 4],
}

impl Row {
    fn of(node: &Value) -> Self {
        let (metadata, status) = (&node["metadata"], &node["status"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let ready = find(&status["conditions"], "Ready");
        let mut state = match ready["status"].as_str() {
            Some("True") => "Ready",
            Some(_) => "NotReady",
            None => "Unknown",
        }
        .to_owned();
        if node["spec"]["unschedulable"] == true {
            state.push_str(",SchedulingDisabled");
        }
        let info = &status["nodeInfo"];
        Self {
            name: text(&metadata["name"]),
            status: state,
            created_at: age::seconds(&text(&metadata["creationTimestamp"])),
            version: text(&info["kubeletVersion"]),
            more: [
                text(&find(&status["addresses"], "InternalIP")["address"]),
                text(&info["osImage"]),
                text(&info["kernelVersion"]),
                text(&info["containerRuntimeVersion"]),
            ],
        }
    }

    fn line(&self, wide: bool, seen_at: Option<i64>, now: Option<i64>) -> Vec<String> {
        let since = |at: Option<i64>, none: &str| match (at, now) {
            (Some(at), Some(now)) => age::short(now - at),
            _ => none.to_owned(),
        };
        // A node's clock may be a little ahead of ours.
        let seen_at = seen_at.map(|at| now.map_or(at, |now| at.min(now)));
        let seen = since(seen_at, "<never>");
        let age = since(self.created_at, "<unknown>");
        let mut cells =
            vec![self.name.clone(), self.status.clone(), seen, age, self.version.clone()];
        if wide {
            cells.extend(self.more.iter().cloned());
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_a_row() {
        let node = json!({
            "metadata": {"name": "gw", "creationTimestamp": "2025-11-20T19:29:11Z"},
            "spec": {"unschedulable": true},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "192.0.2.7"}],
                "nodeInfo": {"kubeletVersion": "v1", "osImage": "Debian"},
            },
        });
        let row = Row::of(&node);
        let now = Some(1_763_666_956);
        let line = row.line(false, Some(1_763_666_950), now);
        assert_eq!(line, ["gw", "Ready,SchedulingDisabled", "6s", "5s", "v1"]);
        assert_eq!(row.line(false, None, now)[2], "<never>");
        assert_eq!(row.line(false, Some(1_763_666_999), now)[2], "0s", "by a clock ahead of ours");
        assert_eq!(row.line(true, None, None)[3..7], ["<unknown>", "v1", "192.0.2.7", "Debian"]);
        assert_eq!(Row::of(&json!({})).status, "Unknown");
    }

    #[test]
    fn the_newest_sign_of_life_counts() {
        let ready = |at: &str| json!([{"type": "Ready", "lastHeartbeatTime": at}]);
        let node = |name: &str, at: &str| {
            let conditions = ready(at);
            json!({"metadata": {"name": name}, "status": {"conditions": conditions}})
        };
        let lease =
            |name: &str, at: &str| json!({"metadata": {"name": name}, "spec": {"renewTime": at}});
        let nodes =
            [node("a", "2025-11-20T19:29:11Z"), node("b", "2025-11-20T19:29:11Z"), json!({})];
        let leases = json!({"items": [
            lease("a", "2025-11-20T19:29:16.123456Z"), lease("b", "2025-11-20T19:20:00Z"),
            lease("c", "none"),
        ]});
        let expected = [("a", 1_763_666_956), ("b", 1_763_666_951)];
        assert_eq!(last_seen(&nodes, &leases), expected.map(|(name, at)| (name.into(), at)).into());
    }
}
