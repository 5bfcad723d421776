//! `edged top` and `edgecontroller top`: what the node, or all nodes, and their pods use of CPU and
//! memory, as `kubectl top` prints it.

use std::collections::BTreeMap;
use std::io::Write;

use lexopt::prelude::*;
use serde_json::{Value, json};

use super::Error;
use super::list::{self, Api};
use super::remote::{Common, Target, text};
use super::table::Columns;
use crate::agent::time::Instant;
use crate::io::client::{self, Agent};
use crate::io::clock;
use crate::limits::TOP_WINDOW_MS;

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Node,
    Pods,
}

/// The options on the command line.
#[derive(Debug)]
struct Options {
    kind: Kind,
    /// Its pod is the name of one pod, or of one of several nodes.
    target: Target,
    all_namespaces: bool,
    containers: bool,
}

impl Options {
    fn parse(mut args: lexopt::Parser, api: Api) -> Result<Self, Error> {
        let (mut kind, mut target) = (None, Target::default());
        let (mut all_namespaces, mut containers) = (false, false);
        while let Some(arg) = args.next()? {
            if let Some(option) = Common::of(&arg, api) {
                target.set(option, args.value()?.string()?);
                continue;
            }
            match arg {
                Short('A') | Long("all-namespaces") => all_namespaces = true,
                Long("containers") => containers = true,
                Value(word) if kind.is_none() => {
                    kind = Some(match &*word.string()? {
                        "node" | "nodes" | "no" => Kind::Node,
                        "pod" | "pods" | "po" => Kind::Pods,
                        other => return usage(&format!("got {other:?}, expected node or pods")),
                    });
                }
                Value(name) if target.pod.is_none() && takes_name(kind, api) => {
                    target.pod = Some(name.string()?);
                }
                _ => return Err(arg.unexpected().into()),
            }
        }
        let Some(kind) = kind else { return usage("expected node or pods") };
        Ok(Self { kind, target, all_namespaces, containers })
    }
}

/// Whether a name may follow. edged has one node.
fn takes_name(kind: Option<Kind>, api: Api) -> bool {
    kind == Some(Kind::Pods) || kind == Some(Kind::Node) && api.nodes.is_some()
}

fn usage<T>(why: &str) -> Result<T, Error> {
    Err(Error::Usage(why.to_owned()))
}

/// Parses the flags, requests the statistics and prints them. `trouble`: for what cannot be had of
/// some nodes.
pub(super) fn run(
    args: lexopt::Parser,
    out: &mut dyn Write,
    trouble: &mut dyn Write,
    api: Api,
) -> Result<u8, Error> {
    let options = Options::parse(args, api)?;
    let agent = options.target.agent(api)?;
    let sample = |trouble: &mut dyn Write| match api.nodes {
        None => Ok(vec![summary(&agent, "")?]),
        Some(path) => of_all_nodes(&options, &agent, path, trouble),
    };
    // What cannot be had is told of the second one.
    let before = sample(&mut std::io::sink())?;
    client::pause(TOP_WINDOW_MS);
    let now = sample(trouble)?;
    let before: BTreeMap<&str, &Sample> =
        before.iter().map(|sample| (sample.node(), sample)).collect();
    let since = |now: Sample| {
        let before = before.get(now.node()).copied();
        now.since(before)
    };
    let summaries: Vec<Value> = now.into_iter().map(since).collect();
    let rows = rows(&options, &summaries)?;
    let mut columns = Columns::default();
    columns.print_all(&rows, 0, out)?;
    Ok(0)
}

/// The statistics of one node, and when they came.
struct Sample {
    at: Instant,
    summary: Value,
}

impl Sample {
    fn of(summary: Value) -> Self {
        Self { at: clock::boot(), summary }
    }

    fn node(&self) -> &str {
        text(&self.summary["node"]["nodeName"])
    }

    /// With the CPU time since the sample of the same node before. The runtime's own figure is of
    /// the time since anybody has asked it last, which may be milliseconds.
    fn since(self, before: Option<&Self>) -> Value {
        let Self { at, mut summary } = self;
        let elapsed_ms = before.map_or(0, |before| at.since_ms(before.at));
        let nothing = Value::Null;
        let before = before.map_or(&nothing, |before| &before.summary);
        if let Some(node) = summary.get_mut("node") {
            set_rate(node, &before["node"], elapsed_ms);
        }
        let pods = by(uid, &before["pods"]);
        for pod in each(&mut summary, "pods") {
            let before = *pods.get(uid(pod)).unwrap_or(&&nothing);
            set_rate(pod, before, elapsed_ms);
            let containers = by(name, &before["containers"]);
            for container in each(pod, "containers") {
                let before = *containers.get(name(container)).unwrap_or(&&nothing);
                set_rate(container, before, elapsed_ms);
            }
        }
        summary
    }
}

