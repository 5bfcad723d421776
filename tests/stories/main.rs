//! Stories: given events, expect requests. One behaviour each, named as a sentence.
//!
//! The core is driven step by step: its requests are compared with those of a kubelet (the traces
//! of the node-agent specification), and answered as a runtime would.
#![allow(clippy::panic, reason = "a failing story reports where")]

mod admission;
mod cgroups;
mod changes;
#[cfg(feature = "volumes")]
mod claims;
mod classes;
mod clock;
#[cfg(feature = "cloud")]
mod cloud;
#[cfg(feature = "cloud")]
mod cloud_bounds;
#[cfg(feature = "cloud")]
mod cloud_bulk;
#[cfg(all(feature = "cloud", feature = "volumes"))]
mod cloud_claims;
#[cfg(feature = "cloud")]
mod cloud_dials;
#[cfg(feature = "cloud")]
mod cloud_ended;
#[cfg(feature = "cloud")]
mod cloud_enrol;
#[cfg(feature = "devices")]
mod cloud_eventbus;
#[cfg(feature = "cloud")]
mod cloud_flood;
#[cfg(feature = "cloud")]
mod cloud_full;
#[cfg(feature = "cloud")]
mod cloud_gone;
#[cfg(feature = "cloud")]
mod cloud_harness;
#[cfg(feature = "metaserver")]
mod cloud_held;
#[cfg(feature = "cloud")]
mod cloud_images;
#[cfg(feature = "metaserver")]
mod cloud_keadm_ctl;
#[cfg(feature = "cloud")]
mod cloud_lost;
#[cfg(feature = "cloud")]
mod cloud_memory;
#[cfg(feature = "metaserver")]
mod cloud_metaserver;
#[cfg(feature = "metaserver-auth")]
mod cloud_metaserver_access;
#[cfg(feature = "cloud")]
mod cloud_mirror;
#[cfg(feature = "cloud")]
mod cloud_mirrors;
#[cfg(feature = "cloud")]
mod cloud_mute;
#[cfg(feature = "cloud")]
mod cloud_names;
#[cfg(feature = "cloud")]
mod cloud_node;
#[cfg(feature = "cloud")]
mod cloud_node_news;
#[cfg(feature = "cloud")]
mod cloud_old;
#[cfg(feature = "cloud")]
mod cloud_once;
#[cfg(feature = "cloud")]
mod cloud_reports;
#[cfg(feature = "cloud")]
mod cloud_room;
#[cfg(feature = "servicebus")]
mod cloud_servicebus;
#[cfg(all(feature = "cloud", feature = "services"))]
mod cloud_services;
#[cfg(feature = "cloud")]
mod cloud_sessions;
#[cfg(feature = "cloud")]
mod cloud_statuses;
#[cfg(feature = "cloud")]
mod cloud_store;
#[cfg(feature = "cloud")]
mod cloud_taken_over;
#[cfg(all(feature = "cloud", feature = "volumes"))]
mod cloud_times;
#[cfg(all(feature = "cloud", feature = "volumes"))]
mod cloud_tokens;
#[cfg(feature = "cloud")]
mod cloud_unserved;
#[cfg(feature = "cloud")]
mod cloud_untold;
#[cfg(all(feature = "cloud", feature = "node-jobs"))]
mod cloud_upgrade;
#[cfg(feature = "cloud")]
mod cloud_waits;
#[cfg(feature = "cloud")]
mod cloud_wakes;
#[cfg(feature = "cloud")]
mod cluster;
mod conditions;
mod decisions;
#[cfg(feature = "devices")]
mod devices;
#[cfg(feature = "devices")]
mod devices_conversation;
#[cfg(all(feature = "devices", feature = "metaserver"))]
mod devices_edited;
mod environment;
#[cfg(feature = "eviction")]
mod eviction;
#[cfg(feature = "eviction")]
mod eviction_limits;
#[cfg(feature = "eviction")]
mod eviction_turns;
#[cfg(all(feature = "probes", feature = "volumes"))]
mod fields;
mod files;
mod folder;
mod garbage;
mod garbage_images;
#[cfg(feature = "cloud")]
mod golden;
#[cfg(feature = "cloud")]
mod golden_join;
mod harness;
#[cfg(feature = "probes")]
mod hooks;
#[cfg(feature = "probes")]
mod hooks_more;
mod images;
mod lifecycle;
mod logs;
mod looks;
mod made;
mod named;
mod node;
mod parts;
#[cfg(feature = "probes")]
mod probe_results;
#[cfg(feature = "probes")]
mod probes;
mod props;
mod recovery;
mod refusals;
#[cfg(feature = "probes")]
mod rounds;
mod rules;
mod security;
#[cfg(feature = "services")]
mod services;
mod shown;
mod statuses;
#[cfg(feature = "streams")]
mod streams;
mod taken_over;
mod tasks;
mod told;
mod trouble;
#[cfg(feature = "volumes")]
mod volume_files;
mod volumes;
mod waits;
#[cfg(feature = "watchdog")]
mod watchdog;
mod written;
