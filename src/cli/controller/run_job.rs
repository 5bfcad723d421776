//! `edgecontroller prepull` and `edgecontroller upgrade`: make a job for nodes, and print what
//! becomes of it until it is over.

use std::collections::BTreeMap;
use std::io::Write;

use lexopt::prelude::*;
use serde_json::{Map, Value, json};

use super::list;
use crate::cli::Error;
use crate::io::client::{self, Agent};
use crate::io::log::printable;
use crate::limits::WATCH_MS;
use crate::model::api::{Call, Kind, Verb};
use crate::wire::rest;

/// Which job the command makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    PrePull,
    Upgrade,
}

/// The job of a command line.
#[derive(Debug)]
struct Wanted {
    kind: Kind,
    name: String,
    manifest: Value,
}

/// The command line.
#[derive(Debug, Default)]
struct Line {
    nodes: Vec<String>,
    images: Vec<String>,
    /// Those of the spec that were given.
    fields: Map<String, Value>,
    labels: Map<String, Value>,
    digests: Map<String, Value>,
    name: Option<String>,
    is_not_awaited: bool,
    server: Option<String>,
    data: Option<String>,
}

/// Parses the flags, makes the job, and prints its progress. The exit code is 1 if it fails.
pub(super) fn run(
    args: lexopt::Parser,
    command: Command,
    out: &mut dyn Write,
) -> Result<u8, Error> {
    let line = Line::parse(args, command)?;
    let (server, data, waits) = (line.server.clone(), line.data.clone(), !line.is_not_awaited);
    let wanted = line.job(command)?;
    let controller = (list::CONTROLLER.at)(server.as_deref(), data.as_deref())?;
    let answer = controller.send("POST", "/jobs", wanted.manifest.to_string().as_bytes())?;
    if answer.status != 200 {
        return Err(Error::Failed(answer.why()));
    }
    out.write_all(&answer.body)?;
    if waits { follow(&controller, &wanted, out) } else { Ok(0) }
}

impl Line {
    fn parse(mut args: lexopt::Parser, command: Command) -> Result<Self, Error> {
        let mut line = Self::default();
        let fields = &mut line.fields;
        let is_upgrade = command == Command::Upgrade;
        while let Some(arg) = args.next()? {
            match arg {
                Long("image") => line.images.push(args.value()?.string()?),
                Long("name") => line.name = Some(args.value()?.string()?),
                Long("no-wait") => line.is_not_awaited = true,
                Short('l') | Long("selector") => {
                    pairs(&mut line.labels, &args.value()?.string()?)?;
                }
                Long("concurrency") => set(fields, "concurrency", args.value()?.parse::<u32>()?),
                Long("timeout") => set(fields, "timeoutSeconds", args.value()?.parse::<u32>()?),
                Long("tolerate") => set(fields, "failureTolerate", args.value()?.string()?),
                Long("check") => {
                    let items = args.value()?.string()?;
                    set(fields, "checkItems", items.split(',').collect::<Vec<_>>());
                }
                Long("secret") if !is_upgrade => {
                    set(fields, "imageSecrets", args.value()?.string()?);
                }
                Long("retries") if !is_upgrade => {
                    set(fields, "retryTimes", args.value()?.parse::<u32>()?);
                }
                Long("version") if is_upgrade => set(fields, "version", args.value()?.string()?),
                Long("digest") if is_upgrade => {
                    pairs(&mut line.digests, &args.value()?.string()?)?;
                }
                Long("confirm") if is_upgrade => set(fields, "requireConfirmation", true),
                Long("server") => line.server = Some(args.value()?.string()?),
                Long("data") => line.data = Some(args.value()?.string()?),
                Value(node) => line.nodes.push(node.string()?),
                _ => return Err(arg.unexpected().into()),
            }
        }
        Ok(line)
    }

