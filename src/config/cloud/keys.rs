//! The tables of the keys: each key's path, and its setting.

use super::values::{
    at_least, count, file, http_server, namespace, project, seconds, server, take_register,
    take_taints, take_token,
};
use crate::config::metaserver;
use crate::config::table::{Row, Rule, Table, duration, text, truth, whole};
use crate::model::error::Input;
#[cfg(feature = "streams")]
use crate::model::settings::CloudLink;
use crate::wire::tree::Value;

use Rule::{Map, Take as Set};

/// At the top of the file.
pub(in crate::config) const ROOT: &[Row] = &[("database", Map(&DATABASE))];

const DATABASE: Table = Table {
    rules: &[
        ("aliasName", Set(|_, value| text(value).map(drop))),
        (
            "dataSource",
            Set(|config, value| {
                config.cloud.store = file(value)?;
                Ok(())
            }),
        ),
        (
            "driverName",
            Set(|_, value| match text(value)? {
                "sqlite3" => Ok(()),
                other => Err(Input::quoted(other, "sqlite3")),
            }),
        ),
    ],
    more: &[],
    unused: "",
};

/// Below `modules`.
pub(in crate::config) const MODULES: &[Row] = &[
    ("edgeHub", Map(&EDGE_HUB)),
    #[cfg(feature = "streams")]
    ("edgeStream", Map(&EDGE_STREAM)),
    ("metaManager", Map(&META)),
];

/// A file of the tunnel; `None`: KubeEdge's default, and so the file of the link.
#[cfg(feature = "streams")]
fn other(given: String, default: fn(CloudLink) -> String) -> Option<String> {
    (given != default(CloudLink::default())).then_some(given)
}

#[cfg(feature = "streams")]
const EDGE_STREAM: Table = Table {
    rules: &[
        (
            "enable",
            Set(|config, value| {
                config.cloud.tunnel.is_on = truth(value)?;
                Ok(())
            }),
        ),
        (
            "handshakeTimeout",
            Set(|config, value| {
                config.cloud.tunnel.handshake_timeout_ms = whole(value, 1, 3_600)? as u64 * 1_000;
                Ok(())
            }),
        ),
        (
            "server",
            Set(|config, value| {
                config.cloud.tunnel.server = server(text(value)?)?;
                Ok(())
            }),
        ),
        (
            "tlsTunnelCAFile",
            Set(|config, value| {
                config.cloud.tunnel.ca_file = other(file(value)?, |link| link.ca_file);
                Ok(())
            }),
        ),
        (
            "tlsTunnelCertFile",
            Set(|config, value| {
                config.cloud.tunnel.cert_file = other(file(value)?, |link| link.cert_file);
                Ok(())
            }),
        ),
        (
            "tlsTunnelPrivateKeyFile",
            Set(|config, value| {
                config.cloud.tunnel.key_file = other(file(value)?, |link| link.key_file);
                Ok(())
            }),
        ),
    ],
    more: &[],
    // KubeEdge reads neither of them.
    unused: "readDeadline writeDeadline",
};

const EDGE_HUB: Table = Table {
    rules: &[
        (
            "enable",
            Set(|config, value| {
                config.cloud.draft.enable = Some(truth(value)?);
                Ok(())
            }),
        ),
        (
            "heartbeat",
            Set(|config, value| {
                config.cloud.settings.heartbeat_ms = seconds(config, value, 300)?;
                Ok(())
            }),
        ),
        (
            "httpServer",
            Set(|config, value| {
                config.cloud.draft.http_server = http_server(text(value)?)?;
                Ok(())
            }),
        ),
        (
            "messageBurst",
            Set(|config, value| {
                config.cloud.settings.messages_burst = count(config, value, 1)?;
                Ok(())
            }),
        ),
        (
            "messageQPS",
            Set(|config, value| {
                config.cloud.settings.messages_per_second = count(config, value, 1)?;
                Ok(())
            }),
        ),
        (
            "projectID",
            Set(|config, value| {
                config.cloud.draft.named = true;
                config.cloud.link.project_id = project(text(value)?)?;
                Ok(())
            }),
        ),
        ("quic", Map(&QUIC)),
        (
            "rotateCertificates",
            Set(|config, value| {
                config.cloud.settings.rotate_certificates = truth(value)?;
                Ok(())
            }),
        ),
        // Edged's own: KubeEdge has no such setting.
        (
            "thrifty",
            Set(|config, value| {
                config.cloud.draft.thrifty = truth(value)?;
                Ok(())
            }),
        ),
        (
            "tlsCaFile",
            Set(|config, value| {
                config.cloud.link.ca_file = file(value)?;
                Ok(())
            }),
        ),
        (
            "tlsCertFile",
            Set(|config, value| {
                config.cloud.link.cert_file = file(value)?;
                Ok(())
            }),
        ),
        (
            "tlsPrivateKeyFile",
            Set(|config, value| {
                config.cloud.link.key_file = file(value)?;
                Ok(())
            }),
        ),
        ("token", Set(take_token)),
        ("websocket", Map(&WEBSOCKET)),
    ],
    more: &[],
    unused: "",
};

