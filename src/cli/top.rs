//! `edged top`: what the node and its pods use of CPU and memory, as `kubectl top` prints it.

use std::io::Write;

use lexopt::prelude::*;
use serde_json::Value;

use super::Error;
use super::list::{self, Api};
use super::remote::{Common, Target, text};
use super::table::Columns;

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
    /// Its pod is the name of one pod.
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
                Value(name) if target.pod.is_none() && kind == Some(Kind::Pods) => {
                    target.pod = Some(name.string()?);
                }
                _ => return Err(arg.unexpected().into()),
            }
        }
        let Some(kind) = kind else { return usage("expected node or pods") };
        Ok(Self { kind, target, all_namespaces, containers })
    }
}

fn usage<T>(why: &str) -> Result<T, Error> {
    Err(Error::Usage(why.to_owned()))
}

/// Parses the flags, requests the statistics and prints them.
pub(super) fn run(args: lexopt::Parser, out: &mut dyn Write, api: Api) -> Result<u8, Error> {
    let options = Options::parse(args, api)?;
    let agent = options.target.agent(api)?;
    let body = agent.get_usage("/stats/summary?only_cpu_and_memory=true")?;
    let summary: Value = serde_json::from_slice(&body).map_err(|error| {
        Error::Failed(format!("got an answer that is not a summary of statistics: {error}"))
    })?;
    let rows = match options.kind {
        Kind::Node => node(&summary["node"]),
        Kind::Pods => pods(&options, &summary)?,
    };
    let mut columns = Columns::default();
    for row in &rows {
        columns.fit(row);
    }
    for row in &rows {
        columns.print(row, out)?;
    }
    Ok(0)
}

fn head(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

/// Of memory, 100 % are what is used and what is available. How many cores there are is not in the
/// statistics.
fn node(node: &Value) -> Vec<Vec<String>> {
    let memory = &node["memory"];
    let share = match (number(&memory["workingSetBytes"]), number(&memory["availableBytes"])) {
        (Some(used), Some(left)) if used + left > 0 => format!("{}%", used * 100 / (used + left)),
        _ => UNKNOWN.to_owned(),
    };
    let row = vec![text(&node["nodeName"]).to_owned(), cpu(node), memory_of(node), share];
    vec![head(&["NAME", "CPU(cores)", "MEMORY(bytes)", "MEMORY(%)"]), row]
}

fn pods(options: &Options, summary: &Value) -> Result<Vec<Vec<String>>, Error> {
    let Target { namespace, pod: name, .. } = &options.target;
    let mut pods: Vec<&Value> = summary["pods"].as_array().into_iter().flatten().collect();
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
    use serde_json::json;

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
        let rows = match options.kind {
            Kind::Node => node(&summary()["node"]),
            Kind::Pods => pods(&options, &summary())?,
        };
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
        ] {
            match rows(args) {
                Err(Error::Usage(why) | Error::Failed(why)) => assert!(why.contains(want), "{why}"),
                other => panic!("{args:?}: {other:?}"),
            }
        }
    }
}
