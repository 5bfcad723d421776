//! The data model: Kubernetes objects and the runtime's own, as plain data with serde. No logic
//! beyond reading and writing a value.
#![forbid(unsafe_code)]

#[cfg(feature = "metaserver")]
pub mod access;
#[cfg(feature = "controller")]
pub mod any_api;
#[cfg(feature = "controller")]
pub mod api;
#[cfg(any(feature = "controller", feature = "metaserver", feature = "services"))]
pub mod application;
pub mod base64;
pub mod builtin;
pub mod cgroup;
#[cfg(feature = "controller")]
pub mod cloud_message;
pub mod cri;
#[cfg(any(feature = "controller", feature = "devices"))]
pub mod device;
#[cfg(feature = "services")]
pub mod dns;
#[cfg(feature = "cloud")]
pub mod downstream;
#[cfg(feature = "controller")]
pub mod edge_message;
pub mod endpoint;
pub mod error;
#[cfg(any(feature = "cloud", feature = "images"))]
pub mod hex;
pub mod housekeeping;
pub mod ids;
pub mod image;
pub mod job;
pub mod keyring;
#[cfg(feature = "cloud")]
pub mod link;
#[cfg(feature = "cloud")]
pub mod machine;
pub mod manifest;
pub mod map;
pub mod message;
#[cfg(feature = "cloud")]
pub mod meta;
#[cfg(feature = "metaserver")]
pub mod metaserver;
pub mod metrics;
pub mod names;
pub mod net;
pub mod node;
#[cfg(feature = "cloud")]
pub mod node_job;
#[cfg(feature = "cloud")]
pub mod node_status;
pub mod object;
pub mod pod;
pub mod probe;
pub mod quantity;
#[cfg(feature = "controller")]
pub mod raw;
pub mod recorded_event;
#[cfg(feature = "cloud")]
pub mod remote_pod;
#[cfg(feature = "controller")]
pub mod router;
#[cfg(any(feature = "devices", feature = "servicebus"))]
pub mod rule_row;
#[cfg(feature = "runtime")]
pub mod runtime;
#[cfg(any(feature = "controller", feature = "metaserver", feature = "services"))]
pub mod selector;
#[cfg(feature = "services")]
pub mod service;
#[cfg(any(feature = "controller", feature = "servicebus"))]
pub mod service_bus;
pub mod settings;
pub mod status;
#[cfg(feature = "cloud")]
pub mod status_patch;
#[cfg(feature = "streams")]
pub mod stream;
#[cfg(feature = "controller")]
pub mod sync;
pub mod time;
pub mod token;
#[cfg(any(feature = "controller", feature = "devices"))]
pub mod topic;
pub mod tree;
mod untyped;
#[cfg(feature = "cloud")]
pub mod upstream;
pub mod view;
pub mod watchdog;
