//! An agent that has joined the tests' cloud, and a pod for it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::agent::{NODE, Site};
use super::cgroup;
use super::cloud::Cloud;

/// Configures the site's agents for this cloud.
pub fn join(site: &mut Site, cloud: &Cloud) {
    let (https, websocket) = (cloud.https.to_string(), cloud.websocket.to_string());
    configure(site, &store(site), &https, &websocket, &cloud.token());
}

/// The default place of a site's store.
pub fn store(site: &Site) -> PathBuf {
    site.dir.join("edgecore.db")
}

/// Configures the site's agents for a cloud at these addresses, with this file as store.
pub fn configure(site: &mut Site, store: &Path, https: &str, websocket: &str, token: &str) {
    let (dir, store) = (site.dir.display(), store.display());
    let text = format!(
        "apiVersion: edgecore.config.kubeedge.io/v1alpha2\n\
         kind: EdgeCore\n\
         database:\n  dataSource: {store}\n\
         modules:\n  edgeHub:\n    enable: true\n    heartbeat: 15\n    \
         httpServer: https://{https}\n    tlsCaFile: {dir}/ca.crt\n    \
         tlsCertFile: {dir}/node.crt\n    tlsPrivateKeyFile: {dir}/node.key\n    \
         token: {token}\n    websocket:\n      enable: true\n      server: {websocket}\n  \
         deviceTwin:\n    enable: false\n  eventBus:\n    enable: false\n  \
         edged:\n    enable: true\n    tailoredKubeletConfig:\n      cgroupRoot: {}\n      \
         imageGCHighThresholdPercent: 100\n      evictionHard: {{}}\n",
        cgroup::root()
    );
    let path = site.dir.join("joined.yaml");
    fs::write(&path, text).expect("a file of ours");
    site.config = Some(path);
}

/// Serves devices as well: mappers on this socket, clients at the broker of this URL. Several
/// agents run at once on a machine, so without this they serve none.
#[allow(dead_code, reason = "only some of the test programs have devices")]
pub fn with_devices(site: &Site, socket: &Path, broker: &str) {
    let path = site.config.as_deref().expect("it has joined a cloud");
    let text = fs::read_to_string(path).expect("a file of ours");
    let (socket, off) =
        (socket.display(), "deviceTwin:\n    enable: false\n  eventBus:\n    enable: false\n");
    assert!(text.contains(off), "{text}");
    let on = format!(
        "deviceTwin:\n    dmiSockPath: {socket}\n  eventBus:\n    mqttServerExternal: {broker}\n"
    );
    fs::write(path, text.replace(off, &on)).expect("a file of ours");
}

/// Adds these lines to the modules of the site's configuration.
#[allow(dead_code, reason = "only some of the test programs have modules of their own")]
pub fn with_module(site: &Site, lines: &str) {
    let path = site.config.as_deref().expect("it has joined a cloud");
    let text = fs::read_to_string(path).expect("a file of ours");
    fs::write(path, text.replacen("modules:\n", &format!("modules:\n{lines}"), 1))
        .expect("a file of ours");
}

/// Switches MetaServer on, on this port, with further keys.
#[allow(dead_code, reason = "only some of the test programs have MetaServer")]
pub fn with_metaserver(site: &Site, port: u16, keys: &str) {
    let on = format!(
        "  metaManager:\n    metaServer:\n      enable: true\n      \
         server: 127.0.0.1:{port}\n{keys}"
    );
    with_module(site, &on);
}

/// A pod that sleeps, with further fields of its spec.
pub fn pod(name: &str, more: &Value) -> Value {
    let mut pod = json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "main", "image": "localhost/edged-demo:1", "imagePullPolicy": "Never",
                "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done"],
            }],
        },
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}
