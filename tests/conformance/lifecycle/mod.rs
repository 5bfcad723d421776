//! Containers Lifecycle: the order in which the containers of a pod start, restart and end.
//!
//! Each container is a script that writes its actions to a file of the node that all containers of
//! the pod share, so that the order of its lines is the order of the actions.

mod regular;
mod sidecars;
mod termination;
mod updates;

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::Row;
use crate::case::{Case, LOOK, PATIENCE, quoted};
use crate::support::agent::Pod;
use crate::support::wait::until_in;

/// The title of all these tests.
pub(crate) const AREA: &str = "Containers Lifecycle";

/// All cases.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = regular::rows();
    rows.extend(sidecars::rows());
    rows.extend(termination::rows());
    rows.extend(updates::rows());
    rows
}

/// A test by its name, or by the rest of its name after a common title, and its case.
type Named = (&'static str, fn(&Case<'_>));

/// The three policies of a pod.
pub(crate) const POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

/// The kind of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Init,
    Sidecar,
    Main,
}

/// A container that records its actions.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    place: Place,
    name: String,
    image: &'static str,
    start_s: u32,
    run_s: u32,
    end_s: u32,
    exit: u8,
    fields: String,
    post_start: String,
    pre_stop: String,
}

/// An init container; runs for a second by default.
pub(crate) fn init(name: &str) -> Container {
    Container::new(Place::Init, name)
}

/// A restartable init container; runs until it is stopped by default.
pub(crate) fn sidecar(name: &str) -> Container {
    Container::new(Place::Sidecar, name).runs(FOR_EVER)
}

/// A main container; runs for a second by default.
pub(crate) fn main(name: &str) -> Container {
    Container::new(Place::Main, name)
}

/// Longer than any case.
pub(crate) const FOR_EVER: u32 = 10_000;

impl Container {
    fn new(place: Place, name: &str) -> Container {
        Container {
            place,
            name: name.to_owned(),
            image: IMAGE,
            start_s: 0,
            run_s: 1,
            end_s: 0,
            exit: 0,
            fields: String::new(),
            post_start: String::new(),
            pre_stop: String::new(),
        }
    }

    /// Seconds from its first line until it counts as started.
    pub(crate) fn starts_in(self, start_s: u32) -> Container {
        Container { start_s, ..self }
    }

    /// Seconds that it runs, once started.
    pub(crate) fn runs(self, run_s: u32) -> Container {
        Container { run_s, ..self }
    }

    /// Seconds that it takes to end once it is stopped.
    pub(crate) fn ends_in(self, end_s: u32) -> Container {
        Container { end_s, ..self }
    }

    /// Its exit code.
    pub(crate) fn exits(self, exit: u8) -> Container {
        Container { exit, ..self }
    }

    /// Another image.
    pub(crate) fn image(self, image: &'static str) -> Container {
        Container { image, ..self }
    }

    /// Further fields, as YAML of a container.
    pub(crate) fn with(mut self, fields: &str) -> Container {
        self.fields += fields;
        self
    }

    /// The pod does not consider it started before its script does.
    pub(crate) fn gated(self) -> Container {
        let gate = "until [ -f /tmp/started ]; do sleep 0.1; done";
        let post_start = format!("exec: {{command: [sh, -c, {}]}}", quoted(gate));
        Container { post_start, ..self }
    }

    /// A hook after its start that writes lines as `PostStart-NAME`.
    pub(crate) fn post_start(self, run_s: u32) -> Container {
        let script = hook("PostStart", &self.name, &format!("sleep {run_s}"), 0);
        let post_start = format!("exec: {{command: [sh, -c, {}]}}", quoted(&script));
        Container { post_start, ..self }
    }

    /// A hook before its end that runs this script and writes lines as `PreStop-NAME`.
    pub(crate) fn pre_stop(self, script: &str, exit: u8) -> Container {
        let script = hook("PreStop", &self.name, script, exit);
        let pre_stop = format!("exec: {{command: [sh, -c, {}]}}", quoted(&script));
        Container { pre_stop, ..self }
    }

