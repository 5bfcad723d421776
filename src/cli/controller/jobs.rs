//! `edgecontroller get jobs`: prints the jobs for nodes, or the nodes of one.

use std::io::Write;

use serde_json::{Value, json};

use super::list::{self, Form, Options};
use crate::cli::table::Columns;
use crate::cli::{Error, age};
use crate::io::client;
use crate::model::api::Kind;
use crate::wire::rest;

/// Parses the flags, requests the jobs and prints them.
pub(super) fn run(args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let mut options = Options::parse(args, list::CONTROLLER)?;
    if options.watch {
        return Err(Error::Usage("jobs: there is no --watch of them".to_owned()));
    }
    let agent = options.agent(list::CONTROLLER)?;
    let mut all = Vec::new();
    for kind in Kind::NODE_JOBS {
        let list = options.fetch(&agent, &rest::of_list(kind, 0, ""), "metadata")?;
        for item in list["items"].as_array().into_iter().flatten() {
            let mut item = item.clone();
            item["kind"] = kind.name().into();
            item["apiVersion"] = kind.api_version().into();
            all.push(item);
        }
    }
    let list = json!({"kind": "List", "apiVersion": "v1", "items": all});
    options.expect_named(&list, "jobs")?;
    if matches!(options.form, Form::Json | Form::Yaml) {
        // One of several kinds: it is printed as it is.
        let is_named = options.name.take().is_some();
        let one = all.first().filter(|_| is_named && all.len() == 1);
        options.print_whole(one.unwrap_or(&list), out)?;
        return Ok(0);
    }
    if all.is_empty() {
        writeln!(out, "No jobs.")?;
        return Ok(0);
    }
    let (wide, now) = (options.form == Form::Wide, client::wall_s());
    let mut rows: Vec<Vec<String>> = Vec::new();
    if options.name.is_some() {
        rows.push(["NODE", "PHASE", "ACTION", "REASON"].map(str::to_owned).into());
        rows.extend(all.iter().flat_map(node_rows));
    } else {
        let mut head = vec!["NAME", "KIND", "PHASE", "NODES", "FAILED", "AGE"];
        head.extend(wide.then_some("REASON"));
        rows.push(head.into_iter().map(str::to_owned).collect());
        rows.extend(all.iter().map(|job| row(job, wide, now)));
    }
    let mut columns = Columns::default();
    for row in &rows {
        columns.fit(row);
    }
    for row in &rows {
        columns.print(row, out)?;
    }
    Ok(0)
}

/// A text, or what stands for none.
fn text(value: &Value) -> String {
    match value.as_str() {
        None | Some("") => "<none>".to_owned(),
        Some(text) => text.to_owned(),
    }
}

fn nodes(job: &Value) -> impl Iterator<Item = &Value> {
    job["status"]["nodeStatus"].as_array().into_iter().flatten()
}

fn row(job: &Value, wide: bool, now: Option<i64>) -> Vec<String> {
    let count = |phases: &[&str]| {
        let phase = |node: &&Value| phases.contains(&node["phase"].as_str().unwrap_or_default());
        nodes(job).filter(phase).count()
    };
    let failed = count(&["Failure", "Unknown"]);
    let made = age::seconds(job["metadata"]["creationTimestamp"].as_str().unwrap_or_default());
    let age = match (made, now) {
        (Some(at), Some(now)) => age::short((now - at).max(0)),
        _ => "<unknown>".to_owned(),
    };
    let mut cells = vec![
        text(&job["metadata"]["name"]),
        text(&job["kind"]),
        text(&job["status"]["phase"]),
        format!("{}/{}", count(&["Successful"]) + failed, nodes(job).count()),
        failed.to_string(),
        age,
    ];
    if wide {
        cells.push(text(&job["status"]["reason"]));
    }
    cells
}

/// Each node with its last action.
fn node_rows(job: &Value) -> Vec<Vec<String>> {
    let row = |node: &Value| {
        let action = node["actionFlow"].as_array().and_then(|all| all.last());
        let action = action.map_or(Value::Null, |last| last["action"].clone());
        vec![text(&node["nodeName"]), text(&node["phase"]), text(&action), text(&node["reason"])]
    };
    nodes(job).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_a_row_and_each_of_its_nodes_one_of_their_own() {
        let job = json!({
            "kind": "ImagePrePullJob",
            "metadata": {"name": "nightly", "creationTimestamp": "2025-11-20T19:29:11Z"},
            "status": {"phase": "InProgress", "nodeStatus": [
                {"nodeName": "a", "phase": "Successful",
                 "actionFlow": [{"action": "Check"}, {"action": "Pull"}]},
                {"nodeName": "b", "phase": "Unknown", "reason": "timed out"},
                {"nodeName": "c", "phase": "Pending"}]},
        });
        let shown = row(&job, true, Some(1_763_666_956));
        let expected = ["nightly", "ImagePrePullJob", "InProgress", "2/3", "1", "5s", "<none>"];
        assert_eq!(shown, expected);
        let rows = node_rows(&job);
        assert_eq!(rows[0], ["a", "Successful", "Pull", "<none>"]);
        assert_eq!(rows[1], ["b", "Unknown", "<none>", "timed out"]);
        assert_eq!(row(&json!({}), false, None)[3..], ["0/0", "0", "<unknown>"]);
    }
}
