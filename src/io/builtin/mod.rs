//! The built-in runtime's shell: `edged runtime`, its jobs and its monitors.

pub mod layout;
pub mod records;
