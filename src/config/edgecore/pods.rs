//! Keys that say how pods are run.

use super::{Config, Value, text};

pub(super) fn allowed_sysctls(config: &mut Config, value: &Value) -> Result<(), String> {
    config.settings.allowed_sysctls = texts(value)?;
    Ok(())
}

pub(super) fn seccomp_default(config: &mut Config, value: &Value) -> Result<(), String> {
    config.settings.seccomp_default = truth(value)?;
    Ok(())
}

fn texts(value: &Value) -> Result<Vec<String>, String> {
    match value {
        Value::List(list) => list.iter().map(|node| text(&node.value).map(str::to_owned)).collect(),
        other => Err(format!("got {other}, expected a list of texts")),
    }
}

pub(super) fn truth(value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(truth) => Ok(*truth),
        other => Err(format!("got {other}, expected true or false")),
    }
}
