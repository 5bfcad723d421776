//! Conversion between bytes and the model, pure and sans-IO: the owner of a socket or file passes
//! bytes in and takes the results. Every decoder is fuzzed, has a bound from [`crate::limits`], and
//! reports what it got and what it expected.

#![forbid(unsafe_code)]

#[cfg(feature = "runtime")]
pub mod cni;
pub mod cri;
#[cfg(any(feature = "controller", feature = "devices"))]
pub mod devices;
#[cfg(feature = "devices")]
pub mod dmi;
#[cfg(feature = "services")]
pub mod dns;
pub mod edge;
pub mod grpc;
pub mod h2;
pub mod hpack;
#[cfg(any(feature = "api", feature = "images", feature = "probes"))]
pub mod http1;
#[cfg(any(feature = "node-jobs", feature = "runtime"))]
pub mod inflate;
#[cfg(feature = "metaserver-auth")]
pub mod jwt;
#[cfg(feature = "controller")]
pub mod kubeconfig;
#[cfg(feature = "cloud")]
pub mod kubeedge;
#[cfg(feature = "streams")]
pub mod kubelet;
pub mod line;
pub mod log;
pub mod manifest;
#[cfg(feature = "metaserver")]
pub mod metaserver;
#[cfg(feature = "api")]
pub mod metrics;
#[cfg(feature = "runtime")]
pub mod monitor;
#[cfg(feature = "devices")]
pub mod mqtt;
#[cfg(feature = "images")]
pub mod oci;
mod output;
#[cfg(feature = "probes")]
pub mod probe;
mod protobuf;
pub mod resolv;
#[cfg(feature = "controller")]
pub mod rest;
#[cfg(feature = "controller")]
pub mod router;
pub mod rpc;
#[cfg(any(feature = "metaserver-auth", feature = "services"))]
pub mod rtnetlink;
#[cfg(feature = "servicebus")]
pub mod service_bus;
#[cfg(feature = "streams")]
pub mod spdy;
#[cfg(feature = "runtime")]
pub mod streaming;
#[cfg(any(feature = "images", feature = "streams"))]
pub mod tar;
pub mod tree;
#[cfg(feature = "runtime")]
pub mod ttrpc;
#[cfg(feature = "streams")]
pub mod tunnel;
#[cfg(feature = "cloud")]
pub mod ws;
#[cfg(feature = "cloud")]
pub mod x509;