    /// A probe of this kind that writes lines as `PREFIX-NAME` and has this exit code.
    pub(crate) fn probed(self, kind: &str, prefix: &str, exit: u8, rest: &str) -> Container {
        let script = hook(prefix, &self.name, "true", exit);
        let probe =
            format!("    {kind}:\n      exec: {{command: [sh, -c, {}]}}\n{rest}", quoted(&script));
        self.with(&probe)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn yaml(&self) -> String {
        let script = format!(
            "{say} trap 'sleep {end}; say {name} Exiting; exit {exit}' TERM; say {name} Starting; \
             {start} say {name} Started; touch /tmp/started; sleep {run} & wait $!; say {name} \
             Exiting; exit {exit}",
            say = SAY,
            name = self.name,
            start = pause(self.start_s),
            run = self.run_s,
            end = self.end_s,
            exit = self.exit,
        );
        let mut text = format!(
            "  - name: {}\n    image: {}\n    command: [sh, -c, {}]\n    volumeMounts: [{{name: \
             log, mountPath: /log}}]\n",
            self.name,
            self.image,
            quoted(&script)
        );
        if self.place == Place::Sidecar {
            text += "    restartPolicy: Always\n";
        }
        if !self.post_start.is_empty() || !self.pre_stop.is_empty() {
            text += "    lifecycle:\n";
        }
        for (kind, handler) in [("postStart", &self.post_start), ("preStop", &self.pre_stop)] {
            if !handler.is_empty() {
                writeln!(text, "      {kind}: {{{handler}}}").expect("a string grows");
            }
        }
        text + &self.fields
    }
}

const IMAGE: &str = "localhost/edged-demo:1";
/// The same with another version, for updates.
pub(crate) const OTHER_IMAGE: &str = "localhost/edged-demo:2";
/// An image that does not exist.
pub(crate) const BAD_IMAGE: &str = "invalid.invalid/no/such:1";

/// Writes a line: seconds since boot, container, action.
const SAY: &str = "say() { read -r t x < /proc/uptime; echo \"$t $1 $2\" >> /log/log; };";

fn pause(seconds: u32) -> String {
    if seconds == 0 { String::new() } else { format!("sleep {seconds} & wait $!;") }
}

fn hook(prefix: &str, name: &str, script: &str, exit: u8) -> String {
    format!(
        "{SAY} say {prefix}-{name} Starting; say {prefix}-{name} Started; {script}; say \
         {prefix}-{name} Exiting; exit {exit}"
    )
}

/// A pod of such containers.
pub(crate) struct Plan {
    /// Its restart policy.
    pub(crate) policy: &'static str,
    /// Its grace period, in seconds.
    pub(crate) grace_s: u32,
    /// Its containers, in their order.
    pub(crate) containers: Vec<Container>,
}

impl Plan {
    /// With a grace period of half a minute.
    pub(crate) fn new(policy: &'static str, containers: Vec<Container>) -> Plan {
        Plan { policy, grace_s: 30, containers }
    }

    /// The same with another grace period.
    pub(crate) fn grace(self, grace_s: u32) -> Plan {
        Plan { grace_s, ..self }
    }

    /// The same with another image for one container.
    pub(crate) fn updated(&self, name: &str, image: &'static str) -> Plan {
        let change = |container: &Container| {
            let image = if container.name == name { image } else { container.image };
            container.clone().image(image)
        };
        Plan { containers: self.containers.iter().map(change).collect(), ..*self }
    }

    /// Writes it as the case's pod, or replaces it: its uid is that of the case.
    pub(crate) fn put(&self, case: &Case<'_>) {
        self.put_with_uid(case, &format!("{}-fixed", case.name));
    }

    /// Writes it as the case's pod with another uid, so that it is another pod.
    pub(crate) fn put_with_uid(&self, case: &Case<'_>, uid: &str) {
        let folder = folder(case);
        fs::create_dir_all(&folder).expect("a folder of ours");
        let list = |main: bool| {
            let of = self.containers.iter().filter(|one| (one.place == Place::Main) == main);
            of.map(Container::yaml).collect::<String>()
        };
        let inits = list(false);
        let inits = if inits.is_empty() { inits } else { format!("  initContainers:\n{inits}") };
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  uid: {uid}\nspec:\n  \
             hostNetwork: true\n  restartPolicy: {policy}\n  \
             terminationGracePeriodSeconds: {grace}\n  volumes: [{{name: \
             log, hostPath: {{path: {folder}}}}}]\n{inits}  containers:\n{mains}",
            name = case.name,
            policy = self.policy,
            grace = self.grace_s,
            folder = folder.display(),
            mains = list(true),
        );
        case.put("pod", &text);
    }
}

fn folder(case: &Case<'_>) -> PathBuf {
    case.node.dir.join(format!("log-{}", case.name))
}

/// The records of the containers.
#[derive(Clone)]
pub(crate) struct Log(Vec<Line>);

impl std::fmt::Debug for Log {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0
            .iter()
            .try_for_each(|line| writeln!(to, "{} {} {}", line.at_s, line.name, line.event))
    }
}

#[derive(Clone)]
struct Line {
    at_s: f64,
    name: String,
    event: String,
}

impl Log {
    /// All lines so far.
    pub(crate) fn of(case: &Case<'_>) -> Log {
        let text = fs::read_to_string(folder(case).join("log")).unwrap_or_default();
        let line = |line: &str| {
            let mut words = line.split(' ');
            let at_s = words.next()?.parse().ok()?;
            Some(Line { at_s, name: words.next()?.to_owned(), event: words.next()?.to_owned() })
        };
        Log(text.lines().filter_map(line).collect())
    }

    fn find(&self, name: &str, event: &str, from: usize) -> Option<usize> {
        let is = |line: &Line| line.name == name && line.event == event;
        self.0.iter().skip(from).position(is).map(|at| at + from)
    }

