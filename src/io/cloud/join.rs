//! `edged join`: what keadm does on a node, as far as edged needs it: the configuration where there
//! is none, the token, and the first certificate.
//!
//! Nothing is written before it is known that the cloud is the token's and the name is free. What
//! is done again does no harm: the agent itself applies where this was cut off in the middle.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::dial::host_and_port;
use super::enrol::{self, Token};
use super::files;
use super::tls::Credentials;
use crate::agent::admit::is_subdomain;
use crate::config;
use crate::io::{clock, sys};
use crate::model::settings::{CloudLink, Secret};
use crate::model::time::Timestamp;

/// What the command line says, in keadm's words.
#[derive(Debug, Default)]
pub struct Asked {
    /// `--cloudcore-ipport`: `host:port` of the websocket.
    pub cloudcore: String,
    /// `--certport`: of the same host; `None`: 10002.
    pub certport: Option<u16>,
    /// `--token`
    pub token: Secret,
    /// `--edgenode-name`; `None`: the host name.
    pub node_name: Option<String>,
    /// `--remote-runtime-endpoint`; `None`: containerd's own.
    pub runtime: Option<String>,
    /// All files lie below this folder in place of `/`: for a try, or an image that is being made.
    pub root: Option<PathBuf>,
}

/// Joins. Returns what to tell the person who asked; an error likewise.
pub fn join(asked: &Asked) -> Result<String, String> {
    let place = |path: &str| match &asked.root {
        Some(root) => format!("{}{path}", root.display()),
        None => path.to_owned(),
    };
    let file = place(config::PATH);
    let there = Path::new(&file).exists();
    let link = if there { of_the_file(asked, &file, &place)? } else { fresh(asked, &place)? };
    let token = Token::new(asked.token.reveal()).map_err(|why| format!("--token: {why}"))?;
    let link = CloudLink { token: asked.token.clone(), ..link };
    let wall = clock::now().wall;
    // Who has a certificate of this name joins once more.
    let again = Credentials::load(&link, wall).is_ok();
    if !again && !token.is_for_one_node() && enrol::is_taken(&link, wall)? {
        let name = &link.node_name;
        return Err(format!(
            "the cloud has a node {name:?} already, and this machine has no certificate of its: \
             choose another name with --edgenode-name, remove that node in the cloud (kubectl \
             delete node {name}), or ask edgecontroller for a token of its own (edgecontroller \
             token --node {name})"
        ));
    }
    if !there {
        let text = configuration(&link, asked, &place);
        let wrote = files::store(Path::new(&file), &text, CONFIGURATION);
        wrote.map_err(|error| format!("cannot write {error}"))?;
    }
    let line = format!("{}\n", asked.token.reveal());
    files::store(Path::new(&link.token_file), &line, BOOTSTRAP)
        .map_err(|error| format!("cannot write {error}"))?;
    // With a certificate that is good the cloud gives another; a token may be for new nodes only.
    let renewed = again.then(|| enrol::enrol(&link, true, wall));
    let about = match renewed {
        Some(Ok(about)) => about,
        Some(Err(_)) | None => enrol::enrol(&link, false, wall)?,
    };
    let (name, ends) = (&link.node_name, Timestamp(about.validity.not_after_s));
    let wrote = if there { "as it was" } else { "written" };
    Ok(format!(
        "joined {} as node {name}\n\
         configuration  {file} ({wrote})\n\
         certificate    {} (good until {ends}; it is renewed before)\n\
         start the agent now: edged run --config {file}\n",
        link.server, link.cert_file
    ))
}

