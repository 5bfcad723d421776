//! Pods whose containers are started anew, in the words of KubeEdge (metaserver.md, section 11.3).

use crate::agent::pods::Pods;
use crate::model::metaserver::Messages;

/// Begins the restart of each of these pods.
pub(in crate::agent::cloud) fn restart(
    pods: &mut Pods,
    namespace: &str,
    names: &[Box<str>],
) -> Messages {
    let mut messages = Messages::default();
    for name in names {
        let mut of_name = pods.iter_mut().filter(|pod| {
            let metadata = &pod.api().metadata;
            *metadata.namespace == *namespace && *metadata.name == **name
        });
        // During a replacement two pods have one name; the one that ends cannot be restarted.
        let Some(first) = of_name.next() else {
            messages.errors.push(format!("not found pod:\"/{namespace}/{name}\""));
            continue;
        };
        let first = first.restart();
        match of_name.fold(first, |so_far, pod| so_far.or_else(|_| pod.restart())) {
            Ok(()) => {
                messages.done.push(format!("the pod \"{namespace}/{name}\" restart successful"));
            }
            Err(why) => {
                let refused = format!("the pod \"{namespace}/{name}\" is not restarted: {why}");
                messages.errors.push(refused);
            }
        }
    }
    messages
}
