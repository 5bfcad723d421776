//! Devices in JSON (spec `devices`, sections 6 and 7): what MQTT clients request and the node
//! publishes, and the messages between the node and `devicecontroller` about twins.
//!
//! ```text
//!  topic, payload ─▶ request ─▶ ClientRequest        Publication ─▶ publish ─▶ topic, payload
//!  DeviceDownstream ◀─ cloud ◀─ content              DeviceUpstream ─▶ cloud ─▶ content
//!                                     controller:    content ─▶ report ─▶ DeviceUpstream
//! ```
//!
//! Topics are read by position: KubeEdge searches for the namespace in the whole topic, and loses
//! all messages of a namespace such as `dev`. Read as Go reads: names of keys without regard to
//! case, unknown keys are ignored. Beyond it, numbers and booleans without quotes are values.
//!
//! Not here: MQTT itself, and what is done with a request.

mod cloud;
mod publish;
#[cfg(feature = "controller")]
mod report;
mod request;

#[cfg(test)]
mod tests;

pub use cloud::{decode_cloud, encode_cloud};
pub use publish::publish;
#[cfg(feature = "controller")]
pub use report::decode_report;
pub use request::{request, upload};
