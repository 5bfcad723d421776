//! The flags of `edgecontroller run`, parsed into types.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use log::LevelFilter;

use crate::controller::AccessRules;
use crate::controller::dynamic::access::{Access, READS, RequestUser};
use crate::controller::identity::EnrolAgain;
use crate::model::error::Input;

/// The command line.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `--listen-hub`: the address for nodes' websockets.
    pub hub: SocketAddr,
    /// `--listen-https`: the address for certificate requests.
    pub https: SocketAddr,
    /// `--listen-tunnel`: the address for nodes' stream tunnels; port 0: off.
    pub tunnel: SocketAddr,
    /// `--listen-stream`: the address for kube-apiserver's requests; port 0: off. `None`: the
    /// default for the source.
    pub stream: Option<SocketAddr>,
    /// `--stream-cert` and `--stream-key`: files with the server's certificate there; `None`: that
    /// of `CloudCore`'s Secret, or one of our own CA.
    pub stream_identity: (Option<PathBuf>, Option<PathBuf>),
    /// `--stream-client-ca`: a file with the CA of clients there; `None`: the cluster says it.
    pub stream_client_ca: Option<PathBuf>,
    /// `--stream-clients any`: nobody's certificate is verified there.
    pub any_stream_client: bool,
    /// `--listen-router`: the address of the REST entry for custom messages; `None`: off.
    pub router: Option<SocketAddr>,
    /// `--router-token`: the file with the token of its clients.
    pub router_token: Option<PathBuf>,
    /// `--router-cert` and `--router-key`: files with the server's certificate there; `None`: one
    /// of our own CA.
    pub router_identity: (Option<PathBuf>, Option<PathBuf>),
    /// `--router-tls off`: plain HTTP there.
    pub is_router_plain: bool,
    /// `--rest-ca`: a file with the CAs of rules' REST endpoints; `None`: the system's.
    pub rest_ca: Option<PathBuf>,
    /// `--api`: the address for health, metrics and the page, on loopback.
    pub api: SocketAddr,
    /// `--kubeconfig` or `--in-cluster`; otherwise the folder.
    pub source: Source,
    /// `--namespace`: of the Secrets with the CA and the token.
    pub namespace: String,
    /// `--manifests`
    pub manifests: PathBuf,
    /// `--data`: keys and the store.
    pub data: PathBuf,
    /// `--advertise`: names and addresses under which nodes connect.
    pub names: Vec<String>,
    /// `--certificate-days`
    pub certificate_days: u32,
    /// `--enrol-again`; `None`: the default for the source.
    pub enrol_again: Option<EnrolAgain>,
    /// `--metaserver-reads`, `--metaserver-writes` and `--metaserver-user`: what nodes may request
    /// through their `MetaServers`; `None`: nothing.
    pub access: Option<Access>,
    /// `--access-rules`: whether nodes get the rules of the service accounts of their pods.
    pub access_rules: AccessRules,
    /// `--keepalive`, in milliseconds.
    pub keepalive_ms: u64,
    /// `--node-limit`
    pub nodes_max: usize,
    /// `--log`
    pub log: LevelFilter,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            hub: ([0, 0, 0, 0], 10_000).into(),
            https: ([0, 0, 0, 0], 10_002).into(),
            tunnel: ([0, 0, 0, 0], 10_004).into(),
            stream: None,
            stream_identity: (None, None),
            stream_client_ca: None,
            any_stream_client: false,
            router: None,
            router_token: None,
            router_identity: (None, None),
            is_router_plain: false,
            rest_ca: None,
            api: API,
            source: Source::Folder,
            namespace: "kubeedge".to_owned(),
            manifests: "/etc/edgecontroller/manifests".into(),
            data: "/var/lib/edgecontroller".into(),
            names: Vec::new(),
            certificate_days: 365,
            enrol_again: None,
            access: None,
            access_rules: AccessRules::Off,
            keepalive_ms: 30_000,
            nodes_max: 10_000,
            log: LevelFilter::Info,
        }
    }
}

