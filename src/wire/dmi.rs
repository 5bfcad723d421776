//! The device management interface (DMI) of KubeEdge: gRPC between the agent and mappers, in
//! protobuf package `v1beta1` (KubeEdge 1.15 and later).
//!
//! ```text
//!  mapper ──DeviceManagerService──▶ decode ─▶ ManagerCall … ManagerAnswer ─▶ answer ──▶ mapper
//!  MapperCall ─▶ encode ──DeviceMapperService──▶ mapper ──▶ outcome ─▶ Ok or MapperError
//! ```
//!
//! **Intended behaviour.** Unknown fields are skipped, absent ones have protobuf's defaults, and a
//! side of a twin that is not given is not given. Devices and models are written from the JSON of
//! their objects by the tables of `object`, with the defaults of the model (KubeEdge 1.22 and
//! later).
//!
//! **Values of free objects** (`configData`, `anomalyDetection`) become `google.protobuf.Any`: text
//! `StringValue`, booleans `BoolValue`, integers `Int64Value`, fractions `FloatValue`;
//! mapper-framework reads no `DoubleValue`. `null` is left out, as if its key were absent. A list,
//! an object, or a number that 32 bits cannot hold makes the whole object unwritable: a driver that
//! runs with a part of its configuration may write to the wrong register, while a device that is
//! missing harms nothing and is reported with the place. EdgeCore refuses such a device as well.
//!
//! **What is not here.** `v1alpha1` (KubeEdge 1.12 to 1.14): its calls are answered UNIMPLEMENTED.
//! `GetDevice` is not called, and reflection is not served.
//!
//! Source: `apis/dmi/v1beta1/api.proto` of KubeEdge, whose numbers the tables have.

mod manager;
mod mapper;
mod object;

pub use manager::{Answer, answer, decode};
pub use mapper::{encode, outcome};

#[cfg(test)]
mod tests;
