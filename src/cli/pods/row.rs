//! One pod as a row: kubectl's interpretation of a pod's status (`kubectl get pods`).

use serde_json::Value;

use crate::cli::age;

/// The cells that do not depend on the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub namespace: String,
    pub name: String,
    /// Not shown.
    pub uid: String,
    /// `1/2`
    pub ready: String,
    pub status: String,
    pub restarts: u64,
    /// Of the newest restart, seconds since 1970.
    pub restarted_at: Option<i64>,
    /// Seconds since 1970.
    pub created_at: Option<i64>,
    pub ip: String,
    pub node: String,
    /// Why the pod is not in its expected state.
    pub message: String,
}

impl Row {
    /// `3 (12s ago)`; `now` in seconds since 1970, unknown while the clock is not set.
    pub(super) fn restarts(&self, now: Option<i64>) -> String {
        match (self.restarts, self.restarted_at, now) {
            (0, ..) | (_, None, _) | (.., None) => self.restarts.to_string(),
            (count, Some(at), Some(now)) => format!("{count} ({} ago)", age::short(now - at)),
        }
    }

    /// `5m3s`
    pub(super) fn age(&self, now: Option<i64>) -> String {
        match (self.created_at, now) {
            (Some(at), Some(now)) => age::short(now - at),
            _ => "<unknown>".to_owned(),
        }
    }

    /// Reads a core/v1 `Pod`; a missing value is shown as `<none>` or `<unknown>`.
    pub(super) fn of(pod: &Value) -> Self {
        let (metadata, spec, status) = (&pod["metadata"], &pod["spec"], &pod["status"]);
        let mut tally = Tally::new(spec, status);
        let initializing = tally.init_containers();
        if !initializing || condition(status, "Initialized") {
            tally.containers();
        }
        let terminal = matches!(text(&status["phase"]), "Succeeded" | "Failed");
        let ready = find(status, "Ready");
        let lost = !terminal && ready.is_some_and(|ready| ready["reason"] == "NodeNotReady");
        if lost {
            // The last report of its node is outdated.
            tally.ready = 0;
            "Unknown".clone_into(&mut tally.reason);
        }
        if !metadata["deletionTimestamp"].is_null() && !terminal {
            "Terminating".clone_into(&mut tally.reason);
        }
        // Static pods have no creation time: their age counts from when the agent first saw them.
        let seen = &metadata["annotations"]["kubernetes.io/config.seen"];
        let created = [&metadata["creationTimestamp"], &status["startTime"], seen];
        Self {
            namespace: text(&metadata["namespace"]).to_owned(),
            name: text(&metadata["name"]).to_owned(),
            uid: text(&metadata["uid"]).to_owned(),
            ready: format!("{}/{}", tally.ready, tally.total),
            status: tally.reason,
            restarts: tally.restarts,
            restarted_at: tally.restarted_at,
            created_at: created.into_iter().find_map(|at| age::seconds(text(at))),
            ip: or_none(text(&status["podIP"])),
            node: or_none(text(&spec["nodeName"])),
            message: if lost { NODE_IS_LOST.to_owned() } else { or_none(&message(status)) },
        }
    }
}

/// The pod's own message, else that of the first container with one: why it waits,
/// and how it ended before.
fn message(status: &Value) -> String {
    let own = text(&status["message"]);
    if !own.is_empty() {
        return own.to_owned();
    }
    let lists = ["initContainerStatuses", "containerStatuses"];
    let mut containers = lists.iter().flat_map(|key| list(&status[*key]));
    let of_container = containers.find_map(|container| {
        let state = &container["state"];
        let ended = [&state["terminated"], &container["lastState"]["terminated"]];
        let ended = ended.into_iter().find(|ended| ended.is_object());
        let ended = ended.filter(|ended| ended["exitCode"] != 0).map(|ended| {
            let message = text(&ended["message"]);
            let colon = if message.is_empty() { "" } else { ": " };
            format!("exit code {}{colon}{message}", ended["exitCode"])
        });
        let waits = text(&state["waiting"]["message"]);
        let waits = Some(waits.to_owned()).filter(|waits| !waits.is_empty());
        let parts: Vec<String> = ended.into_iter().chain(waits).collect();
        let runs = container["ready"] == true;
        (!parts.is_empty() && !runs)
            .then(|| format!("{}: {}", text(&container["name"]), parts.join("; ")))
    });
    of_container.unwrap_or_default()
}

