//! The agent's configuration: edgecore.yaml (KubeEdge's, v1alpha2), and flags that override it.
//!
//! Without a file every setting has KubeEdge's default. A wrong value or an unknown key is
//! an error with its position, because an agent in the field that silently runs with half of its
//! settings is noticed late. Keys of KubeEdge that have no effect here are listed in one warning.

#[cfg(feature = "runtime")]
mod builtin;
#[cfg(not(feature = "runtime"))]
#[path = "config/builtin/absent.rs"]
mod builtin;
#[cfg(feature = "cloud")]
pub mod cloud;
#[cfg(not(feature = "cloud"))]
#[path = "config/cloud/absent.rs"]
pub mod cloud;
#[cfg(feature = "devices")]
mod devices;
#[cfg(not(feature = "devices"))]
#[path = "config/devices/absent.rs"]
mod devices;
mod edgecore;
mod keys;
#[cfg(feature = "metaserver")]
pub mod metaserver;
#[cfg(not(feature = "metaserver"))]
#[path = "config/metaserver/absent.rs"]
pub mod metaserver;
mod runtime;
#[cfg(feature = "servicebus")]
pub mod service_bus;
#[cfg(not(feature = "servicebus"))]
#[path = "config/service_bus/absent.rs"]
pub mod service_bus;
#[cfg(feature = "services")]
pub mod services;
#[cfg(not(feature = "services"))]
#[path = "config/services/absent.rs"]
pub mod services;
mod table;
#[cfg(feature = "watchdog")]
mod watchdog;
#[cfg(not(feature = "watchdog"))]
#[path = "config/watchdog/absent.rs"]
mod watchdog;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
#[cfg(feature = "cloud")]
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use lexopt::{Arg, Parser, ValueExt};
use log::LevelFilter;

use crate::limits::{BACKOFF_MAX_MS, CONFIG_BYTES_MAX, PULL_CALLS_MAX};
use crate::model::builtin::Settings as BuiltinSettings;
use crate::model::endpoint::RuntimeEndpoint;
use crate::model::error::Input;
use crate::model::housekeeping;
use crate::model::settings::PodSettings;
use crate::model::watchdog as watched;
use cloud::Cloud;
use devices::Devices;
pub use edgecore::overlay;
use metaserver::MetaServer;
use service_bus::ServiceBus;
use services::Services;

/// The default path of edgecore.yaml.
pub const PATH: &str = "/etc/kubeedge/config/edgecore.yaml";

