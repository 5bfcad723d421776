//! The job that changes the resources of a running container: the OCI runtime's `update`.

use std::time::Duration;

use super::layout::Settings;
use super::monitor::replace_in;
use super::{container, oci};
use crate::limits::RUNTIME_OCI_CALL_MS_MAX;
use crate::model::cri::Resources;
use crate::model::error::Error;
use crate::model::runtime::{ContainerFolder, JobFault, JobReply};
use crate::wire::oci::spec;

/// Gives the container all of these.
pub fn update(
    settings: &Settings,
    of: &ContainerFolder,
    resources: &Resources,
) -> Result<JobReply, JobFault> {
    updated(settings, of, resources).map(|()| JobReply::Done).map_err(container::fault)
}

fn updated(settings: &Settings, of: &ContainerFolder, resources: &Resources) -> Result<(), Error> {
    let folder = settings.layout.container(&of.id);
    let text = spec::update(resources, container::limits())?;
    replace_in(&folder, FILE, &text)?;
    let log = folder.join("update.log");
    let mut call = oci::command(settings, &log);
    call.arg("update").arg("--resources").arg(folder.join(FILE)).arg(&*of.id.0);
    oci::run(call, &log, Duration::from_millis(RUNTIME_OCI_CALL_MS_MAX))?;
    Ok(())
}

const FILE: &str = "resources.json";
