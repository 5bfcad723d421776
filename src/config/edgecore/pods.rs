//! Keys that say how pods are run.

use super::{Config, Value, folder, ip, text, truth};
use crate::agent::admit::is_subdomain;

pub(super) fn allowed_sysctls(config: &mut Config, value: &Value) -> Result<(), String> {
    config.settings.allowed_sysctls = texts(value)?;
    Ok(())
}

pub(super) fn seccomp_default(config: &mut Config, value: &Value) -> Result<(), String> {
    config.settings.seccomp_default = truth(value)?;
    Ok(())
}

pub(super) fn cluster_dns(config: &mut Config, value: &Value) -> Result<(), String> {
    let servers = texts(value)?;
    servers.iter().try_for_each(|server| ip(server).map(drop))?;
    config.settings.cluster_dns = servers;
    Ok(())
}

pub(super) fn cluster_domain(config: &mut Config, value: &Value) -> Result<(), String> {
    let domain = text(value)?;
    if !domain.is_empty() && !is_subdomain(domain) {
        return Err(format!("got {domain:?}, expected a DNS subdomain such as cluster.local"));
    }
    domain.clone_into(&mut config.settings.cluster_domain);
    Ok(())
}

pub(super) fn resolv_conf(config: &mut Config, value: &Value) -> Result<(), String> {
    let path = text(value)?;
    config.settings.resolv_conf = if path.is_empty() { String::new() } else { folder(path)? };
    Ok(())
}

fn texts(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::List(list) => list.iter().map(|node| text(&node.value).map(str::to_owned)).collect(),
        other => Err(format!("got {other}, expected a list of texts")),
    }
}