struct Tally<'a> {
    spec: &'a Value,
    status: &'a Value,
    reason: String,
    ready: usize,
    total: usize,
    restarts: u64,
    restarted_at: Option<i64>,
    /// The restarts of sidecars.
    sidecars: (u64, Option<i64>),
}

impl<'a> Tally<'a> {
    fn new(spec: &'a Value, status: &'a Value) -> Self {
        let reason = [text(&status["reason"]), text(&status["phase"])];
        let reason = reason.into_iter().find(|reason| !reason.is_empty()).unwrap_or("Unknown");
        let sidecars = list(&spec["initContainers"]).iter().filter(|c| restarts_always(c)).count();
        Self {
            spec,
            status,
            reason: reason.to_owned(),
            ready: 0,
            total: list(&spec["containers"]).len() + sidecars,
            restarts: 0,
            restarted_at: None,
            sidecars: (0, None),
        }
    }

    /// Counts up to the first that is not done; returns whether there is one.
    fn init_containers(&mut self) -> bool {
        let specs = list(&self.spec["initContainers"]);
        for (index, status) in list(&self.status["initContainerStatuses"]).iter().enumerate() {
            let name = &status["name"];
            let sidecar = specs.iter().any(|spec| spec["name"] == *name && restarts_always(spec));
            self.restarts += number(&status["restartCount"]);
            self.restarted_at = self.restarted_at.max(last_end(status));
            if sidecar {
                self.sidecars.0 += number(&status["restartCount"]);
                self.sidecars.1 = self.sidecars.1.max(last_end(status));
            }
            let (waiting, terminated) =
                (&status["state"]["waiting"], &status["state"]["terminated"]);
            if terminated.is_object() && terminated["exitCode"] == 0 {
                continue;
            }
            if sidecar && status["started"] == true {
                self.ready += usize::from(status["ready"] == true);
                continue;
            }
            let why = text(&waiting["reason"]);
            self.reason = if terminated.is_object() {
                format!("Init:{}", ended(terminated))
            } else if !why.is_empty() && why != "PodInitializing" {
                format!("Init:{why}")
            } else {
                format!("Init:{index}/{}", specs.len())
            };
            return true;
        }
        false
    }

    fn containers(&mut self) {
        (self.restarts, self.restarted_at) = self.sidecars;
        let mut running = false;
        // The reason of the first container wins.
        for status in list(&self.status["containerStatuses"]).iter().rev() {
            self.restarts += number(&status["restartCount"]);
            self.restarted_at = self.restarted_at.max(last_end(status));
            let (waiting, terminated) =
                (&status["state"]["waiting"], &status["state"]["terminated"]);
            let why = text(&waiting["reason"]);
            if !why.is_empty() {
                why.clone_into(&mut self.reason);
            } else if terminated.is_object() {
                self.reason = ended(terminated);
            } else if status["ready"] == true && status["state"]["running"].is_object() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" && running {
            let ready = condition(self.status, "Ready");
            (if ready { "Running" } else { "NotReady" }).clone_into(&mut self.reason);
        }
    }
}

