//! `edged describe pod`: one pod with its containers, conditions, volumes and events, for a person.

use std::fmt::Write as _;
use std::io::Write;

use lexopt::prelude::*;
use serde_json::Value;

use super::Error;
use super::events;
use super::list::Api;
use super::remote::{Common, Pod, Target, text};
use crate::io::client;
use crate::io::log::printable;

/// Parses the flags, requests the pod and its events and prints them.
pub(super) fn run(mut args: lexopt::Parser, out: &mut dyn Write, api: Api) -> Result<u8, Error> {
    let (mut target, mut kind) = (Target::default(), None);
    while let Some(arg) = args.next()? {
        if let Some(option) = Common::of(&arg, api) {
            target.set(option, args.value()?.string()?);
            continue;
        }
        match arg {
            Value(word) if kind.is_none() => kind = Some(word.string()?),
            Value(name) if target.pod.is_none() => target.pod = Some(name.string()?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    match kind.as_deref() {
        Some("pod" | "pods" | "po") => {}
        // `pod/NAME` as one word.
        Some(word) if word.starts_with("pod/") && target.pod.is_none() => {
            target.pod = Some(word["pod/".len()..].to_owned());
        }
        _ => return Err(Error::Usage("expected describe pod NAME".to_owned())),
    }
    let agent = target.agent(api)?;
    let pod = target.find(&agent, api)?;
    let body = agent.get("/events")?;
    let events: Value = serde_json::from_slice(&body).map_err(|error| {
        Error::Failed(format!("got an answer that is not a list of events: {error}"))
    })?;
    let mut page = Page::default();
    page.pod(&pod);
    out.write_all(page.0.as_bytes())?;
    events::table_of(&pod, &events, client::wall_s(), out)?;
    Ok(0)
}

/// Lines of keys and values.
#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, depth: usize, key: &str, value: &str) {
        let indent = "  ".repeat(depth);
        let width = WIDTH.saturating_sub(indent.len());
        let key = format!("{}:", printable(key));
        let gap = if key.chars().count() < width { "" } else { " " };
        let line = format!("{indent}{key:width$}{gap}{}", printable(value));
        writeln!(self.0, "{}", line.trim_end()).expect("memory takes what is written");
    }

    /// If there is a value.
    fn some(&mut self, depth: usize, key: &str, value: &Value) {
        match value {
            Value::Null => {}
            Value::String(text) if text.is_empty() => {}
            Value::String(text) => self.line(depth, key, text),
            other => self.line(depth, key, &other.to_string()),
        }
    }

    /// A map, a line for each entry.
    fn map(&mut self, depth: usize, key: &str, map: &Value) {
        let entries = map.as_object().into_iter().flatten();
        let mut key = key;
        let mut is_empty = true;
        for (name, value) in entries {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let line = format!("{name}={value}");
            if is_empty {
                self.line(depth, key, &line);
            } else {
                let width = WIDTH;
                let line = printable(&line);
                writeln!(self.0, "{:width$}{line}", "").expect("memory takes what is written");
            }
            (is_empty, key) = (false, "");
        }
        if is_empty {
            self.line(depth, key, "<none>");
        }
    }

    fn pod(&mut self, pod: &Pod) {
        let Pod(value) = pod;
        let (metadata, spec, status) = (&value["metadata"], &value["spec"], &value["status"]);
        self.line(0, "Name", pod.name());
        self.line(0, "Namespace", pod.namespace());
        self.some(0, "UID", &metadata["uid"]);
        self.some(0, "Priority", &spec["priority"]);
        self.some(0, "Service Account", &spec["serviceAccountName"]);
        self.some(0, "Node", &spec["nodeName"]);
        self.some(0, "Start Time", &status["startTime"]);
        self.map(0, "Labels", &metadata["labels"]);
        self.map(0, "Annotations", &metadata["annotations"]);
        let is_leaving = !metadata["deletionTimestamp"].is_null();
        self.line(0, "Status", if is_leaving { "Terminating" } else { pod.phase() });
        if is_leaving {
            self.some(0, "Deleted", &metadata["deletionTimestamp"]);
            self.some(0, "Grace Period", &metadata["deletionGracePeriodSeconds"]);
        }
        self.some(0, "Reason", &status["reason"]);
        self.some(0, "Message", &status["message"]);
        self.some(0, "IP", &status["podIP"]);
        for (title, list, statuses) in [
            ("Init Containers", "initContainers", "initContainerStatuses"),
            ("Containers", "containers", "containerStatuses"),
            ("Ephemeral Containers", "ephemeralContainers", "ephemeralContainerStatuses"),
        ] {
            let containers = pod.containers(list);
            if containers.is_empty() {
                continue;
            }
            self.line(0, title, "");
            let known = status[statuses].as_array().map_or(&[][..], Vec::as_slice);
            for container in containers {
                let status = known.iter().find(|it| it["name"] == container["name"]);
                self.container(container, status.unwrap_or(&Value::Null));
            }
        }
        self.conditions(&status["conditions"]);
        self.volumes(&spec["volumes"]);
        self.some(0, "QoS Class", &status["qosClass"]);
    }

    fn container(&mut self, container: &Value, status: &Value) {
        self.line(1, text(&container["name"]), "");
        self.some(2, "Container ID", &status["containerID"]);
        self.some(2, "Image", &container["image"]);
        self.some(2, "Image ID", &status["imageID"]);
        for port in container["ports"].as_array().into_iter().flatten() {
            let protocol = port["protocol"].as_str().unwrap_or("TCP");
            self.line(2, "Port", &format!("{}/{protocol}", port["containerPort"]));
        }
        for (key, list) in [("Command", &container["command"]), ("Args", &container["args"])] {
            let words = list.as_array().into_iter().flatten().map(text);
            let words: Vec<&str> = words.collect();
            if !words.is_empty() {
                self.line(2, key, &words.join(" "));
            }
        }
        self.state("State", &status["state"]);
        if status["lastState"].as_object().is_some_and(|it| !it.is_empty()) {
            self.state("Last State", &status["lastState"]);
        }
        self.some(2, "Ready", &status["ready"]);
        self.some(2, "Restart Count", &status["restartCount"]);
        for (key, amounts) in [("Limits", "limits"), ("Requests", "requests")] {
            let amounts = &container["resources"][amounts];
            if amounts.as_object().is_some_and(|it| !it.is_empty()) {
                self.map(2, key, amounts);
            }
        }
        let mounts = container["volumeMounts"].as_array().into_iter().flatten();
        for mount in mounts {
            let mode = if mount["readOnly"] == Value::Bool(true) { "ro" } else { "rw" };
            let (path, name) = (text(&mount["mountPath"]), text(&mount["name"]));
            self.line(2, "Mount", &format!("{path} from {name} ({mode})"));
        }
    }

    fn state(&mut self, key: &str, state: &Value) {
        let Some((name, about)) = state.as_object().and_then(|map| map.iter().next()) else {
            return self.line(2, key, "<unknown>");
        };
        let mut word = name.clone();
        word[..1].make_ascii_uppercase();
        self.line(2, key, &word);
        for (key, field) in [
            ("Reason", "reason"),
            ("Message", "message"),
            ("Exit Code", "exitCode"),
            ("Signal", "signal"),
            ("Started", "startedAt"),
            ("Finished", "finishedAt"),
        ] {
            self.some(3, key, &about[field]);
        }
    }

    fn conditions(&mut self, conditions: &Value) {
        let conditions = conditions.as_array().map_or(&[][..], Vec::as_slice);
        if conditions.is_empty() {
            return;
        }
        self.line(0, "Conditions", "");
        for condition in conditions {
            let (is, reason) = (text(&condition["status"]), text(&condition["reason"]));
            let message = text(&condition["message"]);
            let why = [reason, message].into_iter().filter(|it| !it.is_empty());
            let why = why.collect::<Vec<_>>().join(", ");
            let why = if why.is_empty() { why } else { format!(" ({why})") };
            self.line(1, text(&condition["type"]), &format!("{is}{why}"));
        }
    }

    fn volumes(&mut self, volumes: &Value) {
        let volumes = volumes.as_array().map_or(&[][..], Vec::as_slice);
        if volumes.is_empty() {
            return;
        }
        self.line(0, "Volumes", "");
        for volume in volumes {
            let source = volume.as_object().into_iter().flatten().find(|(key, _)| *key != "name");
            let kind = source.map_or("emptyDir", |(kind, _)| kind);
            let names = ["name", "secretName", "claimName", "path"];
            let of = source.and_then(|(_, it)| names.iter().find_map(|key| it[*key].as_str()));
            let about = of.map_or_else(|| kind.to_owned(), |of| format!("{kind} {of}"));
            self.line(1, text(&volume["name"]), &about);
        }
    }
}

/// Columns before the values.
const WIDTH: usize = 20;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_pod_is_described_by_what_is_known_of_it() {
        let pod = Pod(json!({
            "metadata": {"name": "web", "namespace": "shop", "labels": {"a": "1", "b": "2"}},
            "spec": {
                "nodeName": "gw",
                "containers": [{
                    "name": "main", "image": "i:1", "command": ["sh", "-c"],
                    "ports": [{"containerPort": 80}],
                    "resources": {"limits": {"cpu": "1"}},
                    "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true}],
                }, {"name": "new", "image": "i:2"}],
                "volumes": [{"name": "v", "secret": {"secretName": "s"}}, {"name": "e"}],
            },
            "status": {
                "phase": "Running",
                "conditions": [{"type": "PodReadyToStartContainers", "status": "False",
                                "reason": "R", "message": "m\u{1b}[1m"}],
                "containerStatuses": [{
                    "name": "main", "ready": false, "restartCount": 2,
                    "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                    "lastState": {"terminated": {"exitCode": 3}},
                }],
            },
        }));
        let mut page = Page::default();
        page.pod(&pod);
        assert_eq!(
            page.0,
            "Name:               web\n\
             Namespace:          shop\n\
             Node:               gw\n\
             Labels:             a=1\n\
             \x20                   b=2\n\
             Annotations:        <none>\n\
             Status:             Running\n\
             Containers:\n\
             \x20 main:\n\
             \x20   Image:          i:1\n\
             \x20   Port:           80/TCP\n\
             \x20   Command:        sh -c\n\
             \x20   State:          Waiting\n\
             \x20     Reason:       CrashLoopBackOff\n\
             \x20   Last State:     Terminated\n\
             \x20     Exit Code:    3\n\
             \x20   Ready:          false\n\
             \x20   Restart Count:  2\n\
             \x20   Limits:         cpu=1\n\
             \x20   Mount:          /v from v (ro)\n\
             \x20 new:\n\
             \x20   Image:          i:2\n\
             \x20   State:          <unknown>\n\
             Conditions:\n\
             \x20 PodReadyToStartContainers: False (R, m\\u{1b}[1m)\n\
             Volumes:\n\
             \x20 v:                secret s\n\
             \x20 e:                emptyDir\n"
        );
    }

    #[test]
    fn the_events_are_those_of_the_pod() {
        let event = |name: &str, reason: &str| {
            json!({"involvedObject": {"namespace": "shop", "name": name}, "type": "Normal",
                   "reason": reason, "message": "m", "lastTimestamp": "2025-11-20T19:29:11Z"})
        };
        let pod = Pod(json!({"metadata": {"name": "web", "namespace": "shop"}}));
        let table = |list: &Value| {
            let mut out = Vec::new();
            let now = Some(1_763_666_956);
            events::table_of(&pod, list, now, &mut out).expect("memory takes what is written");
            String::from_utf8(out).expect("text")
        };
        let list = json!({"items": [event("other", "Killing"), event("web", "Pulled")]});
        let expected = "Events:\n  Age   Type     Reason   Message\n  5s    Normal   Pulled   m\n";
        assert_eq!(table(&list), expected);
        assert_eq!(table(&json!({"items": null})), "Events:             <none>\n");
    }
}
