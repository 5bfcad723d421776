//! The names of a pod: in the runtime's labels, in the folders of its logs, and in its network.

use crate::agent::Config;
use crate::model::cri::PodRef;
use crate::model::job::LogDir;
use crate::model::pod::Pod;

const HOSTNAME_BYTES_MAX: usize = 63;

/// The pod as the runtime's labels name it.
pub fn pod_ref(pod: &Pod) -> PodRef {
    PodRef {
        uid: pod.metadata.uid.as_str().into(),
        namespace: pod.metadata.namespace.as_str().into(),
        name: pod.metadata.name.as_str().into(),
    }
}

/// The pod as the log directories name it.
pub fn log_dir(pod: &Pod) -> LogDir {
    LogDir {
        uid: pod.metadata.uid.as_str().into(),
        namespace: pod.metadata.namespace.as_str().into(),
        name: pod.metadata.name.as_str().into(),
    }
}

/// The name from the spec or of the pod, cut to the kernel's limit.
pub(super) fn hostname(pod: &Pod) -> String {
    let written = pod.spec.hostname.clone().filter(|name| !name.is_empty());
    let mut name = written.unwrap_or_else(|| pod.metadata.name.clone());
    // Names are ASCII: admission has checked it.
    name.truncate(HOSTNAME_BYTES_MAX);
    name.truncate(name.trim_end_matches(['-', '.']).len());
    name
}

/// What follows the host name in the pod's full name.
pub(super) fn subdomain(pod: &Pod, config: &Config) -> Option<String> {
    let subdomain = pod.spec.subdomain.as_deref().filter(|name| !name.is_empty())?;
    let (namespace, domain) = (&pod.metadata.namespace, &config.settings.cluster_domain);
    Some(format!("{subdomain}.{namespace}.svc.{domain}"))
}
