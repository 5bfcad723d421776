//! Who a machine is, as the status of a node tells it (core/v1 `NodeSystemInfo`; spec section 9.2).

/// What does not change before the next boot. What cannot be found out is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// `/etc/machine-id`
    pub machine_id: Box<str>,
    /// The firmware's, else the machine id.
    pub system_uuid: Box<str>,
    /// Another after each boot.
    pub boot_id: Box<str>,
    /// `6.1.0-18-arm64`
    pub kernel_version: Box<str>,
    /// `Debian GNU/Linux 12 (bookworm)`
    pub os_image: Box<str>,
    /// In Go's words: `arm`, `arm64`, `amd64`.
    pub architecture: Box<str>,
}