/// `Error`, or how the process ended if the runtime gave no reason.
fn ended(terminated: &Value) -> String {
    match (text(&terminated["reason"]), number(&terminated["signal"])) {
        ("", 0) => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn last_end(status: &Value) -> Option<i64> {
    age::seconds(text(&status["lastState"]["terminated"]["finishedAt"]))
}

fn restarts_always(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

fn condition(status: &Value, kind: &str) -> bool {
    find(status, kind).is_some_and(|is| is["status"] == "True")
}

fn find<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    list(&status["conditions"]).iter().find(|is| is["type"] == kind)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn or_none(text: &str) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text.to_owned() }
}

const NODE_IS_LOST: &str = "its node gives no sign of life";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const AT: &str = "2025-11-20T19:29:11Z";

    /// READY, STATUS and RESTARTS 60 s after [`AT`].
    fn columns(pod: &Value) -> (String, String, String) {
        let row = Row::of(pod);
        let restarts = row.restarts(age::seconds(AT).map(|at| at + 60));
        (row.ready, row.status, restarts)
    }

    fn check(pod: &Value, want: (&str, &str, &str)) {
        let (ready, status, restarts) = columns(pod);
        assert_eq!((&*ready, &*status, &*restarts), want, "{pod}");
    }

    fn containers(phase: &str, states: &[Value]) -> Value {
        let specs: Vec<_> = (0..states.len()).map(|n| json!({"name": format!("c{n}")})).collect();
        json!({
            "metadata": {"name": "p"},
            "spec": {"containers": specs},
            "status": {"phase": phase, "containerStatuses": states},
        })
    }

    #[test]
    fn main_containers_tell_the_status() {
        let running = json!({"ready": true, "state": {"running": {}}});
        let unready = json!({"ready": false, "state": {"running": {}}});
        let waiting = |why: &str| json!({"state": {"waiting": {"reason": why}}});
        let ended = |what: Value| json!({"state": {"terminated": what}});
        for (phase, states, ready, status) in [
            ("Running", vec![running.clone(), running.clone()], "2/2", "Running"),
            ("Running", vec![running.clone(), unready], "1/2", "Running"),
            ("Pending", vec![waiting("ContainerCreating")], "0/1", "ContainerCreating"),
            (
                "Pending",
                vec![waiting("ImagePullBackOff"), running.clone()],
                "1/2",
                "ImagePullBackOff",
            ),
            ("Running", vec![waiting("A"), waiting("B")], "0/2", "A"),
            ("Succeeded", vec![ended(json!({"reason": "Completed"}))], "0/1", "Completed"),
            (
                "Failed",
                vec![ended(json!({"reason": "OOMKilled", "exitCode": 137}))],
                "0/1",
                "OOMKilled",
            ),
            ("Failed", vec![ended(json!({"exitCode": 3}))], "0/1", "ExitCode:3"),
            ("Failed", vec![ended(json!({"exitCode": 137, "signal": 9}))], "0/1", "Signal:9"),
            ("Pending", vec![json!({"state": {}})], "0/1", "Pending"),
            (
                "Running",
                vec![ended(json!({"reason": "Completed"})), running.clone()],
                "1/2",
                "NotReady",
            ),
        ] {
            check(&containers(phase, &states), (ready, status, "0"));
        }
        let mut ready = containers("Running", &[ended(json!({"reason": "Completed"})), running]);
        ready["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        check(&ready, ("1/2", "Running", "0"));
    }

    #[test]
    fn restarts_tell_when_the_last_was() {
        let state = json!({"restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                           "lastState": {"terminated": {"finishedAt": AT}}});
        let pod = containers("Running", &[state]);
        check(&pod, ("0/1", "CrashLoopBackOff", "3 (60s ago)"));
        assert_eq!(Row::of(&pod).restarts(None), "3");
    }

    #[test]
    fn init_containers_go_first() {
        let pod = |states: Value, sidecar: bool| {
            let policy = if sidecar { json!("Always") } else { json!(null) };
            let waiting_for_init = json!({"waiting": {"reason": "PodInitializing"}});
            json!({
                "spec": {"initContainers": [{"name": "a", "restartPolicy": policy}, {"name": "b"}],
                         "containers": [{"name": "c"}]},
                "status": {"phase": "Pending", "initContainerStatuses": states,
                           "containerStatuses": [{"name": "c", "state": waiting_for_init}]},
            })
        };
        let done =
            json!({"name": "a", "state": {"terminated": {"exitCode": 0}}, "restartCount": 1});
        let b = |state: Value| json!({"name": "b", "state": state});
        let waiting = |why: &str| json!({"waiting": {"reason": why}});
        for (states, status) in [
            (
                json!([{"name": "a", "state": {"running": {}}}, b(waiting("PodInitializing"))]),
                "Init:0/2",
            ),
            (json!([done, b(json!({"running": {}}))]), "Init:1/2"),
            (json!([done, b(waiting("CrashLoopBackOff"))]), "Init:CrashLoopBackOff"),
            (
                json!([done, b(json!({"terminated": {"exitCode": 1, "reason": "Error"}}))]),
                "Init:Error",
            ),
            (json!([done, b(json!({"terminated": {"exitCode": 7}}))]), "Init:ExitCode:7"),
            (
                json!([done, b(json!({"terminated": {"exitCode": 7, "signal": 9}}))]),
                "Init:Signal:9",
            ),
        ] {
            let restarts = if states[0]["restartCount"] == 1 { "1" } else { "0" };
            check(&pod(states, false), ("0/1", status, restarts));
        }
        let over = json!([done, b(json!({"terminated": {"exitCode": 0}}))]);
        check(&pod(over, false), ("0/1", "PodInitializing", "0"));
        let sidecar = json!([
            {"name": "a", "started": true, "ready": true, "restartCount": 2,
             "state": {"running": {}}},
            b(json!({"running": {}})),
        ]);
        check(&pod(sidecar, true), ("1/2", "Init:1/2", "2"));
    }

    #[test]
    fn the_pods_own_words_stand_where_there_are_no_others() {
        let pod = |metadata: Value, phase: &str, reason: &str| {
            json!({"metadata": metadata, "spec": {"containers": [{"name": "c"}]},
                   "status": {"phase": phase, "reason": reason}})
        };
        let leaving = json!({"deletionTimestamp": AT});
        check(&pod(json!({}), "Failed", "Evicted"), ("0/1", "Evicted", "0"));
        check(&pod(leaving.clone(), "Running", ""), ("0/1", "Terminating", "0"));
        check(&pod(leaving, "Succeeded", ""), ("0/1", "Succeeded", "0"));
        check(&json!(null), ("0/0", "Unknown", "0"));
    }

    #[test]
    fn of_a_pod_whose_node_is_lost_nothing_is_known() {
        let running = json!({"ready": true, "state": {"running": {}}});
        let of = |phase: &str, reason: &str| {
            let mut pod = containers(phase, std::slice::from_ref(&running));
            pod["status"]["conditions"] =
                json!([{"type": "Ready", "status": "False", "reason": reason}]);
            pod
        };
        check(&of("Running", "NodeNotReady"), ("0/1", "Unknown", "0"));
        assert_eq!(Row::of(&of("Running", "NodeNotReady")).message, NODE_IS_LOST);
        check(&of("Running", "ContainersNotReady"), ("1/1", "Running", "0"));
        check(&of("Succeeded", "NodeNotReady"), ("1/1", "Succeeded", "0"));
    }

    #[test]
    fn the_message_says_why() {
        let of = |status: Value| Row::of(&json!({"status": status})).message;
        assert_eq!(of(json!({"message": "it was low on memory"})), "it was low on memory");
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}});
        let ended = json!({"terminated": {"exitCode": 3, "message": "no route"}});
        let broken = json!({"name": "c", "state": waiting, "lastState": ended});
        assert_eq!(
            of(json!({"containerStatuses": [{"name": "fine", "ready": true}, broken]})),
            "c: exit code 3: no route; back-off 10s"
        );
        let done = json!({"name": "i", "state": {"terminated": {"exitCode": 0}}});
        assert_eq!(of(json!({"initContainerStatuses": [done]})), "<none>");
    }

    #[test]
    fn age_is_that_of_the_first_sight() {
        let now = age::seconds(AT).map(|at| at + 90);
        let row = |metadata: Value, status: Value| {
            Row::of(&json!({"metadata": metadata, "status": status})).age(now)
        };
        assert_eq!(row(json!({"creationTimestamp": AT}), json!({})), "90s");
        assert_eq!(row(json!({}), json!({"startTime": AT})), "90s");
        let seen = json!({"annotations": {"kubernetes.io/config.seen": AT}});
        assert_eq!(row(seen, json!({})), "90s");
        assert_eq!(row(json!({}), json!({})), "<unknown>");
    }
}
