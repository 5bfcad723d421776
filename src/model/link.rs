//! The link to the cloud, as the core knows it: sessions, the causes of their ends, the validity of
//! our certificate.

/// One connection to the cloud, from the dial on. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Session(pub u64);

/// The validity of the certificate that the node presented (RFC 5280, `Validity`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Seconds since 1970.
    pub not_before_s: i64,
    /// Seconds since 1970.
    pub not_after_s: i64,
}

/// Why a session ended, or was not established.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The node has never had a certificate: it requests its first one.
    NotJoined(String),
    /// The node's certificate cannot be read, belongs to another node, is not valid now, or the
    /// cloud refuses it: the node must request a new one.
    Credentials(String),
    /// The port is closed, or there is no route: known at once, and at no cost.
    Refused(String),
    /// Anything else: name, address, TLS, the upgrade, silence, invalid messages.
    Link(String),
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotJoined(why)
            | Self::Credentials(why)
            | Self::Refused(why)
            | Self::Link(why) => f.write_str(why),
        }
    }
}
