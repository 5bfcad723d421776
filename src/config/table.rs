//! The tables of keys of edgecore.yaml, and the forms of their values.

use core::net::IpAddr;

use super::Config;
use crate::agent::admit::is_subdomain;
use crate::model::endpoint::{BUILTIN, RuntimeEndpoint};
use crate::model::error::Input;
use crate::model::tree::decimal;
use crate::wire::tree::Value;

/// The keys of one map.
pub(super) struct Table {
    pub(super) rules: &'static [Row],
    /// Rows that are defined elsewhere.
    pub(super) more: &'static [&'static [Row]],
    /// Keys without effect, including their content; separated by spaces.
    pub(super) unused: &'static str,
}

/// A key and its rule.
pub(super) type Row = (&'static str, Rule);

/// The meaning of a key for edged.
pub(super) enum Rule {
    /// A map of keys.
    Map(&'static Table),
    /// A setting.
    Take(Take),
    /// Without effect, including its content.
    #[allow(dead_code, reason = "only parts that are not built in have such keys")]
    Idle,
    /// A part of KubeEdge that edged lacks: reported if it is on; the flag is its default.
    Module(&'static Table, bool),
}

pub(super) type Take = fn(&mut Config, &Value) -> Result<(), Input>;

impl Table {
    pub(super) fn all(&self) -> impl Iterator<Item = &'static Row> {
        self.rules.iter().chain(self.more.iter().copied().flatten())
    }
}

pub(super) fn text(value: &Value) -> Result<&str, Input> {
    match value {
        Value::Text(text) => Ok(text),
        other => Err(Input::new(other, "text")),
    }
}

pub(super) fn truth(value: &Value) -> Result<bool, Input> {
    match value {
        Value::Bool(truth) => Ok(*truth),
        other => Err(Input::new(other, "true or false")),
    }
}

pub(super) fn one_of(got: &str, expected: &[&str]) -> Result<(), Input> {
    if expected.contains(&got) {
        return Ok(());
    }
    Err(Input::quoted(got, expected.join(" or ")))
}

pub(super) fn whole(value: &Value, min: i64, max: i64) -> Result<i64, Input> {
    match value {
        Value::Int(number) if (min..=max).contains(number) => Ok(*number),
        other => Err(Input::new(other, format!("a whole number from {min} to {max}"))),
    }
}

/// `unix:///path`, only the path, `ttrpc:///path`, or `builtin`.
pub(super) fn endpoint(given: &str) -> Result<RuntimeEndpoint, Input> {
    if given == "builtin" {
        return builtin(BUILTIN.to_owned());
    }
    let expected = "unix:/// and the path of the runtime's socket, or builtin";
    let wrong = || Input::quoted(given, expected);
    if let Some(path) = given.strip_prefix("ttrpc://") {
        return builtin(absolute(path).ok_or_else(wrong)?);
    }
    let path = given.strip_prefix("unix://").unwrap_or(given);
    absolute(path).map(RuntimeEndpoint::grpc).ok_or_else(wrong)
}

fn builtin(socket: String) -> Result<RuntimeEndpoint, Input> {
    RuntimeEndpoint::ttrpc(socket).ok_or_else(|| Input::other("not built in: runtime"))
}

/// An absolute path, without a slash at its end.
pub(super) fn folder(given: &str) -> Result<String, Input> {
    let expected = "an absolute path of a folder below /, without `..`";
    absolute(given).ok_or_else(|| Input::quoted(given, expected))
}

/// Files below these paths are made and removed: `/` itself and `..` are not allowed.
pub(super) fn absolute(path: &str) -> Option<String> {
    let trimmed = path.trim_end_matches('/');
    let parts = trimmed.strip_prefix('/')?;
    let is_valid = parts.split('/').all(|part| !matches!(part, "" | "." | ".."));
    (is_valid && !path.contains('\0')).then(|| trimmed.to_owned())
}

/// A node's name, in lower case as the kubelet makes it.
pub(super) fn node_name(given: &str) -> Result<String, Input> {
    let name = given.trim().to_lowercase();
    if is_subdomain(&name) {
        return Ok(name);
    }
    let expected = "a DNS subdomain: lower case letters, digits, '-' and '.', at most 253 of them";
    Err(Input::quoted(given, expected))
}

pub(super) fn ip(given: &str) -> Result<IpAddr, Input> {
    given.parse().map_err(|_| Input::quoted(given, "an IP address"))
}

/// The API has no authentication.
pub(super) fn loopback(ip: IpAddr) -> Result<IpAddr, Input> {
    if ip.is_loopback() {
        return Ok(ip);
    }
    Err(Input::new(ip, "a loopback address: the API has no authentication"))
}

/// A duration, milliseconds.
pub(super) fn duration(value: &Value) -> Result<u64, Input> {
    let given = text(value)?;
    duration_ms(given).ok_or_else(|| Input::quoted(given, "a duration such as 10s or 1m30s"))
}

/// A Go duration of at least a millisecond's resolution: `10s`, `4h0m0s`, `1.5m`, `250ms`.
fn duration_ms(given: &str) -> Option<u64> {
    let mut rest = given.strip_prefix('+').unwrap_or(given);
    let mut sum_ms = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number = decimal(&rest[..end])?;
        rest = &rest[end..];
        let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        sum_ms += number
            * match &rest[..end] {
                "ms" => 1.0,
                "s" => 1e3,
                "m" => 60e3,
                "h" => 3_600e3,
                _ => return None,
            };
        rest = &rest[end..];
    }
    (sum_ms < 1e15).then_some(sum_ms as u64)
}

/// `[a DNS subdomain/]name`, the form of keys of labels and taints.
pub(super) fn is_qualified(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').unwrap_or(("a", key));
    is_subdomain(prefix) && !name.is_empty() && is_label_value(name)
}

pub(super) fn is_label_value(value: &str) -> bool {
    let end = |c: char| c.is_ascii_alphanumeric();
    let inner = |c: char| end(c) || matches!(c, '-' | '_' | '.');
    let is_valid = value.starts_with(end) && value.ends_with(end) && value.chars().all(inner);
    value.len() <= 63 && (value.is_empty() || is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_writes_them() {
        for (text, ms) in [
            ("10s", Some(10_000)),
            ("4h0m0s", Some(14_400_000)),
            ("1.5m", Some(90_000)),
            ("1m0.25s", Some(60_250)),
            ("250ms", Some(250)),
            ("", None),
            ("10", None),
            ("s", None),
            ("10 s", None),
            ("-1s", None),
            ("1d", None),
            ("1..5s", None),
        ] {
            assert_eq!(duration_ms(text), ms, "{text:?}");
        }
    }
}
