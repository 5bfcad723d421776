//! The rules' names.

/// All of them, by where they are judged.
#[rustfmt::skip]
pub const NAMES: &[&str] = &[
    // Requests to the runtime.
    "attempts grow", "cancel", "cgroup last", "connection", "deadline", "files first",
    "gone is gone", "grace", "ids", "labels", "last one kept", "logs", "no kill",
    "no stop without reason", "old run first", "one call", "one sandbox", "own users",
    "prompt stop",
    "ready sandbox", "refused", "restart policy", "retries", "room", "sandbox config",
    "sources first", "stop before start", "strangers", "volumes last",
    // Changes in the runtime.
    "back-off", "ended is ended", "init order", "one instance", "one pod of a name",
    // Reported statuses.
    "active deadline", "forgotten last", "restarts grow", "revision", "room for pods",
    "start time", "true end", "running pods stay",
    // Jobs, volumes, cgroups and logs.
    "cgroup first", "cgroups", "jobs", "kill", "mounts", "abandoned mounts", "rotation",
    "volumes first",
    // Probes and hooks.
    "held", "hooks once", "initial delay", "nothing probed after the end", "post start first",
    "pre stop first", "probe the living", "probes", "ready by its probes", "startup first",
    // Garbage collection and eviction.
    "eviction", "gauges first", "image fs", "limits are passed", "one at a time", "one by one",
    "one measuring", "one sweep", "one walk", "pinned stays", "pressure is true", "room first",
    "room is enough", "threshold first", "used stays", "wanted stays", "needed pods stay",
    "young stays",
    // The agent's steps.
    "bounded step", "busy loop", "exit", "idle loop", "leaving", "settled", "wake later",
    "watchdog",
    // The cloud and the store.
    "acked is durable", "acted on is durable", "back-pressure", "dead session", "delete last",
    "lost store", "mirrors", "never back", "one save", "one session", "others' conditions",
    "others' deletion", "reported is durable",
    // Devices.
    #[cfg(feature = "devices")]
    "ahead of a mark",
    #[cfg(feature = "devices")]
    "attributes",
    #[cfg(feature = "devices")]
    "client answered",
    #[cfg(feature = "devices")]
    "devices are quiet",
    #[cfg(feature = "devices")]
    "lost mapper",
    #[cfg(feature = "devices")]
    "mapper answered",
    #[cfg(feature = "devices")]
    "mapper deadline",
    #[cfg(feature = "devices")]
    "mapper gets what is durable",
    #[cfg(feature = "devices")]
    "mapper retries",
    #[cfg(feature = "devices")]
    "members",
    #[cfg(feature = "devices")]
    "model first",
    #[cfg(feature = "devices")]
    "older value",
    #[cfg(feature = "devices")]
    "one mapper call",
    #[cfg(feature = "devices")]
    "one report",
    #[cfg(feature = "devices")]
    "removed once",
    #[cfg(feature = "devices")]
    "report is durable",
    #[cfg(feature = "devices")]
    "saved before exit",
    #[cfg(feature = "devices")]
    "saved in time",
    #[cfg(feature = "devices")]
    "twins",
    #[cfg(feature = "devices")]
    "version grows",
    #[cfg(feature = "devices")]
    "version is reserved",
    // Jobs for the node.
    #[cfg(feature = "node-jobs")]
    "job ends",
    #[cfg(feature = "node-jobs")]
    "job images",
    #[cfg(feature = "node-jobs")]
    "job keeps",
    #[cfg(feature = "node-jobs")]
    "job order",
    #[cfg(feature = "node-jobs")]
    "job time",
    #[cfg(feature = "node-jobs")]
    "one result",
    // Pods that are held.
    #[cfg(feature = "metaserver")]
    "released is durable",
    #[cfg(feature = "metaserver")]
    "releases answered",
    // Informers.
    #[cfg(feature = "metaserver")]
    "fresh list",
    #[cfg(feature = "metaserver")]
    "informer never back",
    #[cfg(feature = "metaserver")]
    "informers answered",
    #[cfg(feature = "metaserver")]
    "listed first",
    #[cfg(feature = "metaserver")]
    "one change, one event",
    #[cfg(feature = "metaserver")]
    "selected only",
    #[cfg(feature = "metaserver")]
    "served is true",
    // Services.
    #[cfg(feature = "services")]
    "services",
    #[cfg(feature = "services")]
    "services once",
    // Requests of people.
    #[cfg(feature = "streams")]
    "log ends",
    #[cfg(feature = "streams")]
    "people",
    // The end of a run.
    "converges", "quiet", "stays so",
];
