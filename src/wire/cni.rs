//! CNI: configurations of networks, what plugins are given and what they say (CNI specification
//! 1.0.0, sections 1 to 4; the results of all versions since 0.1.0 are read).
//!
//! A configuration and a result are kept as JSON: plugins define most of their fields. Not here:
//! which file, which program, deadlines (`io::builtin::cni`).

use core::net::IpAddr;
use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::limits::{CNI_CONFIG_BYTES_MAX, CNI_PLUGINS_MAX};
use crate::model::cri::{PortMapping, Protocol, SandboxConfig};
use crate::model::error::{Input, Peer};
use crate::model::quantity::Quantity;

/// The interface in a sandbox.
pub const INTERFACE: &str = "eth0";

/// One network configuration list, or a single plugin's configuration as a list of one.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    name: Box<str>,
    version: Box<str>,
    plugins: Vec<Plugin>,
    /// As it was written, to be kept for DEL.
    source: Value,
}

/// One plugin's configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Plugin {
    /// `type`: the program's name, a single component of a path.
    kind: Box<str>,
    config: Map<String, Value>,
}

impl Plugin {
    pub fn kind(&self) -> &str {
        &self.kind
    }

    fn declares(&self, capability: &str) -> bool {
        self.config.get("capabilities").is_some_and(|all| all[capability] == true)
    }
}

impl Network {
    /// Reads a `*.conflist`, `*.conf` or `*.json`.
    pub fn parse(bytes: &[u8]) -> Result<Self, Input> {
        if bytes.len() > CNI_CONFIG_BYTES_MAX {
            let got = format_args!("{} bytes", bytes.len());
            return Err(Input::new(got, format!("{CNI_CONFIG_BYTES_MAX} at most")));
        }
        let value = serde_json::from_slice(bytes).map_err(|why| Input::other(why.to_string()))?;
        Self::of(value)
    }

