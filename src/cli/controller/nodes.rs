//! `edgecontroller get nodes`: the nodes as `kubectl get nodes` prints them.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::Value;

use crate::cli::list::{self, Form, Options};
use crate::cli::table::Columns;
use crate::cli::{Error, age};
use crate::io::client;
use crate::limits::WATCH_MS;

/// Reads the flags, asks the controller and prints.
pub(super) fn run(args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let options = Options::parse(args, list::CONTROLLER)?;
    let agent = options.agent(list::CONTROLLER)?;
    let (wide, watch) = (options.form == Form::Wide, options.watch);
    let mut columns = Columns::default();
    let mut shown: Option<BTreeMap<String, Row>> = None;
    loop {
        let list = options.fetch(&agent, "/api/v1/nodes", "metadata")?;
        options.expect_named(&list, "nodes")?;
        if options.print_whole(&list, out)? {
            return Ok(0);
        }
        let items = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        let rows: BTreeMap<String, Row> =
            items.iter().map(Row::of).map(|row| (row.name.clone(), row)).collect();
        if rows.is_empty() && !watch {
            writeln!(out, "No nodes.")?;
            return Ok(0);
        }
        let now = client::wall_s();
        let mut lines = Vec::new();
        if shown.is_none() {
            lines.push(header(wide));
        }
        let before = shown.unwrap_or_default();
        let changed = rows.iter().filter(|(name, row)| before.get(*name) != Some(*row));
        lines.extend(changed.map(|(_, row)| row.line(wide, now)));
        for line in &lines {
            columns.fit(line);
        }
        for line in &lines {
            columns.print(line, out)?;
        }
        if !watch {
            return Ok(0);
        }
        out.flush()?;
        shown = Some(rows);
        client::pause(WATCH_MS);
    }
}

fn header(wide: bool) -> Vec<String> {
    let mut cells = vec!["NAME", "STATUS", "AGE", "VERSION"];
    if wide {
        cells.extend(["INTERNAL-IP", "OS-IMAGE", "KERNEL-VERSION", "CONTAINER-RUNTIME"]);
    }
    cells.into_iter().map(str::to_owned).collect()
}

/// One node, without what time alone changes.
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
        let find = |list: &Value, kind: &str| {
            let list = list.as_array().into_iter().flatten();
            list.into_iter().find(|element| element["type"] == kind).cloned().unwrap_or_default()
        };
        let ready = find(&status["conditions"], "Ready");
        let mut said = match ready["status"].as_str() {
            Some("True") => "Ready",
            Some(_) => "NotReady",
            None => "Unknown",
        }
        .to_owned();
        if node["spec"]["unschedulable"] == true {
            said.push_str(",SchedulingDisabled");
        }
        let info = &status["nodeInfo"];
        Self {
            name: text(&metadata["name"]),
            status: said,
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

    fn line(&self, wide: bool, now: Option<i64>) -> Vec<String> {
        let age = match (self.created_at, now) {
            (Some(at), Some(now)) => age::short(now - at),
            _ => "<unknown>".to_owned(),
        };
        let mut cells = vec![self.name.clone(), self.status.clone(), age, self.version.clone()];
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
        assert_eq!(row.line(false, now), ["gw", "Ready,SchedulingDisabled", "5s", "v1"]);
        assert_eq!(row.line(true, None)[2..6], ["<unknown>", "v1", "192.0.2.7", "Debian"]);
        assert_eq!(Row::of(&json!({})).status, "Unknown");
    }
}