    pub(crate) fn starts(&self, name: &str) -> bool {
        self.find(name, "Started", 0).is_some()
    }

    pub(crate) fn exits(&self, name: &str) -> bool {
        self.find(name, "Exiting", 0).is_some()
    }

    /// Whether `first` started before `second` began.
    pub(crate) fn starts_before(&self, first: &str, second: &str) -> bool {
        let started = self.find(first, "Started", 0);
        started.is_some_and(|at| self.find(second, "Starting", at + 1).is_some())
    }

    /// Whether `first` ended before `second` ended.
    pub(crate) fn exits_before(&self, first: &str, second: &str) -> bool {
        let exited = self.find(first, "Exiting", 0);
        exited.is_some_and(|at| self.find(second, "Exiting", at + 1).is_some())
    }

    /// Whether `second` started after `first` and before that ended, and both ended.
    pub(crate) fn together_first(&self, first: &str, second: &str) -> bool {
        let found = || {
            let first_started = self.find(first, "Started", 0)?;
            let second_started = self.find(second, "Started", first_started + 1)?;
            let first_exited = self.find(first, "Exiting", first_started + 1)?;
            self.find(second, "Exiting", second_started + 1)?;
            Some(second_started < first_exited)
        };
        found().unwrap_or(false)
    }

    /// The same, in either order.
    pub(crate) fn together(&self, one: &str, other: &str) -> bool {
        self.together_first(one, other) || self.together_first(other, one)
    }

    /// Whether it began more than once.
    pub(crate) fn restarted(&self, name: &str) -> bool {
        let begun = self.find(name, "Starting", 0);
        begun.is_some_and(|at| self.find(name, "Starting", at + 1).is_some())
    }

    /// The time of its first record of this action.
    pub(crate) fn first_s(&self, name: &str, event: &str) -> Option<f64> {
        self.find(name, event, 0).map(|at| self.0[at].at_s)
    }

    /// The time of its last record of this action.
    pub(crate) fn last_s(&self, name: &str, event: &str) -> Option<f64> {
        let is = |line: &&Line| line.name == name && line.event == event;
        self.0.iter().rfind(is).map(|line| line.at_s)
    }

    /// The index of its n-th record of this action, counted from zero.
    pub(crate) fn nth(&self, name: &str, event: &str, n: usize) -> Option<usize> {
        let is = |(_, line): &(usize, &Line)| line.name == name && line.event == event;
        self.0.iter().enumerate().filter(is).nth(n).map(|(at, _)| at)
    }
}

/// Assertions about a log, which is shown if one fails.
macro_rules! holds {
    ($log:expr, $($claim:expr),+ $(,)?) => {
        {
            $(assert!($claim, "{}: {:#?}", stringify!($claim), $log);)+
        }
    };
}
pub(crate) use holds;

/// The exit code and reason in a container's status.
pub(crate) fn ended(pod: &Pod, name: &str) -> (i64, String) {
    let end = &pod.container(name)["state"]["terminated"];
    let reason = end["reason"].as_str().unwrap_or_default().to_owned();
    (end["exitCode"].as_i64().unwrap_or(-1), reason)
}

/// Waits until a pod has ended.
pub(crate) fn wait_ended(case: &Case<'_>) -> Pod {
    let bound = Duration::from_secs(180);
    case.wait_in(bound, "it has ended", |pod| matches!(pod.phase(), "Succeeded" | "Failed"))
}

impl Case<'_> {
    /// Waits until the containers have written such lines.
    pub(crate) fn wait_log(&self, what: &str, is: impl Fn(&Log) -> bool) {
        until_in(PATIENCE, what, || {
            std::thread::sleep(LOOK);
            let log = Log::of(self);
            if is(&log) { Ok(()) } else { Err(format!("{log:?}")) }
        });
    }

    /// Removes the case's pod and waits until it is gone; returns the last observed state.
    pub(crate) fn end_and_watch(&self, pod: &Pod) -> Pod {
        self.end_and_watch_with(pod, |_| ())
    }

    /// The same, with a check of each observed state.
    pub(crate) fn end_and_watch_with(&self, pod: &Pod, observe: impl Fn(&Pod)) -> Pod {
        self.take("pod");
        self.watch_end(pod, observe)
    }

    /// Waits until this pod is gone, with a check of each observed state; returns the last one.
    pub(crate) fn watch_end(&self, pod: &Pod, observe: impl Fn(&Pod)) -> Pod {
        let last = RefCell::new(pod.clone());
        until_in(Duration::from_secs(180), "the pod is gone", || {
            std::thread::sleep(Duration::from_millis(20));
            let pods = self.node.site.pods()?;
            let Some(shown) = pods.into_iter().find(|shown| shown.uid() == pod.uid()) else {
                return Ok(());
            };
            observe(&shown);
            let status = shown.0["status"].to_string();
            last.replace(shown);
            Err(status)
        });
        last.into_inner()
    }
}