    fn job(self, command: Command) -> Result<Wanted, Error> {
        let Self { nodes, images, mut fields, labels, digests, name, .. } = self;
        if nodes.is_empty() == labels.is_empty() {
            return Err(usage("expected names of nodes, or --selector"));
        }
        if nodes.is_empty() {
            set(&mut fields, "labelSelector", json!({"matchLabels": labels}));
        } else {
            set(&mut fields, "nodeNames", nodes);
        }
        let (kind, word, spec) = match command {
            Command::PrePull if images.is_empty() => return Err(usage("expected --image IMAGE")),
            Command::PrePull => {
                set(&mut fields, "images", images);
                (Kind::ImagePrePullJob, "prepull", json!({"imagePrePullTemplate": fields}))
            }
            Command::Upgrade => {
                let [image] = &images[..] else {
                    return Err(usage("expected one --image REPOSITORY"));
                };
                if !fields.contains_key("version") {
                    return Err(usage("expected --version VERSION"));
                }
                set(&mut fields, "image", image);
                if !digests.is_empty() {
                    // As KubeEdge spells it.
                    set(&mut fields, "imageDigestGatter", digests);
                }
                (Kind::NodeUpgradeJob, "upgrade", Value::Object(fields))
            }
        };
        let name = if let Some(name) = name {
            name
        } else {
            let now_s = client::wall_s();
            let now_s = now_s.ok_or_else(|| usage("this machine's clock is not set: --name"))?;
            format!("{word}-{now_s}")
        };
        let manifest = json!({"apiVersion": kind.api_version(), "kind": kind.name(),
            "metadata": {"name": name}, "spec": spec});
        Ok(Wanted { kind, name, manifest })
    }
}

fn usage(why: &str) -> Error {
    Error::Usage(why.to_owned())
}

fn set<T: serde::Serialize>(fields: &mut Map<String, Value>, key: &str, value: T) {
    fields.insert(key.to_owned(), json!(value));
}

/// Adds `a=b,c=d`.
fn pairs(to: &mut Map<String, Value>, text: &str) -> Result<(), Error> {
    for pair in text.split(',') {
        let (key, value) = pair
            .split_once('=')
            .ok_or_else(|| Error::Usage(format!("got {pair:?}, expected KEY=VALUE")))?;
        set(to, key, value);
    }
    Ok(())
}

/// Prints what changes, until the job is over.
fn follow(controller: &Agent, wanted: &Wanted, out: &mut dyn Write) -> Result<u8, Error> {
    let (verb, kind, name) = (Verb::Get, wanted.kind, wanted.name.as_str().into());
    let (namespace, subresource, body) = ("".into(), None, None);
    let path = rest::of_call(&Call { verb, kind, namespace, name, subresource, body }).path;
    let mut shown = BTreeMap::new();
    loop {
        let job = controller.get(&path)?;
        let job: Value = serde_json::from_slice(&job)
            .map_err(|error| Error::Failed(format!("got a job that is not JSON: {error}")))?;
        let status = &job["status"];
        for line in news(status, &mut shown) {
            writeln!(out, "{}", printable(&line))?;
        }
        out.flush()?;
        let phase = status["phase"].as_str().unwrap_or_default();
        if matches!(phase, "Completed" | "Failure") {
            let reason = status["reason"].as_str().unwrap_or_default();
            let colon = if reason.is_empty() { "" } else { ": " };
            let line = format!("{}: {phase}{colon}{reason}", wanted.name);
            writeln!(out, "{}", printable(&line))?;
            return Ok(u8::from(phase == "Failure"));
        }
        client::pause(WATCH_MS);
    }
}

/// What was shown of a node: its phase, and how many actions.
type Shown = BTreeMap<String, (String, usize)>;