/// The source of the objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// This process, with the folder of manifests.
    Folder,
    /// A cluster, by this kubeconfig.
    Kubeconfig(PathBuf),
    /// The cluster in which this process is a pod.
    Cluster,
}

/// The default address of our own API.
pub const API: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 10_020);

/// `CloudCore`'s port for kube-apiserver.
const STREAM: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 10_003);
/// Of a port.
const OFF: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

impl Settings {
    /// Parses the flags. `host`: this machine's name, under which nodes may connect as well.
    pub fn parse(
        flags: impl IntoIterator<Item = OsString>,
        host: Option<String>,
    ) -> Result<Self, Input> {
        use lexopt::prelude::*;
        let mut settings = Self::default();
        let mut metaserver = MetaServerFlags::default();
        let mut parser = lexopt::Parser::from_args(flags);
        let bad = |error: lexopt::Error| Input::other(error.to_string());
        while let Some(flag) = parser.next().map_err(bad)? {
            let Long(name) = flag else { return Err(bad(flag.unexpected())) };
            let name = name.to_owned();
            if name == "in-cluster" {
                settings.source = Source::Cluster;
                continue;
            }
            let value = parser.value().map_err(bad)?;
            let text = value.to_string_lossy().into_owned();
            let expected =
                |what: &str| Input::quoted(&text, what.to_owned()).at(format_args!("--{name}"));
            let address = || text.parse().map_err(|_| expected("an address and a port"));
            let within = |limit: u64| match text.parse::<u64>() {
                Ok(number) if (1..=limit).contains(&number) => Ok(number),
                _ => Err(expected(&format!("a whole number from 1 to {limit}"))),
            };
            match &*name {
                "listen-hub" => settings.hub = address()?,
                "listen-https" => settings.https = address()?,
                "listen-tunnel" if text == "off" => settings.tunnel.set_port(0),
                "listen-tunnel" => settings.tunnel = address()?,
                "listen-stream" if text == "off" => settings.stream = Some(OFF),
                "listen-stream" => settings.stream = Some(address()?),
                "stream-clients" => {
                    let value = any_client(&text).ok_or_else(|| expected("verified or any"))?;
                    settings.any_stream_client = value;
                }
                _ if settings.set_router(&name, &text)? || settings.set_file(&name, &text) => {}
                _ if metaserver.set(&name, &text) => {}
                "api" if text == "off" => settings.api.set_port(0),
                "api" => {
                    settings.api = address()?;
                    if !settings.api.ip().is_loopback() {
                        return Err(expected("an address of loopback"));
                    }
                }
                "kubeconfig" => settings.source = Source::Kubeconfig(value.into()),
                "namespace" => settings.namespace = text,
                "manifests" => settings.manifests = value.into(),
                "data" => settings.data = value.into(),
                "advertise" => {
                    settings.names = text.split(',').map(str::trim).map(str::to_owned).collect();
                }
                "certificate-days" => settings.certificate_days = within(36_500)? as u32,
                "enrol-again" => {
                    let value = enrol_again(&text).ok_or_else(|| expected("allow or refuse"))?;
                    settings.enrol_again = Some(value);
                }
                "keepalive" => settings.keepalive_ms = within(86_400)? * 1_000,
                "node-limit" => settings.nodes_max = within(16_000)? as usize,
                "log" => {
                    let levels = "off, error, warn, info, debug or trace";
                    settings.log = text.parse().map_err(|_| expected(levels))?;
                }
                _ => return Err(Input::new(format_args!("--{name}"), "a flag that `help` names")),
            }
        }
        settings.access = metaserver.access()?;
        settings.access_rules = metaserver.rules()?;
        settings.complete(host)
    }

    /// Adds what follows from the flags, and checks that they fit each other.
    fn complete(mut self, host: Option<String>) -> Result<Self, Input> {
        self.complete_names(host);
        self.ports_differ()?;
        self.stream_is_complete()?;
        self.router_is_complete()?;
        Ok(self)
    }