fn uid(pod: &Value) -> &str {
    text(&pod["podRef"]["uid"])
}

fn name(container: &Value) -> &str {
    text(&container["name"])
}

/// The values of a list by a key.
fn by(key: fn(&Value) -> &str, list: &Value) -> BTreeMap<&str, &Value> {
    list.as_array().into_iter().flatten().map(|value| (key(value), value)).collect()
}

/// The values of the list in this field.
fn each<'v>(of: &'v mut Value, field: &str) -> impl Iterator<Item = &'v mut Value> {
    of.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

/// `usageNanoCores` of a node, a pod or a container; none if it was not measured before, or has
/// begun anew since.
fn set_rate(now: &mut Value, before: &Value, elapsed_ms: u64) {
    let used = |of: &Value| number(&of["cpu"]["usageCoreNanoSeconds"]);
    let more = used(now).zip(used(before)).and_then(|(now, before)| now.checked_sub(before));
    let nanos = more.and_then(|more| (u128::from(more) * 1_000).checked_div(elapsed_ms.into()));
    if let Some(cpu) = now.get_mut("cpu").and_then(Value::as_object_mut) {
        let nanos = nanos.and_then(|nanos| u64::try_from(nanos).ok());
        cpu.insert("usageNanoCores".to_owned(), json!(nanos));
    }
}

/// The statistics of one node; `prefix`: of the path.
fn summary(agent: &Agent, prefix: &str) -> Result<Sample, Error> {
    let body = agent.get_usage(&format!("{prefix}/stats/summary?only_cpu_and_memory=true"))?;
    let summary = serde_json::from_slice(&body).map_err(|error| {
        Error::Failed(format!("got an answer that is not a summary of statistics: {error}"))
    })?;
    Ok(Sample::of(summary))
}

