//! What the built-in runtime serves beside the CRI on the same socket (`edged.runtime.v1`).

/// `Images.Import`: every image of an OCI layout, of an archive of one, or of the output of `docker
/// save`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ImportRequest {
    /// Absolute, on the runtime's host.
    #[prost(string, tag = "1")]
    pub path: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ImportResponse {
    /// The names that the images have now.
    #[prost(string, repeated, tag = "1")]
    pub names: Vec<String>,
}