/// A line for each action, and for each phase after `Pending`.
fn news(status: &Value, shown: &mut Shown) -> Vec<String> {
    let mut lines = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for node in status["nodeStatus"].as_array().into_iter().flatten() {
        let (name, phase) = (text(&node["nodeName"]), text(&node["phase"]));
        let actions = node["actionFlow"].as_array().map_or(&[][..], Vec::as_slice);
        let (before, count) =
            shown.insert(name.clone(), (phase.clone(), actions.len())).unwrap_or_default();
        if before != phase && phase == "InProgress" {
            lines.push(format!("{name}: asked"));
        }
        for action in actions.iter().skip(count) {
            let done = if action["status"] == "True" { "done" } else { "failed" };
            lines.push(format!("{name}: {} {done}", text(&action["action"])));
        }
        if before != phase && !matches!(&*phase, "" | "Pending" | "InProgress") {
            let reason = text(&node["reason"]);
            let colon = if reason.is_empty() { "" } else { ": " };
            lines.push(format!("{name}: {phase}{colon}{reason}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(command: Command, args: &[&str]) -> Result<Value, String> {
        let args = lexopt::Parser::from_args(args);
        match Line::parse(args, command).and_then(|line| line.job(command)) {
            Ok(wanted) => Ok(wanted.manifest),
            Err(Error::Usage(why) | Error::Failed(why)) => Err(why),
            Err(Error::Output(error)) => Err(error.to_string()),
        }
    }

    #[test]
    fn a_command_line_is_a_job() {
        let args = [
            "gw-1",
            "gw-2",
            "--image",
            "a:1",
            "--image",
            "b:2",
            "--name",
            "x",
            "--concurrency",
            "3",
            "--retries",
            "2",
            "--secret",
            "n/s",
            "--check",
            "cpu,disk",
            "--timeout",
            "60",
            "--tolerate",
            "0.5",
        ];
        let job = manifest(Command::PrePull, &args).expect("a job");
        let template = json!({"nodeNames": ["gw-1", "gw-2"], "images": ["a:1", "b:2"],
            "concurrency": 3, "retryTimes": 2, "imageSecrets": "n/s",
            "checkItems": ["cpu", "disk"], "timeoutSeconds": 60, "failureTolerate": "0.5"});
        assert_eq!(job["spec"]["imagePrePullTemplate"], template);
        assert_eq!(
            (&job["kind"], &job["metadata"]["name"]),
            (&json!("ImagePrePullJob"), &json!("x"))
        );
        let args = [
            "-l",
            "site=a,arch=arm",
            "--image",
            "r/edged",
            "--version",
            "v1.2.3",
            "--confirm",
            "--digest",
            "arm64=sha256:1",
            "--name",
            "x",
        ];
        let job = manifest(Command::Upgrade, &args).expect("a job");
        let spec = json!({"labelSelector": {"matchLabels": {"site": "a", "arch": "arm"}},
            "version": "v1.2.3", "image": "r/edged", "requireConfirmation": true,
            "imageDigestGatter": {"arm64": "sha256:1"}});
        assert_eq!((&job["kind"], &job["spec"]), (&json!("NodeUpgradeJob"), &spec));
        for (command, args, expected) in [
            (Command::PrePull, &["--image", "a"][..], "expected names of nodes"),
            (Command::PrePull, &["gw", "-l", "a=b", "--image", "a"], "expected names of nodes"),
            (Command::PrePull, &["gw"], "expected --image"),
            (Command::PrePull, &["-l", "a", "--image", "a"], "got \"a\", expected KEY=VALUE"),
            (Command::PrePull, &["gw", "--version", "v1"], "invalid option '--version'"),
            (Command::Upgrade, &["gw", "--image", "a"], "expected --version"),
            (Command::Upgrade, &["gw", "--version", "v1"], "expected one --image"),
            (Command::Upgrade, &["gw", "--retries", "1"], "invalid option '--retries'"),
        ] {
            let why = manifest(command, args).expect_err("no job");
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn each_action_and_each_end_is_a_line() {
        let mut shown = Shown::new();
        let status = |nodes: Value| json!({"nodeStatus": nodes});
        assert!(news(&json!({}), &mut shown).is_empty());
        let pending = json!([{"nodeName": "a", "phase": "Pending"}]);
        assert!(news(&status(pending), &mut shown).is_empty());
        let checked = json!([{"nodeName": "a", "phase": "InProgress",
            "actionFlow": [{"action": "Check", "status": "True"}]}]);
        assert_eq!(news(&status(checked.clone()), &mut shown), ["a: asked", "a: Check done"]);
        assert!(news(&status(checked), &mut shown).is_empty());
        let failed = json!([{"nodeName": "a", "phase": "Failure", "reason": "Pull: no",
            "actionFlow": [{"action": "Check", "status": "True"},
                {"action": "Pull", "status": "False"}]}]);
        assert_eq!(news(&status(failed), &mut shown), ["a: Pull failed", "a: Failure: Pull: no"]);
    }
}