/// Every setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// `modules.edged.hostnameOverride`; empty: the host name.
    pub node_name: String,
    /// `modules.edged.nodeLabels`: in addition to those that every node has.
    pub node_labels: BTreeMap<String, String>,
    /// `modules.edged.nodeIP`; `None`: the address of the default route.
    pub node_ip: Option<IpAddr>,
    /// `…tailoredKubeletConfig.staticPodPath`: absolute folder.
    pub manifests: String,
    /// `…containerRuntimeEndpoint`, `modules.edged.containerRuntime`
    pub runtime: RuntimeEndpoint,
    /// One of these keys or a flag names it; otherwise [`load`] chooses one.
    pub runtime_is_named: bool,
    /// `modules.edged.rootDirectory`: absolute folder of the pods' volumes and files.
    pub root: String,
    /// `…podLogsDir`: absolute folder.
    pub pod_logs: String,
    /// Absolute folder of links to container logs. Set only by a flag.
    pub container_logs: String,
    /// `…address` and `…readOnlyPort`: loopback; port 0 or `--listen off`: no HTTP API.
    pub listen: SocketAddr,
    /// `modules.edged.openStreams`: logs, `exec` and the like through the port for every user.
    pub open_streams: bool,
    /// `…maxPods`
    pub pods_max: usize,
    /// How pods are run.
    pub settings: PodSettings,
    /// `…crashLoopBackOff.maxContainerRestartPeriod`, milliseconds.
    pub crash_backoff_max_ms: u64,
    /// Garbage, logs and eviction.
    pub housekeeping: housekeeping::Settings,
    /// `…serializeImagePulls`, `…maxParallelImagePulls`, `…registryPullQPS`, `…registryBurst`
    pub pulls: Pulls,
    /// `modules.edged.imageFolders`: absolute folders with images as files; none: no registry.
    pub image_folders: Vec<String>,
    /// `modules.edged.imageMirrorPort`, on loopback.
    pub image_mirror: SocketAddr,
    /// `modules.edged.builtinRuntime` and the keys of CNI, for `edged runtime`.
    pub builtin: BuiltinSettings,
    /// `modules.edged.watchdog`
    pub watchdog: watched::Settings,
    /// The cloud's address, if there is one, and the store.
    pub cloud: Cloud,
    /// Devices of the cloud.
    pub devices: Devices,
    /// `modules.taskManager.enable`: jobs of the cloud for the node itself are done.
    pub node_jobs: bool,
    /// `modules.taskManager.upgradeRepositories`: images of these need no digest to upgrade edged.
    pub upgrade_repositories: Vec<Box<str>>,
    /// The Kubernetes API on the node.
    pub metaserver: MetaServer,
    /// HTTP calls between applications of the cloud and of the node.
    pub service_bus: ServiceBus,
    /// Services by name.
    pub services: Services,
    /// Set only by a flag.
    pub log: LevelFilter,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            node_name: String::new(),
            node_labels: BTreeMap::new(),
            node_ip: None,
            manifests: "/etc/kubeedge/manifests".to_owned(),
            runtime: RuntimeEndpoint::grpc("/run/containerd/containerd.sock"),
            runtime_is_named: false,
            root: "/var/lib/kubelet".to_owned(),
            pod_logs: "/var/log/pods".to_owned(),
            container_logs: "/var/log/containers".to_owned(),
            listen: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 10_350),
            open_streams: false,
            pods_max: 110,
            settings: PodSettings::default(),
            crash_backoff_max_ms: BACKOFF_MAX_MS,
            housekeeping: housekeeping::Settings::default(),
            pulls: Pulls::default(),
            image_folders: Vec::new(),
            image_mirror: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 10_351),
            builtin: BuiltinSettings::default(),
            watchdog: watched::Settings::default(),
            cloud: Cloud::default(),
            devices: Devices::default(),
            node_jobs: false,
            upgrade_repositories: Vec::new(),
            metaserver: MetaServer::default(),
            service_bus: ServiceBus::default(),
            services: Services::default(),
            log: LevelFilter::Info,
        }
    }
}

impl Config {
    /// The unix socket of the HTTP API for root, below the root directory.
    pub fn socket(&self) -> std::path::PathBuf {
        Path::new(&self.root).join("edged.sock")
    }
}

/// How images are pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulls {
    /// `serializeImagePulls`: one after another.
    pub serialize: bool,
    /// `maxParallelImagePulls`; `None`: not set.
    pub parallel_max: Option<usize>,
    /// `registryPullQPS`; 0: no limit.
    pub per_second: u32,
    /// `registryBurst`
    pub burst: u32,
}

impl Pulls {
    /// The maximum number of parallel pulls.
    pub fn parallel(self) -> usize {
        if self.serialize { 1 } else { self.parallel_max.unwrap_or(PULL_CALLS_MAX) }
    }

    /// Checks that the keys are consistent, as the kubelet does.
    fn check(self) -> Result<(), Input> {
        match self.parallel_max {
            Some(max) if self.serialize && max > 1 => {
                let wrong = Input::new(max, "1 unless serializeImagePulls is false");
                Err(wrong.at("maxParallelImagePulls"))
            }
            _ => Ok(()),
        }
    }
}

impl Default for Pulls {
    fn default() -> Self {
        Self { serialize: true, parallel_max: None, per_second: 5, burst: 10 }
    }
}

/// The result of [`load`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// Why it is this container runtime.
    pub runtime_reason: &'static str,
    /// The keys of the file that have no effect.
    pub unused: Vec<String>,
    /// The file, if it was read.
    pub file: Option<String>,
    /// It has a token, and users other than its owner and group may read it.
    pub is_exposed: bool,
}

