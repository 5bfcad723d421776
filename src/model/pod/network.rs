//! Names and addresses of a pod (core/v1).

use serde::Serialize;

use super::Rest;
use crate::model::tree::{fields, words};

/// core/v1 `HostAlias`: a line of `/etc/hosts`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct HostAlias {
    /// An address.
    pub ip: String,
    /// Its names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hostnames: Vec<String>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(HostAlias {
    "ip" => ip,
    "hostnames" => hostnames,
} rest rest);

/// `PodSpec.dnsPolicy`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum DnsPolicy {
    #[default]
    ClusterFirst,
    ClusterFirstWithHostNet,
    Default,
    None,
}

words!(DnsPolicy {
    "ClusterFirst" => ClusterFirst,
    "ClusterFirstWithHostNet" => ClusterFirstWithHostNet,
    "Default" => Default,
    "None" => None,
});

/// core/v1 `PodDNSConfig`: additions to the policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DnsConfig {
    /// Addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// Domains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub searches: Vec<String>,
    /// Options of the resolver.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<DnsOption>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(DnsConfig {
    "nameservers" => nameservers,
    "searches" => searches,
    "options" => options,
} rest rest);

/// core/v1 `PodDNSConfigOption`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DnsOption {
    /// `ndots`
    pub name: String,
    /// `5`; some have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(DnsOption {
    "name" => name,
    "value" => value,
} rest rest);
