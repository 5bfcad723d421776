//! Events of a pod, about itself, its containers or the node, until the recorder takes them.

use super::plan::StopReason;
use super::{Origin, Pod, PodContext};
use crate::agent::time::Now;
use crate::model::cri::ContainerId;
use crate::model::job::LogDir;
use crate::model::pod::{Container, RestartPolicy};
use crate::model::recorded_event::{EventType, Object};

/// Events to record at the next step.
#[derive(Debug, Default)]
pub(super) struct PodEvents {
    pending: Vec<PodEvent>,
    /// The last reported reason that blocked the pod.
    last_blocked: Option<Box<str>>,
}

#[derive(Debug)]
struct PodEvent {
    about: About,
    kind: EventType,
    reason: &'static str,
    message: String,
}

#[derive(Debug)]
enum About {
    Node,
    Pod,
    /// Name in the spec.
    Container(Box<str>),
}

impl PodEvents {
    /// Records an event about the pod as a whole.
    pub(super) fn add(&mut self, kind: EventType, reason: &'static str, message: String) {
        self.pending.push(PodEvent { about: About::Pod, kind, reason, message });
    }

    /// Records a warning about the pod as a whole.
    pub(super) fn warn(&mut self, reason: &'static str, message: String) {
        self.add(EventType::Warning, reason, message);
    }

    /// Records a warning about what blocks the pod, once until something else does.
    pub(super) fn warn_blocked(&mut self, reason: &'static str, message: String) {
        if self.last_blocked.as_deref() != Some(&message) {
            self.last_blocked = Some(message.clone().into());
            self.warn(reason, message);
        }
    }
}

impl Pod {
    /// Records the start of a stop; some stops are followed by another start.
    pub(super) fn record_stop(&mut self, id: &ContainerId, why: StopReason) {
        let Some(observed) = self.observed.container(id) else { return };
        let name = observed.name.clone();
        let is_init = self.api.spec.init_containers.iter().any(|init| init.name == name);
        let message = match why {
            StopReason::Ending => format!("Stopping container {name}"),
            StopReason::Changed if is_init => {
                format!("Init container {name} definition changed")
            }
            StopReason::Changed => {
                format!("Container {name} definition changed, will be restarted")
            }
            StopReason::Restart => {
                format!("Container {name} is restarted by a request on the node")
            }
            StopReason::Probe(kind) => {
                let kind = kind.title().to_lowercase();
                let what = if is_init { "Init container" } else { "Container" };
                let never = self.api.spec.restart_policy == RestartPolicy::Never;
                let then = if is_init || never { "" } else { ", will be restarted" };
                format!("{what} {name} failed {kind} probe{then}")
            }
            StopReason::PostStart => "FailedPostStartHook".to_owned(),
            StopReason::Unknown => {
                "Container is in \"unknown\" state, try killing it before restart".to_owned()
            }
        };
        let again = match why {
            StopReason::Changed | StopReason::Restart => true,
            StopReason::Probe(_) => self.api.spec.restart_policy != RestartPolicy::Never,
            StopReason::Ending | StopReason::PostStart | StopReason::Unknown => false,
        };
        if again {
            self.records.of(&name).restart_after(id.clone());
        }
        self.record_event(&name, EventType::Normal, "Killing", message);
    }

    /// Records a warning about the pod as a whole.
    pub fn warn(&mut self, reason: &'static str, message: String) {
        self.events.warn(reason, message);
        self.mark_dirty();
    }

    /// Records a warning about the node: garbage of the pod could not be removed.
    pub(super) fn warn_of_garbage(&mut self, message: String) {
        let (kind, reason) = (EventType::Warning, "ContainerGCFailed");
        self.events.pending.push(PodEvent { about: About::Node, kind, reason, message });
        self.mark_dirty();
    }

    pub(super) fn normal(&mut self, container: &str, reason: &'static str, message: String) {
        self.record_event(container, EventType::Normal, reason, message);
    }

    pub(super) fn error(&mut self, container: &str, what: &str) {
        self.record_event(container, EventType::Warning, "Failed", format!("Error: {what}"));
    }

    /// Records an event about one container. Container ids in the message are replaced by the
    /// container's name, so that repeats are recognised.
    pub(super) fn record_event(
        &mut self,
        container: &str,
        kind: EventType,
        reason: &'static str,
        mut message: String,
    ) {
        for observed in self.observed.of(container) {
            if message.contains(&*observed.id.0) {
                message = message.replace(&*observed.id.0, container);
            }
        }
        let about = About::Container(container.into());
        self.events.pending.push(PodEvent { about, kind, reason, message });
    }

    /// Hands the pending events to the recorder.
    pub(super) fn flush_events(&mut self, now: Now, context: &mut PodContext<'_>) {
        for event in std::mem::take(&mut self.events.pending) {
            let PodEvent { about, kind, reason, message } = event;
            let object = match about {
                // A pod without a name has no object in the cloud.
                _ if self.is_nameless() => Object::node(&context.config.node_name),
                About::Node => Object::node(&context.config.node_name),
                About::Pod => self.object(String::new(), reason, context),
                About::Container(name) => self.object(self.field_path(&name), reason, context),
            };
            context.recorder.add(now, object, kind, reason, message, context.out);
        }
    }

    fn object(&self, field_path: String, reason: &str, context: &mut PodContext<'_>) -> Object {
        context.recorder.annotate(self.annotations(reason));
        let metadata = &self.api.metadata;
        Object {
            kind: "Pod",
            namespace: metadata.namespace.as_str().into(),
            name: metadata.name.as_str().into(),
            uid: self.uid.clone(),
            field_path,
        }
    }

    /// `spec.containers{web}`
    pub(super) fn field_path(&self, container: &str) -> String {
        let spec = &self.api.spec;
        let among = |all: &[Container]| all.iter().any(|one| *one.name == *container);
        let kind = if among(&spec.init_containers) {
            "initContainers"
        } else if among(&spec.ephemeral_containers) {
            "ephemeralContainers"
        } else {
            "containers"
        };
        format!("spec.{kind}{{{container}}}")
    }

    /// `pod=NAMESPACE/NAME `, or nothing where only the uid is known.
    pub fn log_name(&self) -> String {
        let metadata = &self.api.metadata;
        if self.is_nameless() {
            return String::new();
        }
        format!("pod={}/{} ", metadata.namespace, metadata.name)
    }

    /// Only a directory or a cgroup of it was found, and these are named after the uid.
    fn is_nameless(&self) -> bool {
        let metadata = &self.api.metadata;
        self.origin == Origin::Runtime
            && metadata.namespace == LogDir::NAMELESS
            && metadata.name == LogDir::NAMELESS
    }
}