impl Loaded {
    /// The warnings for the log, a line each.
    pub fn warnings(&self) -> Vec<String> {
        let path = self.file.as_deref().unwrap_or_default();
        let unused = (!self.unused.is_empty()).then(|| {
            let count = self.unused.len();
            let some = if cfg!(feature = "api") { count.min(UNUSED_NAMED) } else { count };
            let named = self.unused[..some].join(", ");
            let more = if count > some { ", …; `edged check` names them all" } else { "" };
            format!("{path}: {count} keys have no effect in edged: {named}{more}")
        });
        let exposed = self.is_exposed.then(|| format!("{path} {EXPOSED}: chmod 600 {path}"));
        unused.into_iter().chain(exposed).collect()
    }
}

/// The warning about a file with a token.
pub const EXPOSED: &str = "holds a token and can be read by every user";
/// How many keys without effect are listed in the log.
const UNUSED_NAMED: usize = 3;

/// Why [`load`] failed: a text for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The command line.
    Usage(String),
    /// The file, with its path.
    File(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Usage(why) | Self::File(why)) = self;
        f.write_str(why)
    }
}

/// Reads the file and the flags. `hostname` is the node's name unless one of them sets it.
pub fn load(flags: &[OsString], hostname: Option<String>) -> Result<Loaded, Error> {
    let flags = Flags::parse(flags).map_err(|error| Error::Usage(error.to_string()))?;
    let path = flags.config.as_deref().unwrap_or(PATH);
    let mut config = Config::default();
    let (mut unused, mut file) = (Vec::new(), None);
    match read(path) {
        Ok(bytes) => {
            unused = overlay(&mut config, &bytes)
                .map_err(|refusal| Error::File(format!("{path}{refusal}")))?;
            config.pulls.check().map_err(|why| Error::File(format!("{path}: {why}")))?;
            file = Some(path.to_owned());
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && flags.config.is_none() => {}
        Err(error) => return Err(Error::File(format!("cannot read {path}: {error}"))),
    }
    flags.overlay(&mut config).map_err(|wrong| Error::Usage(wrong.to_string()))?;
    if config.node_name.is_empty() {
        let name = hostname.ok_or_else(|| {
            Error::Usage("this machine has no host name: give one with --node-name".to_owned())
        })?;
        config.node_name = table::node_name(&name).map_err(|why| {
            Error::Usage(format!("host name: {why}; give another with --node-name"))
        })?;
    }
    #[cfg(feature = "cloud")]
    let is_open = |path: &String| fs::metadata(path).is_ok_and(|meta| meta.mode() & 0o004 != 0);
    #[cfg(feature = "cloud")]
    let is_exposed = !config.link().token.is_empty() && file.as_ref().is_some_and(is_open);
    #[cfg(not(feature = "cloud"))]
    let is_exposed = false;
    let runtime_reason = settle_runtime(&mut config);
    Ok(Loaded { config, runtime_reason, unused, file, is_exposed })
}

/// The flags over the defaults, for a caller that continues although the file is invalid.
#[cfg(feature = "api")]
pub fn without_file(flags: &[OsString]) -> Result<Config, Error> {
    let mut config = Config::default();
    let flags = Flags::parse(flags).map_err(|error| Error::Usage(error.to_string()))?;
    flags.overlay(&mut config).map_err(|wrong| Error::Usage(wrong.to_string()))?;
    settle_runtime(&mut config);
    Ok(config)
}

/// Chooses a container runtime unless one is named; returns the reason.
fn settle_runtime(config: &mut Config) -> &'static str {
    if config.runtime_is_named {
        return "it is configured";
    }
    let has = |folder: &Path, end: &str| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name());
        names.any(|name| name.as_encoded_bytes().ends_with(end.as_bytes()))
    };
    let seen = runtime::Seen {
        builtin_has_pods: has(&Path::new(&config.builtin.data_dir).join("sb"), ".rec"),
        containerd_has_pods: has(Path::new(runtime::CONTAINERD_PODS), ""),
        other: runtime::OTHERS.into_iter().find(|socket| Path::new(socket).exists()),
    };
    let (chosen, reason) = seen.choose();
    config.runtime = chosen;
    reason
}

