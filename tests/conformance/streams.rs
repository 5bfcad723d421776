//! Pods: commands and logs.

use std::time::Duration;

use crate::Entry;
use crate::case::{Case, SLEEP};
use crate::support::agent::NODE;
use crate::support::exec::Exec;
use crate::support::http;
use crate::support::wait::until_in;

const AREA: &str = "Pods";

pub(crate) const ROWS: &[Entry] = &[
    (AREA, "should support remote command execution over websockets", command_by_websocket),
    (AREA, "should support retrieving logs from the container over websockets", log_retrieved),
];

/// Upstream's command and its expectation; the websocket ends at the runtime.
fn command_by_websocket(case: &Case<'_>) {
    case.run("", SLEEP);
    let path = format!(
        "/exec/default/{}-{NODE}/main?output=1&error=1&command=echo&command=remote+execution+test",
        case.name
    );
    let [_, out, err, status] = Exec::open(&case.node.site.root.join("edged.sock"), &path).rest();
    assert_eq!((&*out, &*err), ("remote execution test\n", ""));
    assert!(status.contains("\"Success\""), "{status}");
}

/// Upstream reads the log through a websocket of the API server, which gets it from the node by a
/// plain request: that request is tested.
fn log_retrieved(case: &Case<'_>) {
    case.run("", "    command: [sh, -c, 'echo container is alive; sleep 10000']\n");
    let path = format!("/containerLogs/default/{}-{NODE}/main", case.name);
    let socket = case.node.site.root.join("edged.sock");
    until_in(Duration::from_secs(60), "the log is there", || {
        let answer = http::get_of(&socket, &path).map_err(|error| error.to_string())?;
        let shown = answer.code == 200 && answer.body == "container is alive\n";
        shown.then_some(()).ok_or_else(|| format!("{answer:?}"))
    });
}
