//! `edged top` and `edgecontroller top`: what the node, or all nodes, and their pods use of CPU and
//! memory, as `kubectl top` prints it.

use std::io::Write;

use lexopt::prelude::*;
use serde_json::{Value, json};

use super::Error;
use super::list::{self, Api};
use super::remote::{Common, Target, text};
use super::table::Columns;
use crate::io::client::Agent;

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
    let summaries = match api.nodes {
        None => vec![summary(&agent, "")?],
        Some(path) => of_all_nodes(&options, &agent, path, trouble)?,
    };
    let rows = rows(&options, &summaries)?;
    let mut columns = Columns::default();
    for row in &rows {
        columns.fit(row);
    }
    for row in &rows {
        columns.print(row, out)?;
    }
    Ok(0)
}

/// The statistics of one node; `prefix`: of the path.
fn summary(agent: &Agent, prefix: &str) -> Result<Value, Error> {
    let body = agent.get_usage(&format!("{prefix}/stats/summary?only_cpu_and_memory=true"))?;
    serde_json::from_slice(&body).map_err(|error| {
        Error::Failed(format!("got an answer that is not a summary of statistics: {error}"))
    })
}

/// The statistics of the nodes in the list at this path, or of the one that is named. Of a node
/// that does not answer there is the name alone.
fn of_all_nodes(
    options: &Options,
    agent: &Agent,
    path: &str,
    trouble: &mut dyn Write,
) -> Result<Vec<Value>, Error> {
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
                summaries.push(json!({"node": {"nodeName": name}}));
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
        (Some(used), Some(left)) if used + left > 0 => format!("{}%", used * 100 / (used + left)),
        _ => UNKNOWN.to_owned(),
    };
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