fn read(path: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(CONFIG_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > CONFIG_BYTES_MAX {
        let why = format!("got more than {CONFIG_BYTES_MAX} bytes, expected fewer");
        return Err(std::io::Error::other(why));
    }
    Ok(bytes)
}

/// The flags of `edged run`; each overrides the file's key.
#[derive(Debug, Default)]
struct Flags {
    config: Option<String>,
    manifests: Option<String>,
    runtime: Option<String>,
    listen: Option<String>,
    root_dir: Option<String>,
    pod_logs: Option<String>,
    container_logs: Option<String>,
    node_name: Option<String>,
    node_ip: Option<String>,
    log: Option<String>,
}

impl Flags {
    fn parse(flags: &[OsString]) -> Result<Self, lexopt::Error> {
        let mut args = Parser::from_args(flags);
        let mut parsed = Self::default();
        while let Some(arg) = args.next()? {
            let flag = match arg {
                Arg::Long("config") => &mut parsed.config,
                Arg::Long("manifests") => &mut parsed.manifests,
                Arg::Long("runtime") => &mut parsed.runtime,
                Arg::Long("listen") => &mut parsed.listen,
                Arg::Long("root-dir") => &mut parsed.root_dir,
                Arg::Long("pod-logs") => &mut parsed.pod_logs,
                Arg::Long("container-logs") => &mut parsed.container_logs,
                Arg::Long("node-name") => &mut parsed.node_name,
                Arg::Long("node-ip") => &mut parsed.node_ip,
                Arg::Long("log") => &mut parsed.log,
                _ => return Err(arg.unexpected()),
            };
            *flag = Some(args.value()?.string()?);
        }
        Ok(parsed)
    }

    fn overlay(self, config: &mut Config) -> Result<(), Input> {
        set("--manifests", self.manifests, &mut config.manifests, folder)?;
        config.runtime_is_named |= self.runtime.is_some();
        set("--runtime", self.runtime, &mut config.runtime, endpoint)?;
        set("--listen", self.listen, &mut config.listen, listen)?;
        set("--root-dir", self.root_dir, &mut config.root, folder)?;
        set("--pod-logs", self.pod_logs, &mut config.pod_logs, folder)?;
        set("--container-logs", self.container_logs, &mut config.container_logs, folder)?;
        set("--node-name", self.node_name, &mut config.node_name, table::node_name)?;
        set("--node-ip", self.node_ip, &mut config.node_ip, |ip| table::ip(ip).map(Some))?;
        set("--log", self.log, &mut config.log, |level| {
            let expected = "off, error, warn, info, debug or trace";
            level.parse().map_err(|_| Input::quoted(level, expected))
        })
    }
}

fn set<T>(
    flag: &str,
    given: Option<String>,
    setting: &mut T,
    parse: impl Fn(&str) -> Result<T, Input>,
) -> Result<(), Input> {
    if let Some(given) = given {
        *setting = parse(&given).map_err(|wrong| wrong.at(flag))?;
    }
    Ok(())
}

/// A folder as typed in a shell: relative to the working directory.
fn folder(given: &str) -> Result<String, Input> {
    table::folder(&absolute(given)?)
}

/// A socket likewise, or in the form of edgecore.yaml.
fn endpoint(given: &str) -> Result<RuntimeEndpoint, Input> {
    let is_path = !given.contains("://") && given != "builtin";
    if is_path { table::endpoint(&absolute(given)?) } else { table::endpoint(given) }
}

fn absolute(given: &str) -> Result<String, Input> {
    let path = std::path::absolute(given)
        .map_err(|error| Input::new(format_args!("{given:?}: {error}"), ""))?;
    path.into_os_string().into_string().map_err(|_| Input::quoted(given, "UTF-8"))
}

/// `127.0.0.1:10350`, or `off`.
fn listen(given: &str) -> Result<SocketAddr, Input> {
    if given == "off" {
        return Ok(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0));
    }
    let listen: SocketAddr = given.parse().map_err(|_| {
        Input::quoted(given, "an address and a port such as 127.0.0.1:10350, or off")
    })?;
    table::loopback(listen.ip()).map(|_| listen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Refusal;

    fn loaded(flags: &[&str]) -> Result<Loaded, Error> {
        let flags: Vec<OsString> = flags.iter().map(Into::into).collect();
        load(&flags, Some("gw".to_owned()))
    }

    /// A configuration with this in `modules.edged`, all of it with effect.
    pub fn edged_section(section: &str) -> Result<Config, Refusal> {
        let text = format!("modules: {{edged: {{{section}}}}}\n");
        let mut config = Config::default();
        let unused = overlay(&mut config, text.as_bytes())?;
        assert_eq!(unused, [] as [&str; 0]);
        Ok(config)
    }

    #[test]
    fn what_has_no_effect_is_counted_and_named_in_short() {
        let unused: Vec<String> = (0..40).map(|n| format!("modules.edged.key{n}")).collect();
        let file = Some("/e.yaml".to_owned());
        let loaded = Loaded {
            config: Config::default(),
            runtime_reason: "",
            unused,
            file,
            is_exposed: false,
        };
        let given = loaded.warnings().remove(0);
        let some = "/e.yaml: 40 keys have no effect in edged: modules.edged.key0, ";
        assert!(given.starts_with(some), "{given}");
        assert_eq!(
            given.ends_with("`edged check` names them all"),
            cfg!(feature = "api"),
            "{given}"
        );
    }

    #[cfg(feature = "cloud")]
    #[test]
    fn a_token_that_every_user_can_read_is_named() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("edged-config-{}", std::process::id()));
        let file = path.to_str().expect("UTF-8");
        for (token, mode, expected) in
            [("a.b.c.d", 0o644, true), ("a.b.c.d", 0o640, false), ("''", 0o644, false)]
        {
            let text =
                format!("modules: {{edgeHub: {{httpServer: 'https://c:1', token: {token}}}}}\n");
            fs::write(&path, text).expect("a file for the test");
            let set = fs::set_permissions(&path, fs::Permissions::from_mode(mode));
            set.expect("a file for the test");
            let loaded = loaded(&["--config", file]).expect("a good file");
            assert_eq!(loaded.is_exposed, expected, "{token} {mode:o}");
            let named =
                loaded.warnings().iter().any(|given| given.contains("can be read by every user"));
            assert_eq!(named, expected, "{token} {mode:o}");
        }
        fs::remove_file(&path).expect("a file for the test");
    }

    #[test]
    fn records_of_sandboxes_are_pods_and_a_name_stands_over_them() {
        let data = std::env::temp_dir().join(format!("edged-choice-{}", std::process::id()));
        fs::create_dir_all(data.join("sb")).expect("a folder of ours");
        let chosen = || {
            let mut config = Config::default();
            config.builtin.data_dir = data.to_string_lossy().into_owned();
            let reason = settle_runtime(&mut config);
            (config.runtime.to_string(), reason)
        };
        fs::write(data.join("sb/tmp"), "").expect("a file of ours");
        let without = chosen();
        fs::write(data.join("sb/0123.rec"), "").expect("a file of ours");
        let expected = ("ttrpc:///run/edged/rt/sock".to_owned(), "it has pods");
        assert_eq!(chosen() == expected, cfg!(feature = "runtime"), "{:?}", chosen());
        assert_ne!(without, expected, "there is no record");
        let named = RuntimeEndpoint::grpc("/run/c.sock");
        let mut config =
            Config { runtime: named.clone(), runtime_is_named: true, ..Config::default() };
        assert_eq!(settle_runtime(&mut config), "it is configured");
        assert_eq!(config.runtime, named);
        fs::remove_dir_all(&data).expect("ours");
    }

    const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/edgecore.yaml");

    #[test]
    fn flags_stand_over_the_file() {
        let Loaded { config, unused, .. } =
            loaded(&["--config", SHIPPED]).expect("the shipped file");
        // What is chosen depends on the machine.
        let runtime = config.runtime.clone();
        assert_eq!(config, Config { node_name: "gw".to_owned(), runtime, ..Config::default() });
        assert_eq!(unused, [] as [&str; 0]);
        let flags = [
            "--config",
            SHIPPED,
            "--manifests=/m/",
            "--runtime",
            "/run/crio.sock",
            "--listen",
            "[::1]:80",
            "--pod-logs=/p",
            "--container-logs=/c",
            "--node-name=Edge-1",
            "--node-ip=10.0.0.7",
            "--log=debug",
        ];
        let want = Config {
            node_name: "edge-1".to_owned(),
            node_ip: Some([10, 0, 0, 7].into()),
            manifests: "/m".to_owned(),
            runtime: RuntimeEndpoint::grpc("/run/crio.sock"),
            runtime_is_named: true,
            pod_logs: "/p".to_owned(),
            container_logs: "/c".to_owned(),
            listen: "[::1]:80".parse().expect("an address"),
            log: LevelFilter::Debug,
            ..Config::default()
        };
        assert_eq!(loaded(&flags).map(|loaded| loaded.config), Ok(want));
    }

    #[test]
    fn wrong_flags_are_named() {
        for (flags, want) in [
            (&["--manifest=/m"][..], "invalid option '--manifest'"),
            (&["here"], "unexpected argument \"here\""),
            (&["--manifests=../m"], "/../m\", expected an absolute path"),
            (&["--manifests="], "--manifests: got \"\": "),
            (&["--runtime=tcp://x"], "--runtime: got \"tcp://x\", expected unix:///"),
            (&["--listen=0.0.0.0:10350"], "--listen: got 0.0.0.0, expected a loopback address"),
            (&["--listen=10350"], "--listen: got \"10350\", expected an address and a port"),
            (&["--node-name=a_b"], "--node-name: got \"a_b\", expected"),
            (&["--node-ip=here"], "--node-ip: got \"here\", expected an IP address"),
            (&["--log=loud"], "--log: got \"loud\", expected off, error, warn"),
        ] {
            let flags = [&["--config", SHIPPED][..], flags].concat();
            match loaded(&flags) {
                Err(Error::Usage(why)) => assert!(why.contains(want), "{why}\n{want}"),
                other => panic!("{flags:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_file_that_is_longer_than_any_configuration_is_refused() {
        let path = std::env::temp_dir().join(format!("edged-long-{}", std::process::id()));
        for beyond in [0, 1] {
            let mut text = "kind: EdgeCore\n".to_owned();
            text += &"#".repeat(CONFIG_BYTES_MAX - text.len() + beyond);
            fs::write(&path, text).expect("a file for the test");
            let loaded = loaded(&["--config", path.to_str().expect("UTF-8")]);
            let why = loaded.err().map(|error| match error {
                Error::File(why) | Error::Usage(why) => why,
            });
            let given = format!(
                "cannot read {}: got more than {CONFIG_BYTES_MAX} bytes, expected fewer",
                path.display()
            );
            assert_eq!(why, (beyond > 0).then_some(given));
        }
        fs::remove_file(&path).expect("a file for the test");
    }

    #[test]
    fn a_file_that_was_named_must_be_there_and_right() {
        let missing = loaded(&["--config=/nowhere/edgecore.yaml"]);
        let Err(Error::File(why)) = missing else { panic!("{missing:?}") };
        assert!(why.starts_with("cannot read /nowhere/edgecore.yaml: "), "{why}");
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let wrong = loaded(&["--config", manifest]);
        let Err(Error::File(why)) = wrong else { panic!("{wrong:?}") };
        assert!(why.starts_with(&format!("{manifest}:1:")), "{why}");
    }

    #[test]
    fn paths_on_the_command_line_may_be_relative() {
        let here = std::env::current_dir().expect("a folder");
        let flags = ["--config", SHIPPED, "--manifests=./m/", "--runtime=c.sock"];
        let config = loaded(&flags).expect("flags").config;
        assert_eq!(config.manifests, here.join("m").to_string_lossy());
        assert_eq!(config.runtime.path(), here.join("c.sock"));
    }

    #[test]
    fn the_api_can_be_switched_off() {
        let loaded = loaded(&["--config", SHIPPED, "--listen=off"]).expect("flags");
        assert_eq!(loaded.config.listen.port(), 0);
    }

    #[test]
    fn a_node_without_a_usable_name_is_refused() {
        let flags: Vec<OsString> = vec!["--config".into(), SHIPPED.into()];
        for (hostname, want) in [
            (None, "this machine has no host name"),
            (Some("my_host".to_owned()), "host name: got \"my_host\", expected"),
        ] {
            let got = load(&flags, hostname);
            let Err(Error::Usage(why)) = got else { panic!("{got:?}") };
            assert!(why.starts_with(want) && why.contains("--node-name"), "{why}");
        }
    }
}