/// Where the file names a cloud it must be the one that was asked for.
fn of_the_file(
    asked: &Asked,
    file: &str,
    place: &impl Fn(&str) -> String,
) -> Result<CloudLink, String> {
    let mut flags: Vec<OsString> = vec!["--config".into(), file.into()];
    if let Some(name) = &asked.node_name {
        flags.extend(["--node-name".into(), name.into()]);
    }
    let loaded = config::load(&flags, sys::hostname()).map_err(|error| match error {
        config::Error::Usage(why) | config::Error::File(why) => why,
    })?;
    let config = loaded.config;
    if !config.cloud.is_configured() {
        return Err(format!(
            "{file} is there and names no cloud: set modules.edgeHub.websocket.server to {:?} in \
             it, or move it away",
            asked.cloudcore
        ));
    }
    let link = config.link();
    if link.server != asked.cloudcore {
        return Err(format!(
            "{file} names the cloud {:?}, and --cloudcore-ipport says {:?}: change the one or the \
             other",
            link.server, asked.cloudcore
        ));
    }
    Ok(CloudLink { token_file: place(&link.token_file), ..link })
}

fn fresh(asked: &Asked, place: &impl Fn(&str) -> String) -> Result<CloudLink, String> {
    let (host, _) = host_and_port(&asked.cloudcore).map_err(|_| {
        format!("--cloudcore-ipport: got {:?}, expected host:port", asked.cloudcore)
    })?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let name = match &asked.node_name {
        Some(name) => name.clone(),
        None => sys::hostname().ok_or("this machine has no host name: give --edgenode-name")?,
    };
    let name = name.to_lowercase();
    if !is_subdomain(&name) {
        return Err(format!("the node's name: got {name:?}, expected a DNS subdomain"));
    }
    let usual = CloudLink::default();
    Ok(CloudLink {
        server: asked.cloudcore.clone(),
        http_server: format!("https://{host}:{}", asked.certport.unwrap_or(CERT_PORT)),
        node_name: name,
        ca_file: place(&usual.ca_file),
        cert_file: place(&usual.cert_file),
        key_file: place(&usual.key_file),
        token_file: place(&usual.token_file),
        ..usual
    })
}

/// As short as keadm's shortest, and without the token, which has a file of its own. What stands in
/// it was checked: nothing of it needs more than quotes.
fn configuration(link: &CloudLink, asked: &Asked, place: &impl Fn(&str) -> String) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let runtime = asked.runtime.as_deref().map_or_else(String::new, |runtime| {
        format!("      containerRuntimeEndpoint: {}\n", quoted(runtime))
    });
    let usual = config::Config::default();
    let [store, root, manifests, logs] =
        [&usual.cloud.store, &usual.root, &usual.manifests, &usual.pod_logs]
            .map(|path| quoted(&place(path)));
    format!(
        "# Written by `edged join`. Every key that may stand here: config/edgecore.yaml of edged.\n\
         apiVersion: edgecore.config.kubeedge.io/v1alpha2\n\
         kind: EdgeCore\n\
         database:\n  \
           dataSource: {store}\n\
         modules:\n  \
           edgeHub:\n    \
             httpServer: {}\n    \
             tlsCaFile: {}\n    \
             tlsCertFile: {}\n    \
             tlsPrivateKeyFile: {}\n    \
             websocket:\n      \
               server: {}\n  \
           edged:\n    \
             hostnameOverride: {}\n    \
             rootDirectory: {root}\n    \
             tailoredKubeletConfig:\n      \
               staticPodPath: {manifests}\n      \
               podLogsDir: {logs}\n{runtime}",
        quoted(&link.http_server),
        quoted(&link.ca_file),
        quoted(&link.cert_file),
        quoted(&link.key_file),
        quoted(&link.server),
        quoted(&link.node_name),
    )
}

impl Asked {
    /// Before anything is asked of the cloud.
    pub fn check(&self) -> Result<(), String> {
        if self.cloudcore.is_empty() || self.token.is_empty() {
            return Err("expected --cloudcore-ipport HOST:PORT and --token-file FILE, --token - \
                        (standard input) or --token TOKEN"
                .to_owned());
        }
        Ok(())
    }
}

/// KubeEdge's.
const CERT_PORT: u16 = 10_002;
/// It holds no secret yet; a token may be written into it later.
const CONFIGURATION: u32 = 0o600;
/// keadm's.
const BOOTSTRAP: u32 = 0o640;
