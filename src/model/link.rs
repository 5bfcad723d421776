//! The link to the cloud, as the mind knows it: sessions, why one ends, how long we are trusted.

/// One connection to the cloud, from the moment it is dialled. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Session(pub u64);

/// Between which moments the certificate that the node showed is good (RFC 5280, `Validity`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Seconds since 1970.
    pub not_before_s: i64,
    /// Seconds since 1970.
    pub not_after_s: i64,
}

/// Why a session ended, or never came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The node has never had a certificate: it applies for its first one.
    NotJoined(String),
    /// The node's certificate cannot be read, is another node's, is out of its time, or
    /// the cloud does not take it: the node has to apply for one.
    Credentials(String),
    /// Nobody listens there, or there is no way there: known at once, and at no cost.
    Refused(String),
    /// Anything else: name, address, TLS, the upgrade, silence, bytes that are no message.
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
