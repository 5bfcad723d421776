//! **The core of the built-in runtime**: sandboxes, containers and images, by three methods: it
//! learns ([`event::Event`]), looks at all that it knows, and requests ([`event::Action`]). No
//! clock, no files, no processes: the simulator runs the same code.
#![forbid(unsafe_code)]

pub mod event;
