//! Keys that say how images are pulled.

use super::{Config, Value, pods, whole};
use crate::limits::PULL_CALLS_MAX;

pub(super) fn serialize(config: &mut Config, value: &Value) -> Result<(), String> {
    config.pulls.serialize = pods::truth(value)?;
    Ok(())
}

pub(super) fn parallel_max(config: &mut Config, value: &Value) -> Result<(), String> {
    config.pulls.parallel_max = Some(whole(value, 1, PULL_CALLS_MAX as i64)? as usize);
    Ok(())
}

pub(super) fn per_second(config: &mut Config, value: &Value) -> Result<(), String> {
    config.pulls.per_second = whole(value, 0, 10_000)? as u32;
    Ok(())
}

pub(super) fn burst(config: &mut Config, value: &Value) -> Result<(), String> {
    config.pulls.burst = whole(value, 1, 10_000)? as u32;
    Ok(())
}
