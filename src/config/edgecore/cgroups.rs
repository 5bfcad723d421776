//! Keys about the pods' cgroups.

use super::Config;
use crate::config::table::{duration, one_of, text, truth, whole};
use crate::model::cri::CgroupDriver;
use crate::model::error::Input;
use crate::wire::tree::Value;

pub(super) fn per_qos(config: &mut Config, value: &Value) -> Result<(), Input> {
    config.settings.cgroups.per_qos = truth(value)?;
    Ok(())
}

pub(super) fn driver(config: &mut Config, value: &Value) -> Result<(), Input> {
    let given = text(value)?;
    one_of(given, &["cgroupfs", "systemd"])?;
    config.settings.cgroups.driver = match given {
        "systemd" => CgroupDriver::Systemd,
        _ => CgroupDriver::Cgroupfs,
    };
    Ok(())
}

/// A path from the top of the hierarchy; empty and `/` mean the top itself.
pub(super) fn root(config: &mut Config, value: &Value) -> Result<(), Input> {
    let given = text(value)?;
    let parts: Vec<&str> = given.split('/').filter(|part| !part.is_empty()).collect();
    let sound = |part: &&str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'@');
        !matches!(*part, "." | "..") && part.len() <= 255 && part.bytes().all(plain)
    };
    if !(parts.iter().all(sound) && (given.is_empty() || given.starts_with('/'))) {
        let expected = "an absolute path of letters, digits, '-', '_', '.' and '@' between its \
                        slashes, without `..`";
        return Err(Input::quoted(given, expected));
    }
    config.settings.cgroups.root = parts.into_iter().map(Box::from).collect();
    Ok(())
}

/// Negative: no limit.
pub(super) fn pids_max(config: &mut Config, value: &Value) -> Result<(), Input> {
    let max = whole(value, -1, i64::from(i32::MAX))?;
    config.settings.cgroups.pids_max = u64::try_from(max).ok().filter(|&max| max > 0);
    Ok(())
}

pub(super) fn quota(config: &mut Config, value: &Value) -> Result<(), Input> {
    config.settings.cgroups.cpu_quota = truth(value)?;
    Ok(())
}

/// The range that the kernel accepts.
pub(super) fn period(config: &mut Config, value: &Value) -> Result<(), Input> {
    let ms = duration(value)?;
    if !(1..=1_000).contains(&ms) {
        return Err(Input::new(text(value)?, "1ms to 1s"));
    }
    config.settings.cgroups.cpu_period_us = i64::try_from(ms).map_or(100_000, |ms| ms * 1_000);
    Ok(())
}

pub(super) fn single_oom_kill(config: &mut Config, value: &Value) -> Result<(), Input> {
    config.settings.cgroups.single_oom_kill = truth(value)?;
    Ok(())
}
