//! The built-in runtime's shell: `edged runtime`, its jobs and its monitors.

pub mod cni;
pub mod environment;
mod files;
pub mod layout;
mod namespace;
pub mod pause;
mod program;
pub mod records;
pub mod sandbox;
pub mod start;
pub mod stats;
