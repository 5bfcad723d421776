//! Keys for pulling images, and for folders with images.

use super::Config;
use crate::config::table::{folder, text, truth, whole};
use crate::limits::PULL_CALLS_MAX;
use crate::model::error::Input;
use crate::wire::tree::Value;

pub(super) fn serialize(config: &mut Config, value: &Value) -> Result<(), Input> {
    config.pulls.serialize = truth(value)?;
    Ok(())
}

pub(super) fn parallel_max(config: &mut Config, value: &Value) -> Result<(), Input> {
    config.pulls.parallel_max = Some(whole(value, 1, PULL_CALLS_MAX as i64)? as usize);
    Ok(())
}

pub(super) fn per_second(config: &mut Config, value: &Value) -> Result<(), Input> {
    config.pulls.per_second = whole(value, 0, 10_000)? as u32;
    Ok(())
}

pub(super) fn burst(config: &mut Config, value: &Value) -> Result<(), Input> {
    config.pulls.burst = whole(value, 1, 10_000)? as u32;
    Ok(())
}

pub(super) fn folders(config: &mut Config, value: &Value) -> Result<(), Input> {
    let Value::List(list) = value else {
        return Err(Input::new(value, "a list of folders"));
    };
    if list.len() > FOLDERS_MAX {
        let got = format_args!("{} folders", list.len());
        return Err(Input::new(got, format!("{FOLDERS_MAX} at most")));
    }
    let folders = list.iter().map(|node| folder(text(&node.value)?));
    config.image_folders = folders.collect::<Result<_, _>>()?;
    Ok(())
}

/// They are arguments of a process, and each is scanned every few seconds.
const FOLDERS_MAX: usize = 16;

pub(super) fn mirror_port(config: &mut Config, value: &Value) -> Result<(), Input> {
    config.image_mirror.set_port(whole(value, 1, i64::from(u16::MAX))? as u16);
    Ok(())
}
