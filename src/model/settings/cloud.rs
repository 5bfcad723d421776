//! The address of the cloud, and our credentials for it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The settings of the link; KubeEdge's keys, below `modules.edgeHub` unless noted otherwise.
///
/// Serde is only for the message to a child process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudLink {
    /// `websocket.server`: `host:port` for messages.
    pub server: String,
    /// `httpServer`: `https://host:port` for certificates.
    pub http_server: String,
    /// `projectID`: not interpreted.
    pub project_id: String,
    /// `modules.edged.hostnameOverride`: a DNS subdomain.
    pub node_name: String,
    /// `tlsCaFile`: absolute path, PEM.
    pub ca_file: String,
    /// `tlsCertFile`: absolute path of the node's own certificate, PEM.
    pub cert_file: String,
    /// `tlsPrivateKeyFile`: absolute path, PEM (`EC PRIVATE KEY`).
    pub key_file: String,
    /// `token`: `<hash of the CA>.<JWT>`; empty: none.
    pub token: Secret,
    /// Absolute path of a file whose line overrides `token`; it may be missing.
    pub token_file: String,
    /// `websocket.handshakeTimeout`, milliseconds: from the dial to the upgrade.
    pub handshake_timeout_ms: u64,
    /// `websocket.writeDeadline`, milliseconds: the cloud may accept no bytes for this long.
    pub write_timeout_ms: u64,
}

/// KubeEdge's defaults; no node name and no token.
impl Default for CloudLink {
    fn default() -> Self {
        Self {
            server: "127.0.0.1:10000".to_owned(),
            http_server: "https://127.0.0.1:10002".to_owned(),
            project_id: "e632aba927ea4ac2b575ec1603d56f10".to_owned(),
            node_name: String::new(),
            ca_file: "/etc/kubeedge/ca/rootCA.crt".to_owned(),
            cert_file: "/etc/kubeedge/certs/server.crt".to_owned(),
            key_file: "/etc/kubeedge/certs/server.key".to_owned(),
            token: Secret::default(),
            token_file: "/etc/kubeedge/bootstrap-edgecore.conf".to_owned(),
            handshake_timeout_ms: 30_000,
            write_timeout_ms: 15_000,
        }
    }
}

/// The settings of the stream tunnel that concern the core.
#[cfg(feature = "streams")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelSettings {
    /// `modules.edgeStream.handshakeTimeout`, milliseconds.
    pub handshake_timeout_ms: u64,
}

/// A text that is never printed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(Box<str>);

impl Secret {
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// For the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "Secret(none)" } else { "Secret(hidden)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_printed() {
        let link = CloudLink { token: Secret::new("ab.cd.ef.gh"), ..CloudLink::default() };
        let shown = format!("{link:?} {link:#?}");
        assert!(shown.contains("Secret(hidden)") && !shown.contains("cd"), "{shown}");
    }
}
