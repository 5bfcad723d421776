//! Images as files: OCI layouts, tar archives of them, and what `docker save` writes; and what a
//! runtime asks a registry for (the pull half of the OCI distribution API).
//!
//! Archives come from people, on USB sticks: every length is checked before it is used, paths are
//! compared and never opened, and what is wrong is said as «got, expected, where».

pub mod json;
pub mod reference;
pub mod sha256;
pub mod tar;
