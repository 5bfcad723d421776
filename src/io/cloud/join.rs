//! `edged join`: does what keadm does on a node, as far as edged needs it: the configuration if
//! there is none, the token, and the first certificate.
//!
//! Nothing is written before it is clear that the token is of this cloud and the name is free. A
//! repetition does no harm: if this is interrupted, the agent itself requests the certificate.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::dial::host_and_port;
use super::enrol::{self, Token};
use super::files;
use super::tls::Credentials;
use crate::agent::admit::is_subdomain;
use crate::config;
use crate::io::{clock, sys};
use crate::model::error::{Error, Input, System};
use crate::model::settings::{CloudLink, Secret};
use crate::model::time::Timestamp;

/// The command line, with keadm's flags.
#[derive(Debug, Default)]
pub struct Options {
    /// `--cloudcore-ipport`: `host:port` of the websocket.
    pub cloudcore: String,
    /// `--certport`: on the same host; `None`: 10002.
    pub certport: Option<u16>,
    /// `--token`
    pub token: Secret,
    /// `--edgenode-name`; `None`: the host name.
    pub node_name: Option<String>,
    /// `--remote-runtime-endpoint`; `None`: the agent chooses.
    pub runtime: Option<String>,
    /// The folder in place of `/` for all files: for a test, or for an image that is being built.
    pub root: Option<PathBuf>,
}

/// Joins. Returns the text for the user.
pub fn join(options: &Options) -> Result<String, Error> {
    let place = |path: &str| match &options.root {
        Some(root) => format!("{}{path}", root.display()),
        None => path.to_owned(),
    };
    let file = place(config::PATH);
    let exists = Path::new(&file).exists();
    let link =
        if exists { from_file(options, &file, &place)? } else { from_options(options, &place)? };
    let token = Token::new(options.token.reveal()).map_err(|wrong| wrong.at("--token"))?;
    let link = CloudLink { token: options.token.clone(), ..link };
    let wall = clock::now().wall;
    // A machine with a certificate for this name may join again.
    let has_certificate = Credentials::load(&link, wall).is_ok();
    if !has_certificate && !token.is_for_one_node() && enrol::is_taken(&link, wall)? {
        let name = &link.node_name;
        return Err(Input::other(format!(
            "the cloud has a node {name:?} already, and this machine has no certificate of that \
             node: choose another name with --edgenode-name, remove that node in the cloud \
             (kubectl delete node {name}), or get a token for this node from edgecontroller \
             (edgecontroller token --node {name})"
        ))
        .into());
    }
    let cannot_write = |error: std::io::Error| System::new(format!("cannot write {error}"));
    if !exists {
        let text = configuration(&link, options, &place);
        let wrote = files::store(Path::new(&file), &text, CONFIGURATION);
        wrote.map_err(cannot_write)?;
    }
    let line = format!("{}\n", options.token.reveal());
    files::store(Path::new(&link.token_file), &line, BOOTSTRAP).map_err(cannot_write)?;
    // With a valid certificate the cloud issues another; a token may be for new nodes only.
    let renewed = has_certificate.then(|| enrol::enrol(&link, true, wall));
    let about = match renewed {
        Some(Ok(about)) => about,
        Some(Err(_)) | None => enrol::enrol(&link, false, wall)?,
    };
    let (name, ends) = (&link.node_name, Timestamp(about.validity.not_after_s));
    let written = if exists { "unchanged" } else { "written" };
    Ok(format!(
        "joined {} as node {name}\n\
         configuration  {file} ({written})\n\
         certificate    {} (valid until {ends}; it is renewed before)\n\
         start the agent now: edged run --config {file}\n",
        link.server, link.cert_file
    ))
}

/// If the file has a cloud, it must be the requested one.
fn from_file(
    options: &Options,
    file: &str,
    place: &impl Fn(&str) -> String,
) -> Result<CloudLink, Input> {
    let mut flags: Vec<OsString> = vec!["--config".into(), file.into()];
    if let Some(name) = &options.node_name {
        flags.extend(["--node-name".into(), name.into()]);
    }
    let loaded =
        config::load(&flags, sys::hostname()).map_err(|error| Input::other(error.to_string()))?;
    let config = loaded.config;
    if !config.cloud.is_configured() {
        return Err(Input::other(format!(
            "{file} exists but has no cloud: set modules.edgeHub.websocket.server to {:?} in it, \
             or move it away",
            options.cloudcore
        )));
    }
    let link = config.link();
    if link.server != options.cloudcore {
        return Err(Input::other(format!(
            "{file} has the cloud {:?}, but --cloudcore-ipport is {:?}: change one of them",
            link.server, options.cloudcore
        )));
    }
    Ok(CloudLink { token_file: place(&link.token_file), ..link })
}

fn from_options(options: &Options, place: &impl Fn(&str) -> String) -> Result<CloudLink, Input> {
    let (host, _) = host_and_port(&options.cloudcore)
        .map_err(|_| Input::quoted(&options.cloudcore, "host:port").at("--cloudcore-ipport"))?;
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    let name = match &options.node_name {
        Some(name) => name.clone(),
        None => sys::hostname()
            .ok_or_else(|| Input::other("this machine has no host name: give --edgenode-name"))?,
    };
    let name = name.to_lowercase();
    if !is_subdomain(&name) {
        return Err(Input::quoted(&name, "a DNS subdomain").at("the node's name"));
    }
    let usual = CloudLink::default();
    Ok(CloudLink {
        server: options.cloudcore.clone(),
        http_server: format!("https://{host}:{}", options.certport.unwrap_or(CERT_PORT)),
        node_name: name,
        ca_file: place(&usual.ca_file),
        cert_file: place(&usual.cert_file),
        key_file: place(&usual.key_file),
        token_file: place(&usual.token_file),
        ..usual
    })
}

/// As short as keadm's minimal file, and without the token, which has its own file. All values
/// were checked: they need no more than quotes.
fn configuration(link: &CloudLink, options: &Options, place: &impl Fn(&str) -> String) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let runtime = options.runtime.as_deref().map_or_else(String::new, |runtime| {
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

impl Options {
    /// Checks the arguments before any request to the cloud.
    pub fn check(&self) -> Result<(), Input> {
        if self.cloudcore.is_empty() || self.token.is_empty() {
            return Err(Input::other(
                "expected --cloudcore-ipport HOST:PORT and --token-file FILE, --token - \
                 (standard input) or --token TOKEN",
            ));
        }
        Ok(())
    }
}

/// KubeEdge's default.
const CERT_PORT: u16 = 10_002;
/// It contains no secret yet; a token may be written into it later.
const CONFIGURATION: u32 = 0o600;
/// keadm's mode.
const BOOTSTRAP: u32 = 0o640;
