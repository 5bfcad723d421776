//! Keys of edgecore.yaml for the cloud: its address, the node's credentials, the store.
//!
//! **When there is a cloud**: `modules.edgeHub` has its address (`websocket.server`, `httpServer`
//! or both), and not `enable: false`. A file without that section is a node without a
//! cloud, whatever certificates are on the disk. A section with other keys of the link but without
//! an address is an error: KubeEdge's default is the machine's own address, which is no cloud.

mod keys;
mod values;

#[cfg(test)]
mod tests;

use super::Config;
use crate::model::error::Input;
#[cfg(feature = "streams")]
use crate::model::settings::TunnelSettings;
use crate::model::settings::{CloudLink, CloudSettings};
#[cfg(test)]
pub(super) use keys::TABLES;
pub(super) use keys::{EDGED, MODULES, ROOT, TAILORED};
use values::{HTTPS, host_of};

/// The cloud settings of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cloud {
    /// For the link, without the node's name: see [`Config::link`].
    link: CloudLink,
    /// For the core.
    pub settings: CloudSettings,
    /// `database.dataSource`: absolute path of the store.
    pub store: String,
    is_configured: bool,
    #[cfg(feature = "streams")]
    tunnel: Tunnel,
    draft: Draft,
}

impl Default for Cloud {
    fn default() -> Self {
        Self {
            link: CloudLink::default(),
            settings: CloudSettings::default(),
            store: "/var/lib/kubeedge/edgecore.db".to_owned(),
            is_configured: false,
            #[cfg(feature = "streams")]
            tunnel: Tunnel::default(),
            draft: Draft::default(),
        }
    }
}

/// `modules.edgeStream`; what is not set is as for `modules.edgeHub`.
#[cfg(feature = "streams")]
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tunnel {
    is_on: bool,
    handshake_timeout_ms: u64,
    server: Option<String>,
    ca_file: Option<String>,
    cert_file: Option<String>,
    key_file: Option<String>,
}

#[cfg(feature = "streams")]
impl Default for Tunnel {
    fn default() -> Self {
        Self {
            is_on: false,
            handshake_timeout_ms: 30_000,
            server: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
        }
    }
}

/// Values that are evaluated together, after all are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Draft {
    /// `modules.edgeHub.enable`
    enable: Option<bool>,
    /// `modules.metaManager.enable`
    meta: Option<bool>,
    /// `modules.edgeHub.thrifty`
    thrifty: bool,
    /// `websocket.server`
    server: Option<String>,
    /// `httpServer`
    http_server: Option<String>,
    /// Another key of the link is set.
    named: bool,
}

impl Cloud {
    /// There is a cloud to join.
    pub fn is_configured(&self) -> bool {
        self.is_configured
    }

    /// Checks several keys together, and derives values from them.
    pub(super) fn finish(&mut self) -> Result<(), Input> {
        let draft = std::mem::take(&mut self.draft);
        #[cfg(feature = "streams")]
        let is_there =
            draft.enable != Some(false) && (draft.server.is_some() || draft.http_server.is_some());
        #[cfg(feature = "streams")]
        if self.tunnel.is_on && !is_there {
            let expected = "modules.edgeHub to be on as well: it has the node's certificate";
            return Err(Input::new(true, expected).at("modules.edgeStream.enable"));
        }
        if draft.enable == Some(false) {
            return Ok(());
        }
        let (server, http_server) = match (draft.server, draft.http_server) {
            (None, None) if draft.named || draft.enable == Some(true) => {
                let expected = "websocket.server (host:port) and httpServer (https://host:port), \
                                or enable: false";
                return Err(Input::new("no address of the cloud", expected).at("modules.edgeHub"));
            }
            (None, None) => return Ok(()),
            (Some(server), Some(http_server)) => (server, http_server),
            (Some(server), None) => {
                let http_server = format!("{HTTPS}{}:{HTTP_PORT}", host_of(&server));
                (server, http_server)
            }
            (None, Some(http_server)) => {
                let there = http_server.trim_start_matches(HTTPS);
                (format!("{}:{MESSAGES_PORT}", host_of(there)), http_server)
            }
        };
        if draft.meta == Some(false) {
            let wrong = Input::new(false, "true where there is a cloud, to store its objects");
            return Err(wrong.at("modules.metaManager.enable"));
        }
        self.is_configured = true;
        (self.link.server, self.link.http_server) = (server, http_server);
        let lease_ms = u64::from(self.settings.lease_duration_s) * 1_000;
        if draft.thrifty {
            self.settings.heartbeat_ms = THRIFTY_HEARTBEAT_MS;
            self.settings.lease_interval_ms = lease_ms / 2;
        } else {
            self.settings.lease_interval_ms = lease_ms / 4;
        }
        Ok(())
    }
}

impl Config {
    /// The settings of the link.
    pub fn link(&self) -> CloudLink {
        CloudLink { node_name: self.node_name.clone(), ..self.cloud.link.clone() }
    }
}

#[cfg(feature = "streams")]
impl Config {
    /// The link of the stream tunnel; `None`: it is switched off.
    pub fn tunnel_link(&self) -> Option<CloudLink> {
        let Tunnel { is_on, ref server, ref ca_file, ref cert_file, ref key_file, .. } =
            self.cloud.tunnel;
        (self.cloud.is_configured && is_on).then(|| {
            let link = self.link();
            CloudLink {
                server: server
                    .clone()
                    .unwrap_or_else(|| format!("{}:{TUNNEL_PORT}", host_of(&link.server))),
                ca_file: ca_file.clone().unwrap_or(link.ca_file),
                cert_file: cert_file.clone().unwrap_or(link.cert_file),
                key_file: key_file.clone().unwrap_or(link.key_file),
                ..link
            }
        })
    }

    /// What the core needs to know of it.
    pub fn tunnel_settings(&self) -> Option<TunnelSettings> {
        let handshake_timeout_ms = self.cloud.tunnel.handshake_timeout_ms;
        self.tunnel_link().map(|_| TunnelSettings { handshake_timeout_ms })
    }
}

/// The cloud ends a session after 30 s without one.
const THRIFTY_HEARTBEAT_MS: u64 = 25_000;
/// CloudHub's ports, used for the address that is not set.
const HTTP_PORT: u16 = 10_002;
const MESSAGES_PORT: u16 = 10_000;
/// CloudStream's port for nodes.
#[cfg(feature = "streams")]
const TUNNEL_PORT: u16 = 10_004;