    /// Whether it is one of the flags of the REST entry.
    fn set_router(&mut self, flag: &str, text: &str) -> Result<bool, Input> {
        let wrong = |expected| Input::quoted(text, expected).at(format_args!("--{flag}"));
        match flag {
            "listen-router" if text == "off" => self.router = None,
            "listen-router" => {
                let address = text.parse().map_err(|_| wrong("an address and a port"))?;
                self.router = Some(address);
            }
            "router-tls" => self.is_router_plain = off(text).ok_or_else(|| wrong("on or off"))?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether it is one of the flags with a file of a port.
    fn set_file(&mut self, flag: &str, path: &str) -> bool {
        let file = match flag {
            "stream-cert" => &mut self.stream_identity.0,
            "stream-key" => &mut self.stream_identity.1,
            "stream-client-ca" => &mut self.stream_client_ca,
            "router-token" => &mut self.router_token,
            "router-cert" => &mut self.router_identity.0,
            "router-key" => &mut self.router_identity.1,
            "rest-ca" => &mut self.rest_ca,
            _ => return false,
        };
        *file = Some(path.into());
        true
    }

    fn complete_names(&mut self, host: Option<String>) {
        if self.names.is_empty() {
            self.names = host.into_iter().collect();
            if !self.hub.ip().is_unspecified() {
                self.names.push(self.hub.ip().to_string());
            }
        }
        for name in ["127.0.0.1", "localhost"] {
            if !self.names.iter().any(|known| known == name) {
                self.names.push(name.to_owned());
            }
        }
    }

    /// Otherwise the second listener would wait for ever for the address of the first.
    fn ports_differ(&self) -> Result<(), Input> {
        // `[::]` includes all IPv4 addresses.
        let overlaps = |a: SocketAddr, b: SocketAddr| {
            a.ip() == b.ip() || a.ip().is_unspecified() && (a.is_ipv6() || b.is_ipv4())
        };
        let hub = ("--listen-hub", self.hub);
        let (https, api) = (("--listen-https", self.https), ("--api", self.api));
        let tunnel = ("--listen-tunnel", self.tunnel);
        let stream = ("--listen-stream", self.stream().unwrap_or(OFF));
        let router = ("--listen-router", self.router.unwrap_or(OFF));
        let all = [hub, https, tunnel, stream, router, api];
        let pairs = (1..all.len()).flat_map(|at| all[..at].iter().map(move |one| (all[at], *one)));
        for ((name, at), (other, theirs)) in pairs {
            let one_port = at.port() == theirs.port() && at.port() != 0;
            if one_port && (overlaps(at, theirs) || overlaps(theirs, at)) {
                let expected = format!("another port than {other}'s");
                return Err(Input::new(at, expected).at(name));
            }
        }
        Ok(())
    }

    /// Where kube-apiserver's requests are accepted. In a cluster by default where `CloudCore` has
    /// it, if nodes can open tunnels.
    pub fn stream(&self) -> Option<SocketAddr> {
        let by_default = match self.source {
            Source::Folder => OFF,
            Source::Kubeconfig(_) | Source::Cluster if self.tunnel.port() == 0 => OFF,
            Source::Kubeconfig(_) | Source::Cluster => STREAM,
        };
        Some(self.stream.unwrap_or(by_default)).filter(|at| at.port() != 0)
    }

    fn stream_is_complete(&self) -> Result<(), Input> {
        if self.stream_identity.0.is_some() != self.stream_identity.1.is_some() {
            return Err(Input::other("--stream-cert and --stream-key: got one, expected both"));
        }
        let has_clients = self.stream_client_ca.is_some() || self.any_stream_client;
        if self.stream().is_some() && self.source == Source::Folder && !has_clients {
            return Err(Input::other(
                "--listen-stream: expected --stream-client-ca as well: no cluster says whose \
                 requests are accepted",
            ));
        }
        Ok(())
    }

    fn router_is_complete(&self) -> Result<(), Input> {
        if self.router_identity.0.is_some() != self.router_identity.1.is_some() {
            return Err(Input::other("--router-cert and --router-key: got one, expected both"));
        }
        let Some(address) = self.router else { return Ok(()) };
        if self.router_token.is_none() {
            return Err(Input::other("--listen-router: expected --router-token FILE as well"));
        }
        if self.is_router_plain && !address.ip().is_loopback() {
            let expected = "an address of loopback where --router-tls is off";
            return Err(Input::new(address, expected).at("--listen-router"));
        }
        Ok(())
    }

    /// Whether any token gives an existing node another certificate. In a cluster yes, as in
    /// CloudCore; without a cluster a token for that node is required.
    pub fn enrol_again(&self) -> EnrolAgain {
        self.enrol_again.unwrap_or(match self.source {
            Source::Folder => EnrolAgain::Refuse,
            Source::Kubeconfig(_) | Source::Cluster => EnrolAgain::Allow,
        })
    }

    /// The folder of the keys.
    pub fn pki(&self) -> PathBuf {
        self.data.join("pki")
    }

    /// The unix socket of our own API: full access, for this folder's owner and root.
    pub fn socket(&self) -> PathBuf {
        self.data.join("api.sock")
    }

    /// The file with the token for who looks at the page on our port.
    pub fn token(&self) -> PathBuf {
        self.data.join("api.token")
    }

    /// The store's file.
    pub fn store(&self) -> PathBuf {
        self.data.join("controller.db")
    }
}

/// The flags of what nodes may request, as they came.
struct MetaServerFlags {
    reads: String,
    writes: String,
    user: String,
    rules: String,
}

impl Default for MetaServerFlags {
    fn default() -> Self {
        let [reads, writes, user, rules] = [READS, "", "controller", "off"].map(str::to_owned);
        Self { reads, writes, user, rules }
    }
}

impl MetaServerFlags {
    /// Whether it is one of them.
    fn set(&mut self, flag: &str, text: &str) -> bool {
        let value = match flag {
            "metaserver-reads" => &mut self.reads,
            "metaserver-writes" => &mut self.writes,
            "metaserver-user" => &mut self.user,
            "access-rules" => &mut self.rules,
            _ => return false,
        };
        text.clone_into(value);
        true
    }

    /// Whether nodes get the rules of service accounts.
    fn rules(&self) -> Result<AccessRules, Input> {
        match off(&self.rules) {
            Some(true) => Ok(AccessRules::Off),
            Some(false) => Ok(AccessRules::On),
            None => Err(Input::quoted(&self.rules, "on or off").at("--access-rules")),
        }
    }

    /// What nodes may request; `None`: nothing.
    fn access(&self) -> Result<Option<Access>, Input> {
        let Self { reads, writes, user, rules: _ } = self;
        let user = match &**user {
            "controller" => RequestUser::Controller,
            "node" => RequestUser::Node,
            other => return Err(Input::quoted(other, "controller or node").at("--metaserver-user")),
        };
        if reads == "off" {
            let why = "--metaserver-writes: expected --metaserver-reads not to be off";
            return if writes.is_empty() { Ok(None) } else { Err(Input::other(why)) };
        }
        // Each list is named by its flag.
        let _ = Access::parse(reads, "", user).map_err(|why| why.at("--metaserver-reads"))?;
        let access = Access::parse(reads, writes, user);
        access.map(Some).map_err(|why| why.at("--metaserver-writes"))
    }
}

fn any_client(text: &str) -> Option<bool> {
    match text {
        "any" => Some(true),
        "verified" => Some(false),
        _ => None,
    }
}

fn off(text: &str) -> Option<bool> {
    match text {
        "off" => Some(true),
        "on" => Some(false),
        _ => None,
    }
}

fn enrol_again(text: &str) -> Option<EnrolAgain> {
    match text {
        "allow" => Some(EnrolAgain::Allow),
        "refuse" => Some(EnrolAgain::Refuse),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Settings, Input> {
        Settings::parse(flags.iter().map(Into::into), Some("host".to_owned()))
    }

    #[test]
    fn the_rest_entry_needs_a_token_and_is_plain_on_loopback_alone() {
        let with = |flags: &[&str]| {
            let on = ["--listen-router", "192.0.2.1:9443", "--router-token", "t"];
            parse(&[&on[..], flags].concat())
        };
        let settings = with(&[]).expect("fine");
        assert_eq!(settings.router, Some(([192, 0, 2, 1], 9_443).into()));
        assert!(!settings.is_router_plain);
        assert_eq!(parse(&[]).expect("fine").router, None, "it is off");
        assert_eq!(with(&["--listen-router=off"]).expect("fine").router, None);
        let plain = ["--listen-router=127.0.0.1:9443", "--router-tls", "off"];
        assert!(with(&plain).expect("on loopback").is_router_plain);
        for (flags, expected) in [
            (&["--router-tls", "off"][..], "--listen-router: got 192.0.2.1:9443, expected an addr"),
            (&["--router-tls", "no"], "--router-tls: got \"no\", expected on or off"),
            (&["--router-key", "k"], "--router-cert and --router-key: got one, expected both"),
            (&["--listen-router", "0.0.0.0:10000"], "--listen-router: got 0.0.0.0:10000, expecte"),
        ] {
            let why = with(flags).expect_err("a mistake").to_string();
            assert!(why.starts_with(expected), "{why}");
        }
        let why = parse(&["--listen-router", "127.0.0.1:1"]).expect_err("no token").to_string();
        assert_eq!(why, "--listen-router: expected --router-token FILE as well");
    }

    #[test]
    fn flags_are_read_and_mistakes_named() {
        let settings = parse(&["--listen-hub", "192.0.2.1:1", "--keepalive=5"]).expect("fine");
        assert_eq!(settings.keepalive_ms, 5_000);
        assert_eq!(settings.names, ["host", "192.0.2.1", "127.0.0.1", "localhost"]);
        let apart = ["--listen-hub", "192.0.2.1:9", "--listen-https", "192.0.2.2:9"];
        parse(&apart).expect("one port of two addresses");
        let any = ["--listen-hub", "127.0.0.1:0", "--listen-https", "127.0.0.1:0", "--api", "off"];
        parse(&any).expect("the kernel's choice");
        parse(&["--listen-hub", "0.0.0.0:9", "--api", "[::1]:9"]).expect("one is of IPv6");
        let enrol_again_of = |flags: &[&str]| parse(flags).expect("fine").enrol_again();
        assert_eq!(enrol_again_of(&[]), EnrolAgain::Refuse);
        assert_eq!(enrol_again_of(&["--in-cluster"]), EnrolAgain::Allow, "as CloudCore");
        assert_eq!(enrol_again_of(&["--in-cluster", "--enrol-again=refuse"]), EnrolAgain::Refuse);
        let settings = parse(&["--advertise", "a.example, 192.0.2.7"]).expect("fine");
        assert_eq!(settings.names, ["a.example", "192.0.2.7", "127.0.0.1", "localhost"]);
        assert_eq!(parse(&[]).expect("fine").tunnel.port(), 10_004);
        for off in ["off", "0.0.0.0:0"] {
            assert_eq!(parse(&["--listen-tunnel", off]).expect("fine").tunnel.port(), 0);
        }
        let stream_of = |flags: &[&str]| parse(flags).expect("fine").stream();
        assert_eq!(stream_of(&[]), None, "there is no kube-apiserver");
        assert_eq!(stream_of(&["--in-cluster"]), Some(STREAM), "as CloudCore");
        assert_eq!(stream_of(&["--in-cluster", "--listen-tunnel", "off"]), None);
        assert_eq!(stream_of(&["--in-cluster", "--listen-stream", "off"]), None);
        let own = ["--listen-stream", "127.0.0.1:7", "--stream-client-ca", "ca.crt"];
        assert_eq!(stream_of(&own), Some(([127, 0, 0, 1], 7).into()));
        assert!(!parse(&["--in-cluster"]).expect("fine").any_stream_client);
        for (flags, expected) in [
            (&["--listen-stream", "127.0.0.1:7"][..], "--listen-stream: expected --stream-client"),
            (&["--in-cluster", "--stream-key", "k"], "--stream-cert and --stream-key: got one, ex"),
            (&["--stream-clients", "x"], "--stream-clients: got \"x\", expected verified or any"),
            (&["--in-cluster", "--api", "127.0.0.1:10003"], "--api: got 127.0.0.1:10003, expecte"),
            (&["--in-cluster", "--listen-hub", "[::]:10003"], "--listen-stream: got 0.0.0.0:1000"),
        ] {
            let why = parse(flags).expect_err("a mistake").to_string();
            assert!(why.starts_with(expected), "{why}");
        }
        for (flags, expected) in [
            (&["--api", "192.0.2.1:1"][..], "--api: got \"192.0.2.1:1\", expected an address of"),
            (&["--keepalive", "x"], "--keepalive: got \"x\", expected a whole number"),
            (&["--enrol-again", "x"], "--enrol-again: got \"x\", expected allow or refuse"),
            (&["--node-limit", "16001"], "--node-limit: got \"16001\", expected a whole number f"),
            (&["--what", "x"], "got --what, expected"),
            (&["x"], "unexpected argument \"x\""),
            (&["--listen-https", "192.0.2.1:10000"], "--listen-https: got 192.0.2.1:10000, expec"),
            (&["--listen-hub", "[::]:9", "--api", "127.0.0.1:9"], "--api: got 127.0.0.1:9, expect"),
            (&["--listen-tunnel", "on"], "--listen-tunnel: got \"on\", expected an address and a"),
            (&["--listen-tunnel", "[::]:10002"], "--listen-tunnel: got [::]:10002, expected anoth"),
            (&["--api", "127.0.0.1:10004"], "--api: got 127.0.0.1:10004, expected another port"),
            (&["--api", "127.0.0.1:10002"], "--api: got 127.0.0.1:10002, expected another port"),
        ] {
            let why = parse(flags).expect_err("a mistake").to_string();
            assert!(why.starts_with(expected), "{why}");
        }
    }

    #[test]
    fn what_nodes_may_request_is_read() {
        let access_of = |flags: &[&str]| parse(flags).expect("fine").access;
        assert_eq!(access_of(&["--metaserver-reads", "off"]), None);
        let expected = Access::parse(READS, "", RequestUser::Controller).expect("a list");
        assert_eq!(access_of(&[]), Some(expected), "reads of a list, and no writes");
        let expected = Access::parse("nodes", "pods", RequestUser::Node).expect("lists");
        let flags =
            ["--metaserver-reads=nodes", "--metaserver-writes=pods", "--metaserver-user=node"];
        assert_eq!(access_of(&flags), Some(expected));
        let rules_of = |flags: &[&str]| parse(flags).expect("fine").access_rules;
        assert_eq!(rules_of(&[]), AccessRules::Off, "as CloudCore");
        assert_eq!(rules_of(&["--access-rules", "on"]), AccessRules::On);
        for (flags, expected) in [
            (&["--metaserver-reads", "Pods"][..], "--metaserver-reads: got \"Pods\", expected R"),
            (&["--metaserver-writes", "*"], "--metaserver-writes: got \"*\", expected RESOURCE"),
            (&["--access-rules", "x"], "--access-rules: got \"x\", expected on or off"),
            (&["--metaserver-user", "x"], "--metaserver-user: got \"x\", expected controller or"),
            (
                &["--metaserver-reads", "off", "--metaserver-writes", "pods"],
                "--metaserver-writes: expected --metaserver-reads",
            ),
        ] {
            let why = parse(flags).expect_err("a mistake").to_string();
            assert!(why.starts_with(expected), "{why}");
        }
    }
}