/// The statistics of the nodes in the list at this path, or of the one that is named. Of a node
/// that does not answer there is the name alone.
fn of_all_nodes(
    options: &Options,
    agent: &Agent,
    path: &str,
    trouble: &mut dyn Write,
) -> Result<Vec<Sample>, Error> {
    let body = agent.get(path)?;
    let list: Value = serde_json::from_slice(&body).map_err(|error| {
        Error::Failed(format!("got an answer that is not a list of nodes: {error}"))
    })?;
    let names = list["items"].as_array().into_iter().flatten();
    let mut names: Vec<&str> = names.map(|node| text(&node["metadata"]["name"])).collect();
    if options.kind == Kind::Node
        && let Some(name) = &options.target.pod
    {
        names.retain(|known| known == name);
        if names.is_empty() {
            return Err(Error::Failed(format!("nodes {name:?} not found")));
        }
    }
    names.sort_unstable();
    let mut summaries = Vec::new();
    for name in names {
        match summary(agent, &format!("/nodes/{name}")) {
            Ok(summary) => summaries.push(summary),
            Err(Error::Failed(why)) => {
                writeln!(trouble, "{name}: {why}")?;
                summaries.push(Sample::of(json!({"node": {"nodeName": name}})));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(summaries)
}

fn rows(options: &Options, summaries: &[Value]) -> Result<Vec<Vec<String>>, Error> {
    match options.kind {
        Kind::Node => {
            let titles = head(&["NAME", "CPU(cores)", "MEMORY(bytes)", "MEMORY(%)"]);
            let nodes = summaries.iter().map(|summary| node(&summary["node"]));
            Ok(std::iter::once(titles).chain(nodes).collect())
        }
        Kind::Pods => pods(options, summaries),
    }
}

fn head(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// Of memory, 100 % are what is used and what is available. How many cores there are is not in the
/// statistics.
fn node(node: &Value) -> Vec<String> {
    let memory = &node["memory"];
    let share = match (number(&memory["workingSetBytes"]), number(&memory["availableBytes"])) {
        (Some(used), Some(left)) => {
            let (used, left) = (u128::from(used), u128::from(left));
            (used * 100).checked_div(used + left).map(|share| format!("{share}%"))
        }
        _ => None,
    };
    let share = share.unwrap_or_else(|| UNKNOWN.to_owned());
    vec![text(&node["nodeName"]).to_owned(), cpu(node), memory_of(node), share]
}

fn pods(options: &Options, summaries: &[Value]) -> Result<Vec<Vec<String>>, Error> {
    let Target { namespace, pod: name, .. } = &options.target;
    let all = summaries.iter().filter_map(|summary| summary["pods"].as_array());
    let mut pods: Vec<&Value> = all.flatten().collect();
    let of = |pod: &Value, key: &str| text(&pod["podRef"][key]).to_owned();
    pods.retain(|pod| {
        namespace.as_ref().is_none_or(|it| of(pod, "namespace") == *it)
            && name.as_ref().is_none_or(|it| of(pod, "name") == *it)
    });
    if pods.is_empty() {
        return match name {
            Some(name) => Err(Error::Failed(format!("pods {name:?} not found"))),
            None => Err(Error::Failed("there are no statistics of pods yet".to_owned())),
        };
    }
    pods.sort_by_key(|pod| (of(pod, "namespace"), of(pod, "name")));
    let namespaces: Vec<String> = pods.iter().map(|pod| of(pod, "namespace")).collect();
    let several = list::several(namespaces.iter().map(String::as_str));
    let wide = options.all_namespaces || namespace.is_none() && several;
    let mut cells = vec!["NAMESPACE", "POD", "NAME", "CPU(cores)", "MEMORY(bytes)"];
    if !options.containers {
        cells.remove(1);
    }
    let mut rows = vec![head(&cells[usize::from(!wide)..])];
    for pod in pods {
        let first: Vec<String> = if wide { vec![of(pod, "namespace")] } else { Vec::new() };
        let name = of(pod, "name");
        if options.containers {
            for container in pod["containers"].as_array().into_iter().flatten() {
                let own = vec![name.clone(), text(&container["name"]).to_owned()];
                let used = vec![cpu(container), memory_of(container)];
                rows.push([first.clone(), own, used].concat());
            }
        } else {
            rows.push([first, vec![name, cpu(pod), memory_of(pod)]].concat());
        }
    }
    Ok(rows)
}

/// Of a node, a pod or a container. A pod without a sum has that of its containers.
fn used(of: &Value, kind: &str, key: &str) -> Option<u64> {
    number(&of[kind][key]).or_else(|| {
        let containers = of["containers"].as_array()?;
        containers.iter().try_fold(0_u64, |sum, container| {
            Some(sum.saturating_add(number(&container[kind][key])?))
        })
    })
}

/// Thousandths of a core, rounded up: `12m`.
fn cpu(of: &Value) -> String {
    let nanos = used(of, "cpu", "usageNanoCores");
    nanos.map_or(UNKNOWN.to_owned(), |nanos| format!("{}m", nanos.div_ceil(1_000_000)))
}

/// `34Mi`
fn memory_of(of: &Value) -> String {
    let bytes = used(of, "memory", "workingSetBytes");
    bytes.map_or(UNKNOWN.to_owned(), |bytes| format!("{}Mi", bytes >> 20))
}

fn number(value: &Value) -> Option<u64> {
    value.as_u64()
}

const UNKNOWN: &str = "<unknown>";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::list::EDGED;

    #[test]
    fn the_cpu_is_that_of_the_time_between_two_samples() {
        let cpu = |nanos: u64| json!({"usageCoreNanoSeconds": nanos, "usageNanoCores": 77});
        let summary = |node: u64, web: u64, more: Value| {
            let containers = json!([{"name": "a", "cpu": cpu(web)}, more]);
            let about = json!({"name": "web", "namespace": "shop", "uid": "u"});
            json!({
                "node": {"nodeName": "gw", "cpu": cpu(node)},
                "pods": [{"podRef": about, "cpu": cpu(web), "containers": containers}],
            })
        };
        let before = Sample { at: Instant(10_000), summary: summary(5_000_000, 40, Value::Null) };
        let new = json!({"name": "new", "cpu": cpu(9)});
        let at = Instant(10_000 + 2 * TOP_WINDOW_MS);
        let now = Sample { at, summary: summary(7_000_000, 30, new) };
        let got = now.since(Some(&before));
        assert_eq!(got["node"]["cpu"]["usageNanoCores"], 1_000_000);
        let pod = &got["pods"][0];
        assert_eq!(pod["cpu"]["usageNanoCores"], Value::Null, "it has begun anew");
        for container in [0, 1] {
            let cpu = &pod["containers"][container]["cpu"];
            assert_eq!(cpu["usageNanoCores"], Value::Null, "{container}");
        }
        let alone = Sample { at: Instant(1), summary: summary(1, 1, Value::Null) };
        assert_eq!(alone.since(None)["node"]["cpu"]["usageNanoCores"], Value::Null);
    }

    fn summary() -> Value {
        let used = |nanos: u64, bytes: u64| {
            let memory = json!({"workingSetBytes": bytes});
            json!({"cpu": {"usageNanoCores": nanos}, "memory": memory})
        };
        let container = |name: &str, mut used: Value| {
            used["name"] = json!(name);
            used
        };
        let pod = |namespace: &str, name: &str, containers: &[Value]| {
            let about = json!({"name": name, "namespace": namespace});
            json!({"podRef": about, "containers": containers})
        };
        let two = [container("a", used(1_500_000, 3 << 20)), container("b", used(1, 1 << 20))];
        let mut whole = pod("shop", "web", &two);
        whole["memory"] = json!({"workingSetBytes": 7 << 20});
        // Without a measurement of one of its containers a sum would be wrong.
        let new = pod("shop", "new", &[two[0].clone(), json!({"name": "c"})]);
        let mut node = used(2_000_000_001, 300 << 20);
        node["nodeName"] = json!("gw");
        node["memory"]["availableBytes"] = json!(700 << 20);
        json!({"node": node, "pods": [whole, new, pod("tools", "one", &two[1..])]})
    }

    fn rows(args: &[&str]) -> Result<Vec<String>, Error> {
        let options = Options::parse(lexopt::Parser::from_args(args), EDGED)?;
        let rows = super::rows(&options, &[summary()])?;
        Ok(rows.iter().map(|row| row.join(" ")).collect())
    }

    #[test]
    fn use_stands_in_thousandths_of_cores_and_mebibytes() {
        let got = |args: &[&str]| rows(args).expect("rows");
        let head = "NAME CPU(cores) MEMORY(bytes)";
        assert_eq!(got(&["node"]), [&format!("{head} MEMORY(%)"), "gw 2001m 300Mi 30%"]);
        assert_eq!(got(&["pods", "-n", "shop"]), [head, "new <unknown> <unknown>", "web 2m 7Mi"]);
        let all = got(&["pods"]);
        let expected = ["shop new <unknown> <unknown>", "shop web 2m 7Mi", "tools one 1m 1Mi"];
        assert_eq!(
            (&*all[0], &all[1..]),
            (&*format!("NAMESPACE {head}"), &expected.map(str::to_owned)[..])
        );
        let containers = got(&["pod", "web", "--containers"]);
        assert_eq!(containers, [&format!("POD {head}"), "web a 2m 3Mi", "web b 1m 1Mi"]);
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (args, want) in [
            (&["pods", "none"][..], "pods \"none\" not found"),
            (&["pods", "-n", "none"], "no statistics"),
            (&[], "expected node or pods"),
            (&["cluster"], "got \"cluster\", expected node or pods"),
            (&["node", "gw"], "unexpected argument \"gw\""),
        ] {
            match rows(args) {
                Err(Error::Usage(why) | Error::Failed(why)) => assert!(why.contains(want), "{why}"),
                other => panic!("{args:?}: {other:?}"),
            }
        }
    }

    #[cfg(feature = "controller")]
    #[test]
    fn of_several_nodes_all_pods_are_shown_and_a_node_without_an_answer_by_its_name() {
        let away = json!({"node": {"nodeName": "away"}});
        let rows = |args: &[&str]| {
            let args = lexopt::Parser::from_args(args);
            let options = Options::parse(args, list::CONTROLLER).expect("options");
            let rows = super::rows(&options, &[away.clone(), summary()]).expect("rows");
            rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>()
        };
        let nodes = rows(&["nodes"]);
        assert_eq!(nodes[1..], ["away <unknown> <unknown> <unknown>", "gw 2001m 300Mi 30%"]);
        assert_eq!(rows(&["pods", "-A"]).len(), 4);
        assert_eq!(rows(&["pods", "-n", "tools"])[1..], ["one 1m 1Mi"]);
    }
}
