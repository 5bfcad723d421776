//! Conversion of the housekeeping calls to and from CRI v1 messages.

use super::super::container::ReopenContainerLogRequest;
use super::super::image as i;
use super::super::stats as s;
use super::super::{Rpc, UInt64Value};
use super::{Why, config, named, of};
use crate::model::housekeeping::{
    ContainerUsage, HousekeepingCall, HousekeepingReply, SandboxUsage, StoredImage,
};

pub(super) fn encode(wanted: &HousekeepingCall) -> (Rpc, Vec<u8>) {
    match wanted {
        HousekeepingCall::ImageFsInfo => of(&i::ImageFsInfoRequest {}),
        HousekeepingCall::ListImages => of(&i::ListImagesRequest { filter: None }),
        HousekeepingCall::RemoveImage(id) => {
            of(&i::RemoveImageRequest { image: Some(config::image(id, "")) })
        }
        HousekeepingCall::ReopenContainerLog(id) => {
            of(&ReopenContainerLogRequest { container_id: id.to_string() })
        }
        HousekeepingCall::ListContainerStats => of(&s::ListContainerStatsRequest { filter: None }),
        HousekeepingCall::ListPodSandboxStats => {
            of(&s::ListPodSandboxStatsRequest { filter: None })
        }
    }
}

/// Only the first file system counts, as for the kubelet.
pub(super) fn image_fs(reply: i::ImageFsInfoResponse) -> HousekeepingReply {
    let first = reply.image_filesystems.into_iter().next();
    let place = first.and_then(|usage| usage.fs_id).map(|id| id.mountpoint);
    HousekeepingReply::ImageFs(place.filter(|place| place.starts_with('/')).map(Into::into))
}

pub(super) fn images(reply: i::ListImagesResponse) -> Result<HousekeepingReply, Why> {
    let image = |from: i::Image| {
        let names = from.repo_tags.into_iter().chain(from.repo_digests).map(Into::into);
        Ok(StoredImage {
            id: named("the image's id", from.id)?,
            names: names.collect(),
            size: from.size,
            pinned: from.pinned,
        })
    };
    Ok(HousekeepingReply::Images(reply.images.into_iter().map(image).collect::<Result<_, Why>>()?))
}

pub(super) fn containers(reply: s::ListContainerStatsResponse) -> HousekeepingReply {
    let usage = |from: s::ContainerStats| {
        let labels = from.attributes.map(|attributes| attributes.labels).unwrap_or_default();
        let label = |key: &str| labels.get(key).map(|value| value.as_str().into());
        let layer = from.writable_layer;
        Some(ContainerUsage {
            uid: label("io.kubernetes.pod.uid")?,
            name: label("io.kubernetes.container.name")?,
            memory: from.memory.and_then(|memory| number(memory.working_set_bytes)),
            disk: layer.as_ref().and_then(|layer| number(layer.used_bytes)),
            inodes: layer.as_ref().and_then(|layer| number(layer.inodes_used)),
        })
    };
    HousekeepingReply::Containers(reply.stats.into_iter().filter_map(usage).collect())
}

pub(super) fn sandboxes(reply: s::ListPodSandboxStatsResponse) -> HousekeepingReply {
    let usage = |from: s::PodSandboxStats| {
        Some(SandboxUsage {
            uid: from.attributes?.metadata?.uid.into(),
            processes: from.linux?.process.and_then(|process| number(process.process_count)),
        })
    };
    HousekeepingReply::Sandboxes(reply.stats.into_iter().filter_map(usage).collect())
}

fn number(value: Option<UInt64Value>) -> Option<u64> {
    value.map(|value| value.value)
}