const WEBSOCKET: Table = Table {
    rules: &[
        (
            "enable",
            Set(|_, value| match value {
                Value::Bool(true) => Ok(()),
                other => Err(Input::new(other, "true: it is the only transport")),
            }),
        ),
        (
            "handshakeTimeout",
            Set(|config, value| {
                config.cloud.link.handshake_timeout_ms = seconds(config, value, 600)?;
                Ok(())
            }),
        ),
        (
            "server",
            Set(|config, value| {
                config.cloud.draft.server = server(text(value)?)?;
                Ok(())
            }),
        ),
        (
            "writeDeadline",
            Set(|config, value| {
                config.cloud.link.write_timeout_ms = seconds(config, value, 600)?;
                Ok(())
            }),
        ),
    ],
    more: &[],
    // KubeEdge stores it and never uses it.
    unused: "readDeadline",
};

const QUIC: Table = Table {
    rules: &[
        (
            "enable",
            Set(|_, value| match value {
                Value::Bool(false) => Ok(()),
                other => Err(Input::new(other, "false: edged has no QUIC")),
            }),
        ),
        // Settings of a part that is switched off.
        ("handshakeTimeout", Set(|_, value| whole(value, 0, i64::MAX).map(drop))),
        ("readDeadline", Set(|_, value| whole(value, 0, i64::MAX).map(drop))),
        ("server", Set(|_, value| text(value).map(drop))),
        ("writeDeadline", Set(|_, value| whole(value, 0, i64::MAX).map(drop))),
    ],
    more: &[],
    unused: "",
};

const META: Table = Table {
    rules: &[
        (
            "enable",
            Set(|config, value| {
                config.cloud.draft.meta = Some(truth(value)?);
                Ok(())
            }),
        ),
        (
            "podStatusSyncInterval",
            Set(|config, value| {
                config.cloud.settings.pod_status_sync_ms = whole(value, 1, 86_400)? as u64 * 1_000;
                Ok(())
            }),
        ),
        (
            "remoteQueryTimeout",
            Set(|config, value| {
                let ms = whole(value, 1, 600)? as u64 * 1_000;
                config.cloud.settings.remote_query_timeout_ms = ms;
                Ok(())
            }),
        ),
    ],
    more: &[metaserver::META],
    unused: "contextSendGroup contextSendModule",
};

/// Below `modules.edged`; two of them were moved into `tailoredKubeletConfig` after 1.17.
pub(in crate::config) const EDGED: &[Row] = &[
    ("registerNode", Set(take_register)),
    (
        "registerNodeNamespace",
        Set(|config, value| {
            config.cloud.settings.registration.namespace = namespace(text(value)?)?;
            Ok(())
        }),
    ),
    (
        "registerSchedulable",
        Set(|config, value| {
            config.cloud.settings.registration.schedulable = truth(value)?;
            Ok(())
        }),
    ),
    ("registerWithTaints", Set(take_taints)),
    (
        "reportEvent",
        Set(|config, value| {
            config.cloud.settings.report_events = truth(value)?;
            Ok(())
        }),
    ),
];

/// Below `tailoredKubeletConfig`.
pub(in crate::config) const TAILORED: &[Row] = &[
    (
        "eventBurst",
        Set(|config, value| {
            config.cloud.settings.events_burst = whole(value, 0, 10_000)? as u32;
            Ok(())
        }),
    ),
    (
        "eventRecordQPS",
        Set(|config, value| {
            config.cloud.settings.events_per_second = whole(value, 0, 10_000)? as u32;
            Ok(())
        }),
    ),
    (
        "nodeLeaseDurationSeconds",
        Set(|config, value| {
            config.cloud.settings.lease_duration_s = whole(value, 4, 3_600)? as u32;
            Ok(())
        }),
    ),
    (
        "nodeStatusMaxImages",
        Set(|config, value| {
            let max = whole(value, -1, 10_000)?;
            config.cloud.settings.status_images_max = usize::try_from(max).ok();
            Ok(())
        }),
    ),
    (
        "nodeStatusReportFrequency",
        Set(|config, value| {
            config.cloud.settings.status_report_ms = at_least(duration(value)?, 1)?;
            Ok(())
        }),
    ),
    (
        "nodeStatusUpdateFrequency",
        Set(|config, value| {
            config.cloud.settings.status_update_ms = at_least(duration(value)?, 1)?;
            Ok(())
        }),
    ),
    ("registerNode", Set(take_register)),
    ("registerWithTaints", Set(take_taints)),
    (
        "syncFrequency",
        Set(|config, value| {
            config.cloud.settings.sync_ms = at_least(duration(value)?, 1)?;
            Ok(())
        }),
    ),
];

/// Every map in the shipped file.
#[cfg(test)]
pub(in crate::config) const TABLES: &[&Table] = &[
    &DATABASE,
    &EDGE_HUB,
    #[cfg(feature = "streams")]
    &EDGE_STREAM,
    &WEBSOCKET,
    &META,
];
