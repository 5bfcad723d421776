//! Keys for running pods.

use super::Config;
use crate::agent::admit::is_subdomain;
use crate::config::table::{folder, ip, is_label_value, is_qualified, text, truth};
use crate::model::error::Input;
use crate::wire::tree::Value;

pub(super) fn allowed_sysctls(config: &mut Config, value: &Value) -> Result<(), Input> {
    config.settings.allowed_sysctls = texts(value)?;
    Ok(())
}

pub(super) fn seccomp_default(config: &mut Config, value: &Value) -> Result<(), Input> {
    config.settings.seccomp_default = truth(value)?;
    Ok(())
}

pub(super) fn cluster_dns(config: &mut Config, value: &Value) -> Result<(), Input> {
    let servers = texts(value)?;
    servers.iter().try_for_each(|server| ip(server).map(drop))?;
    config.settings.cluster_dns = servers;
    Ok(())
}

pub(super) fn cluster_domain(config: &mut Config, value: &Value) -> Result<(), Input> {
    let domain = text(value)?;
    if !domain.is_empty() && !is_subdomain(domain) {
        return Err(Input::quoted(domain, "a DNS subdomain such as cluster.local"));
    }
    domain.clone_into(&mut config.settings.cluster_domain);
    Ok(())
}

pub(super) fn resolv_conf(config: &mut Config, value: &Value) -> Result<(), Input> {
    let path = text(value)?;
    config.settings.resolv_conf = if path.is_empty() { String::new() } else { folder(path)? };
    Ok(())
}

/// Labels of the node in addition to those that every node has.
pub(super) fn node_labels(config: &mut Config, value: &Value) -> Result<(), Input> {
    let Value::Map(map) = value else { return Err(Input::new(value, "a map")) };
    let labels = map.iter().map(|(key, entry)| {
        let label = text(&entry.node.value).map_err(|wrong| wrong.at(key))?;
        if !is_qualified(key) || !is_label_value(label) {
            return Err(Input::new(format_args!("{key}: {label:?}"), "a label"));
        }
        Ok((key.to_string(), label.to_owned()))
    });
    config.node_labels = labels.collect::<Result<_, _>>()?;
    Ok(())
}

fn texts(value: &Value) -> Result<Vec<String>, Input> {
    match value {
        Value::List(list) => list.iter().map(|node| text(&node.value).map(str::to_owned)).collect(),
        other => Err(Input::new(other, "a list of texts")),
    }
}
