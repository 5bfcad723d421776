//! The identity of a machine, for the status of a node (core/v1 `NodeSystemInfo`; spec section
//! 9.2).

/// Constant until the next boot. Unknown fields are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// `/etc/machine-id`
    pub machine_id: Box<str>,
    /// The firmware's, otherwise the machine id.
    pub system_uuid: Box<str>,
    /// New at each boot.
    pub boot_id: Box<str>,
    /// `6.1.0-18-arm64`
    pub kernel_version: Box<str>,
    /// `Debian GNU/Linux 12 (bookworm)`
    pub os_image: Box<str>,
    /// In Go's terms: `arm`, `arm64`, `amd64`.
    pub architecture: Box<str>,
}
