//! Parses the values of the keys.

use crate::agent::admit::is_subdomain;
use crate::config::Config;
use crate::config::table::{folder, is_label_value, is_qualified, text, truth, whole};
use crate::model::error::Input;
use crate::model::settings::{Secret, Taint};
use crate::wire::tree::Value;

/// The scheme of the address for certificates.
pub(super) const HTTPS: &str = "https://";

pub(super) fn take_register(config: &mut Config, value: &Value) -> Result<(), Input> {
    config.cloud.settings.registration.register = truth(value)?;
    Ok(())
}

/// An error text never contains it.
pub(super) fn take_token(config: &mut Config, value: &Value) -> Result<(), Input> {
    let Value::Text(token) = value else {
        return Err(Input::new("no text", "a token as `keadm gettoken` prints it"));
    };
    config.cloud.draft.named |= !token.is_empty();
    config.cloud.link.token = Secret::new(token.trim());
    Ok(())
}

pub(super) fn take_taints(config: &mut Config, value: &Value) -> Result<(), Input> {
    let Value::List(list) = value else { return Err(Input::new(value, "a list")) };
    let taints = list
        .iter()
        .enumerate()
        .map(|(at, node)| taint(&node.value).map_err(|wrong| wrong.at(format_args!("[{at}]"))));
    config.cloud.settings.registration.taints = taints.collect::<Result<_, _>>()?;
    Ok(())
}

fn taint(value: &Value) -> Result<Taint, Input> {
    let Value::Map(map) = value else { return Err(Input::new(value, "a taint")) };
    let mut taint = Taint { key: String::new(), value: String::new(), effect: String::new() };
    for (key, entry) in map {
        let field = match &**key {
            "key" => &mut taint.key,
            "value" => &mut taint.value,
            "effect" => &mut taint.effect,
            // The API server sets the time of a NoExecute taint.
            "timeAdded" => continue,
            _ => return Err(Input::new("an unknown key", "").at(key)),
        };
        if entry.node.value != Value::Null {
            text(&entry.node.value).map_err(|wrong| wrong.at(key))?.clone_into(field);
        }
    }
    if !is_qualified(&taint.key) || !is_label_value(&taint.value) {
        return Err(Input::new(format_args!("{}={}", taint.key, taint.value), "a taint"));
    }
    if !EFFECTS.contains(&&*taint.effect) {
        return Err(Input::quoted(&taint.effect, EFFECTS.join(" or ")).at("effect"));
    }
    Ok(taint)
}

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// A number of seconds of the link, in milliseconds.
pub(super) fn seconds(config: &mut Config, value: &Value, max: i64) -> Result<u64, Input> {
    config.cloud.draft.named = true;
    Ok(whole(value, 1, max)? as u64 * 1_000)
}

pub(super) fn count(config: &mut Config, value: &Value, min: i64) -> Result<u32, Input> {
    config.cloud.draft.named = true;
    Ok(whole(value, min, 100_000)? as u32)
}

pub(super) fn at_least(ms: u64, least_s: u64) -> Result<u64, Input> {
    if ms < least_s * 1_000 {
        return Err(Input::new(format_args!("{ms} ms"), format!("at least {least_s} s")));
    }
    Ok(ms)
}

pub(super) fn file(value: &Value) -> Result<String, Input> {
    folder(text(value)?).map_err(|_| Input::new(value, "an absolute path of a file"))
}

/// It is a part of a request's path.
pub(super) fn project(given: &str) -> Result<String, Input> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if given.is_empty() || given.len() > 253 || !given.chars().all(is_valid) {
        return Err(Input::quoted(given, "letters, digits, '-', '_' and '.'"));
    }
    Ok(given.to_owned())
}

/// `host:port`; empty: not set.
pub(super) fn server(given: &str) -> Result<Option<String>, Input> {
    if given.is_empty() {
        return Ok(None);
    }
    if is_authority(given) {
        return Ok(Some(given.to_owned()));
    }
    Err(Input::quoted(given, "a host and a port such as cloud.example:10000"))
}

/// `https://host:port`, without a slash at its end; empty: not set.
pub(super) fn http_server(given: &str) -> Result<Option<String>, Input> {
    let trimmed = given.trim_end_matches('/');
    match trimmed.strip_prefix(HTTPS) {
        Some(authority) if is_authority(authority) => Ok(Some(trimmed.to_owned())),
        None if given.is_empty() => Ok(None),
        _ => Err(Input::quoted(given, "https://, a host and a port")),
    }
}

/// A name or an address (IPv6 in brackets), and a port.
fn is_authority(given: &str) -> bool {
    let Some((host, port)) = given.rsplit_once(':') else { return false };
    let port = port.parse::<u16>().is_ok_and(|port| port > 0);
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let host = match bracketed {
        Some(inner) => inner.parse::<core::net::Ipv6Addr>().is_ok(),
        None => is_subdomain(&host.to_ascii_lowercase()),
    };
    port && host
}

/// Including the brackets of an IPv6 address.
pub(super) fn host_of(authority: &str) -> &str {
    authority.rsplit_once(':').map_or(authority, |(host, _)| host)
}

pub(super) fn namespace(given: &str) -> Result<String, Input> {
    if !is_subdomain(given) {
        return Err(Input::quoted(given, "a namespace"));
    }
    Ok(given.to_owned())
}
