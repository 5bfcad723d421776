//! Images as files: OCI layouts, tar archives of them, and the output of `docker save`; a runtime's
//! requests to a registry (the pull half of the OCI distribution API); and the configuration of a
//! container (OCI runtime-spec).
//!
//! Archives come from users, on USB sticks: every length is checked before it is used, paths are
//! compared and never opened, and errors have the form «got, expected, where».

#[cfg(feature = "runtime")]
pub mod capabilities;
#[cfg(feature = "runtime")]
pub mod image;
pub mod json;
#[cfg(any(feature = "node-jobs", feature = "runtime"))]
pub mod manifest;
pub mod reference;
#[cfg(feature = "runtime")]
mod seccomp;
#[cfg(feature = "runtime")]
pub mod spec;
#[cfg(feature = "runtime")]
mod write;

use ring::digest::{SHA256, digest};

use crate::model::hex;

/// The digest of these bytes as OCI writes it: `sha256:` and 64 hex digits.
pub fn sha256(bytes: &[u8]) -> String {
    digest_text(digest(&SHA256, bytes).as_ref())
}

/// A SHA-256 as OCI writes it.
pub fn digest_text(sum: &[u8]) -> String {
    format!("sha256:{}", hex::encode(sum))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_digest_is_written_as_oci_has_it() {
        assert_eq!(
            super::sha256(b"abc"),
            "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
