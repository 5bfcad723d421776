//! `edged runtime ps`: the sandboxes and containers of a runtime, as a person looks for them. It
//! speaks CRI: containerd and CRI-O answer as well.

use std::io::Write;

use lexopt::prelude::*;
use serde_json::json;

use super::images::{connect, short, unexpected};
use super::{Error, age, table};
use crate::config;
use crate::io::clock;
use crate::io::runtime::blocking::Client;
use crate::limits::CHECK_RUNTIME_MS;
use crate::model::cri::{
    Container, ContainerState, ContainerStatus, PodRef, Reply, Request, Sandbox, SandboxId,
};
use crate::model::map::Map;

/// Parses the arguments, asks the runtime, and prints.
pub(super) fn run(mut args: lexopt::Parser, out: &mut dyn Write) -> Result<u8, Error> {
    let (mut flags, mut all, mut json) = (Vec::new(), false, false);
    while let Some(arg) = args.next()? {
        match arg {
            Short('a') | Long("all") => all = true,
            Short('o') | Long("output") => match &*args.value()?.string()? {
                "json" => json = true,
                other => {
                    let why = format!("-o: got {other:?}, expected json");
                    return Err(Error::Usage(why));
                }
            },
            Long("config") => flags.extend(["--config".into(), args.value()?]),
            Long("runtime") => flags.extend(["--runtime".into(), args.value()?]),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let endpoint = config::load(&flags, Some("localhost".to_owned()))?.config.runtime;
    let rows = rows(&mut connect(&endpoint)?, all)?;
    let now = clock::now().wall.map(|wall| wall.0 / 1_000);
    if json {
        let list: Vec<_> = rows.iter().map(Row::json).collect();
        let text = serde_json::to_string_pretty(&list).expect("it is plain data");
        writeln!(out, "{text}")?;
    } else {
        print(&rows, now, out)?;
    }
    Ok(0)
}

/// A sandbox or a container.
#[derive(Debug)]
struct Row {
    id: Box<str>,
    pod: PodRef,
    /// `None`: a sandbox.
    container: Option<Box<str>>,
    attempt: u32,
    state: &'static str,
    /// Exit code and reason.
    exit: Option<(i32, Box<str>)>,
    /// Nanoseconds since 1970.
    created_at: i64,
    image: Box<str>,
}

fn rows(runtime: &mut Client, all: bool) -> Result<Vec<Row>, Error> {
    let sandboxes = match runtime.call(&Request::ListPodSandbox, CHECK_RUNTIME_MS)? {
        Reply::Sandboxes(sandboxes) => sandboxes,
        other => return Err(unexpected(&other)),
    };
    let containers = match runtime.call(&Request::ListContainers, CHECK_RUNTIME_MS)? {
        Reply::Containers(containers) => containers,
        other => return Err(unexpected(&other)),
    };
    let pods: Map<&SandboxId, &Sandbox> =
        sandboxes.iter().map(|sandbox| (&sandbox.id, &**sandbox)).collect();
    let mut rows: Vec<Row> =
        sandboxes.iter().filter(|sandbox| all || sandbox.ready).map(|it| of_sandbox(it)).collect();
    for container in &containers {
        if !all && container.state != ContainerState::Running {
            continue;
        }
        let status = match container.state {
            ContainerState::Exited => {
                let request = Request::ContainerStatus(container.id.clone());
                match runtime.call(&request, CHECK_RUNTIME_MS) {
                    Ok(Reply::ContainerStatus(status)) => Some(status),
                    Ok(other) => return Err(unexpected(&other)),
                    // It may be gone by now.
                    Err(_) => None,
                }
            }
            ContainerState::Created | ContainerState::Running | ContainerState::Unknown => None,
        };
        let sandbox = pods.get(&container.sandbox).copied();
        rows.push(of_container(container, sandbox, status.as_deref()));
    }
    // A sandbox is before its containers; the newest is the last.
    rows.sort_by(|a, b| {
        let name = (&a.pod.namespace, &a.pod.name).cmp(&(&b.pod.namespace, &b.pod.name));
        name.then_with(|| {
            let key = |row: &Row| (row.pod.clone(), row.container.is_some(), row.created_at);
            key(a).cmp(&key(b))
        })
    });
    Ok(rows)
}

fn of_sandbox(sandbox: &Sandbox) -> Row {
    Row {
        id: sandbox.id.0.clone(),
        pod: sandbox.pod.clone().unwrap_or_default(),
        container: None,
        attempt: sandbox.attempt,
        state: if sandbox.ready { "Ready" } else { "NotReady" },
        exit: None,
        created_at: sandbox.created_at,
        image: "".into(),
    }
}

fn of_container(
    container: &Container,
    sandbox: Option<&Sandbox>,
    status: Option<&ContainerStatus>,
) -> Row {
    let pod = container.pod.clone().or_else(|| sandbox?.pod.clone());
    Row {
        id: container.id.0.clone(),
        pod: pod.unwrap_or_default(),
        container: Some(container.name.clone()),
        attempt: container.attempt,
        state: match container.state {
            ContainerState::Created => "Created",
            ContainerState::Running => "Running",
            ContainerState::Exited => "Exited",
            ContainerState::Unknown => "Unknown",
        },
        exit: status.map(|status| (status.exit_code, status.reason.clone())),
        created_at: container.created_at,
        image: container.image.clone(),
    }
}

impl Row {
    fn state(&self) -> String {
        match &self.exit {
            Some((code, reason)) => format!("{} ({code} {reason})", self.state),
            None => self.state.to_owned(),
        }
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "id": self.id, "kind": if self.container.is_some() { "container" } else { "sandbox" },
            "namespace": self.pod.namespace, "pod": self.pod.name, "podUID": self.pod.uid,
            "name": self.container, "attempt": self.attempt, "state": self.state,
            "exitCode": self.exit.as_ref().map(|it| it.0),
            "reason": self.exit.as_ref().map(|it| &it.1),
            "createdAt": self.created_at, "image": self.image,
        })
    }
}