    fn of(source: Value) -> Result<Self, Input> {
        let word = |key: &str| match &source[key] {
            Value::Null => Ok(""),
            Value::String(word) => Ok(word.as_str()),
            other => Err(Input::new(other, "a text").at(key)),
        };
        let name = word("name")?;
        if !is_name(name) {
            return Err(Input::quoted(name, "letters, digits and «._-»").at("name"));
        }
        let version = Some(word("cniVersion")?).filter(|version| !version.is_empty());
        let plugins = match &source["plugins"] {
            Value::Null => std::slice::from_ref(&source),
            Value::Array(list) if (1..=CNI_PLUGINS_MAX).contains(&list.len()) => list,
            Value::Array(list) => {
                let got = format_args!("{} plugins", list.len());
                return Err(Input::new(got, format!("1 to {CNI_PLUGINS_MAX}")).at("plugins"));
            }
            other => return Err(Input::new(other, "a list").at("plugins")),
        };
        let plugins = plugins.iter().enumerate().map(|(index, plugin)| {
            let kind = plugin["type"].as_str().unwrap_or_default();
            match plugin {
                Value::Object(config) if is_name(kind) => {
                    Ok(Plugin { kind: kind.into(), config: config.clone() })
                }
                _ => Err(Input::new(&plugin["type"], "the name of a program")
                    .at("type")
                    .at(format_args!("plugin {}", index + 1))),
            }
        });
        Ok(Self {
            name: name.into(),
            version: version.unwrap_or("0.1.0").into(),
            plugins: plugins.collect::<Result<_, _>>()?,
            source,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// All plugins, in their order.
    pub fn plugins(&self) -> &[Plugin] {
        &self.plugins
    }

    /// There is nothing but the loopback interface, which a sandbox has without CNI.
    pub fn is_loopback(&self) -> bool {
        self.plugins.iter().all(Plugin::is_loopback)
    }

    /// The plugins that have something to do, in the order of ADD: not `loopback`, since the
    /// interface is up already, nor a `portmap` at the end that has no port to map, since it would
    /// only hand on the result.
    pub fn chain(&self, config: &SandboxConfig) -> Vec<&Plugin> {
        let mut chain: Vec<_> = self.plugins.iter().filter(|it| !it.is_loopback()).collect();
        let idle = |plugin: &&Plugin| &*plugin.kind == "portmap" && plugin.declares(PORT_MAPPINGS);
        if chain.last().is_some_and(idle) && mapped(config).next().is_none() {
            chain.pop();
        }
        chain
    }

    /// Standard input of a plugin: its configuration with `name`, `cniVersion`, `runtimeConfig`
    /// and `prevResult`.
    pub fn input(
        &self,
        plugin: &Plugin,
        config: &SandboxConfig,
        previous: Option<&Value>,
    ) -> Result<Vec<u8>, Input> {
        let mut object = plugin.config.clone();
        object.remove("capabilities");
        object.insert("name".to_owned(), json!(self.name));
        object.insert("cniVersion".to_owned(), json!(self.version));
        let mut runtime = Map::new();
        for (name, value) in [
            (PORT_MAPPINGS, Some(mapped(config).map(port_mapping).collect())),
            ("bandwidth", bandwidth(&config.annotations)?),
            ("dns", config.dns.as_ref().map(|dns| {
                json!({"servers": dns.servers, "searches": dns.searches, "options": dns.options})
            })),
            ("io.kubernetes.cri.pod-annotations", Some(json!(config.annotations))),
        ] {
            if let Some(value) = value.filter(|_| plugin.declares(name)) {
                runtime.insert(name.to_owned(), value);
            }
        }
        if !runtime.is_empty() {
            object.insert("runtimeConfig".to_owned(), Value::Object(runtime));
        }
        if let Some(previous) = previous {
            object.insert("prevResult".to_owned(), previous.clone());
        }
        Ok(Value::Object(object).to_string().into_bytes())
    }

    /// The subnets that the node masquerades: those of host-local, where the configuration has
    /// edged's own key `"edged": {"masquerade": true}`, as the one that edged ships has.
    pub fn masqueraded(&self) -> Result<Vec<Subnet>, Input> {
        let mut subnets = Vec::new();
        if self.source["edged"]["masquerade"] != true {
            return Ok(subnets);
        }
        for ipam in self.plugins.iter().filter_map(|plugin| plugin.config.get("ipam")) {
            let sets = ipam["ranges"].as_array().into_iter().flatten();
            let ranges = sets.filter_map(Value::as_array).flatten();
            for range in ranges.chain([ipam]).map(|range| &range["subnet"]) {
                if !range.is_null() {
                    subnets.push(Subnet::parse(range)?);
                }
            }
        }
        Ok(subnets)
    }
}

impl Plugin {
    fn is_loopback(&self) -> bool {
        &*self.kind == "loopback"
    }
}

/// `10.88.0.0/16`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet {
    pub address: IpAddr,
    pub bits: u8,
}

impl Subnet {
    fn parse(value: &Value) -> Result<Self, Input> {
        let text = value.as_str().unwrap_or_default();
        let parsed = text.split_once('/').and_then(|(address, bits)| {
            Some(Self { address: address.parse().ok()?, bits: bits.parse().ok()? })
        });
        let most = |subnet: &Self| if subnet.address.is_ipv4() { 32 } else { 128 };
        parsed
            .filter(|subnet| subnet.bits <= most(subnet))
            .ok_or_else(|| Input::new(value, "an address and a number of bits").at("subnet"))
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// What is kept from ADD to DEL.
#[derive(Clone, Debug, PartialEq)]
pub struct Attachment {
    pub network: Network,
    /// `None`: ADD may have begun, and has not ended.
    pub result: Option<Value>,
}

impl Attachment {
    pub fn encode(&self) -> Vec<u8> {
        let json = json!({"network": self.network.source, "result": self.result});
        json.to_string().into_bytes()
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Peer> {
        let mut json: Value =
            serde_json::from_slice(bytes).map_err(|why| Peer::new(why.to_string()))?;
        let mut take = |key: &str| json.get_mut(key).map(Value::take).unwrap_or_default();
        let network = Network::of(take("network")).map_err(|why| Peer::at("network", why))?;
        Ok(Self { network, result: Some(take("result")).filter(|it| !it.is_null()) })
    }
}

/// `CNI_ARGS`: which pod it is. A plugin that does not know them shall not refuse them.
pub fn args(id: &str, config: &SandboxConfig) -> Result<String, Input> {
    let pod = &config.pod;
    let mut args = "IgnoreUnknown=1".to_owned();
    for (name, value) in [
        ("K8S_POD_NAMESPACE", &*pod.namespace),
        ("K8S_POD_NAME", &*pod.name),
        ("K8S_POD_INFRA_CONTAINER_ID", id),
        ("K8S_POD_UID", &*pod.uid),
    ] {
        if value.contains([';', '=', '\0']) {
            return Err(Input::quoted(value, "no «;» and no «=»").at(name));
        }
        args.extend([";", name, "=", value]);
    }
    Ok(args)
}

/// The result of ADD: standard output of a plugin that succeeded.
pub fn result(stdout: &[u8]) -> Result<Value, Peer> {
    match serde_json::from_slice(stdout) {
        Ok(result @ Value::Object(_)) => Ok(result),
        Ok(_) => Err(Peer::new("got a result that is no object")),
        Err(why) => Err(Peer::at("not readable", why)),
    }
}

/// Why a plugin failed: the error object on standard output, else what it wrote to standard error.
pub fn failure(stdout: &[u8], stderr: &[u8]) -> String {
    let error: Value = serde_json::from_slice(stdout).unwrap_or_default();
    let text = |key: &str| error[key].as_str().unwrap_or_default();
    let words = match (text("msg"), text("details")) {
        ("", details) => details.to_owned(),
        (message, "") => message.to_owned(),
        (message, details) => format!("{message}: {details}"),
    };
    let words = if words.is_empty() { String::from_utf8_lossy(stderr).into() } else { words };
    let words = words.trim();
    if words.is_empty() { "it says nothing".to_owned() } else { words.to_owned() }
}

/// The sandbox's addresses, those of IPv4 first.
pub fn addresses(result: &Value) -> Vec<IpAddr> {
    let address = |value: &Value| value.as_str()?.split('/').next()?.parse().ok();
    // Before 0.3.0.
    let old = ["ip4", "ip6"].into_iter().filter_map(|family| address(&result[family]["ip"]));
    let listed = result["ips"].as_array().into_iter().flatten();
    let own = listed.filter(|entry| match entry["interface"].as_u64() {
        Some(index) => {
            let interface = &result["interfaces"][index as usize];
            interface["name"] == INTERFACE && interface["sandbox"] != ""
        }
        None => true,
    });
    let mut addresses: Vec<IpAddr> =
        old.chain(own.filter_map(|entry| address(&entry["address"]))).collect();
    addresses.sort_by_key(IpAddr::is_ipv6);
    addresses
}

const PORT_MAPPINGS: &str = "portMappings";

fn mapped(config: &SandboxConfig) -> impl Iterator<Item = &PortMapping> {
    config.port_mappings.iter().filter(|port| port.host_port != 0)
}

fn port_mapping(port: &PortMapping) -> Value {
    let protocol = match port.protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Sctp => "sctp",
    };
    json!({
        "hostPort": port.host_port,
        "containerPort": port.container_port,
        "protocol": protocol,
        "hostIP": port.host_ip,
    })
}

/// Of the annotations that Kubernetes has for it: bits a second. The burst is as large as the
/// plugin accepts.
fn bandwidth(annotations: &BTreeMap<String, String>) -> Result<Option<Value>, Input> {
    let mut object = Map::new();
    for direction in ["ingress", "egress"] {
        let name = format!("kubernetes.io/{direction}-bandwidth");
        let Some(text) = annotations.get(&name) else { continue };
        let rate: Quantity = text.parse().map_err(|why: Input| why.at(&name))?;
        if rate.whole() <= 0 {
            return Err(Input::quoted(text, "more than 0").at(&name));
        }
        object.insert(format!("{direction}Rate"), json!(rate.whole()));
        object.insert(format!("{direction}Burst"), json!(u32::MAX));
    }
    Ok((!object.is_empty()).then_some(Value::Object(object)))
}

/// Of networks and programs: the specification's letters, and never `.` or `..`.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.len() <= 255
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

#[cfg(test)]
mod tests;
