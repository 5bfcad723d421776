//! The built-in runtime's shell: `edged runtime`, its jobs and its monitors.

mod cgroup;
mod channel;
pub mod cni;
mod connections;
pub mod container;
mod copy;
pub mod environment;
pub mod exec;
mod files;
pub mod images;
pub mod jobs;
pub mod layout;
pub mod monitor;
pub mod monitors;
mod namespace;
mod oci;
pub mod pause;
mod process;
mod program;
pub mod records;
mod root;
mod rootfs;
pub mod sandbox;
pub mod server;
pub mod start;
pub mod stats;
mod users;