/// `now`: seconds since 1970; `None`: the clock is not set.
fn print(rows: &[Row], now: Option<i64>, out: &mut dyn Write) -> std::io::Result<()> {
    let head = ["ID", "NAMESPACE", "POD", "CONTAINER", "ATTEMPT", "STATE", "AGE", "IMAGE"];
    let some = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    let mut table = vec![head.map(str::to_owned)];
    for row in rows {
        let age = now.map(|now| age::short(now - row.created_at / 1_000_000_000));
        table.push([
            short(&row.id, 12),
            some(&row.pod.namespace),
            some(&row.pod.name),
            row.container.as_deref().map_or("(sandbox)".to_owned(), some),
            row.attempt.to_string(),
            row.state(),
            age.unwrap_or_else(|| "<unknown>".to_owned()),
            some(&row.image),
        ]);
    }
    let mut columns = table::Columns::default();
    columns.print_all(&table, 0, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_sees_pods_with_their_containers() {
        let pod = PodRef { uid: "u".into(), namespace: "shop".into(), name: "web".into() };
        let row = |id: &str, container: Option<&str>, state| Row {
            id: id.repeat(64).into(),
            pod: if id == "c" { PodRef::default() } else { pod.clone() },
            container: container.map(Into::into),
            attempt: 1,
            state,
            exit: (state == "Exited").then(|| (137, "OOMKilled".into())),
            created_at: 1_000_000_000_000_000_000,
            image: if container.is_some() { "a:1" } else { "" }.into(),
        };
        let rows = [
            row("a", None, "Ready"),
            row("b", Some("main"), "Exited"),
            row("c", Some(""), "Running"),
        ];
        let mut text = Vec::new();
        print(&rows, Some(1_000_000_065), &mut text).expect("memory takes what is written");
        let text = String::from_utf8(text).expect("text");
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let [_, sandbox, exited, foreign] = &lines[..] else { panic!("{text}") };
        assert_eq!(
            sandbox[..],
            ["aaaaaaaaaaaa", "shop", "web", "(sandbox)", "1", "Ready", "65s", "-"]
        );
        let expected = [
            "bbbbbbbbbbbb",
            "shop",
            "web",
            "main",
            "1",
            "Exited",
            "(137",
            "OOMKilled)",
            "65s",
            "a:1",
        ];
        assert_eq!(exited[..], expected);
        assert_eq!(foreign[..], ["cccccccccccc", "-", "-", "-", "1", "Running", "65s", "a:1"]);
        assert_eq!(rows[1].json()["exitCode"], 137);
        assert_eq!(rows[0].json()["kind"], "sandbox");
    }
}
