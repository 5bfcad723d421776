//! Images as files: OCI layouts, tar archives of them, and the output of `docker save`; and a
//! runtime's requests to a registry (the pull half of the OCI distribution API).
//!
//! Archives come from users, on USB sticks: every length is checked before it is used, paths are
//! compared and never opened, and errors have the form «got, expected, where».

pub mod json;
pub mod reference;
pub mod sha256;
pub mod tar;
