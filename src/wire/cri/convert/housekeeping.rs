//! Conversion of the housekeeping calls to and from CRI v1 messages.

use super::super::container::ReopenContainerLogRequest;
use super::super::image as i;
use super::super::stats as s;
use super::super::{Rpc, UInt64Value};
use super::{Why, config, decode_reply, named, of};
use crate::limits::CriBudget;
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

/// The reply to one of these calls.
pub(super) fn decode(rpc: Rpc, bytes: &[u8], budget: &CriBudget) -> Result<HousekeepingReply, Why> {
    Ok(match rpc {
        Rpc::ImageFsInfo => image_fs(decode_reply::<i::ImageFsInfoRequest>(bytes, budget)?),
        Rpc::ListImages => images(decode_reply::<i::ListImagesRequest>(bytes, budget)?)?,
        Rpc::ListContainerStats => {
            containers(decode_reply::<s::ListContainerStatsRequest>(bytes, budget)?)
        }
        _ => sandboxes(decode_reply::<s::ListPodSandboxStatsRequest>(bytes, budget)?),
    })
}

/// Only the first file system counts, as for the kubelet.
fn image_fs(reply: i::ImageFsInfoResponse) -> HousekeepingReply {
    let first = reply.image_filesystems.into_iter().next();
    let place = first.and_then(|usage| usage.fs_id).map(|id| id.mountpoint);
    HousekeepingReply::ImageFs(place.filter(|place| place.starts_with('/')).map(Into::into))
}

fn images(reply: i::ListImagesResponse) -> Result<HousekeepingReply, Why> {
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

fn containers(reply: s::ListContainerStatsResponse) -> HousekeepingReply {
    let usage = |from: s::ContainerStats| {
        let attributes = from.attributes.unwrap_or_default();
        let label = |key: &str| attributes.labels.get(key).map(|value| value.as_str().into());
        let layer = from.writable_layer;
        Some(ContainerUsage {
            id: attributes.id.as_str().into(),
            uid: label("io.kubernetes.pod.uid")?,
            name: label("io.kubernetes.container.name")?,
            memory: from.memory.and_then(|memory| number(memory.working_set_bytes)),
            memory_usage: from.memory.and_then(|memory| number(memory.usage_bytes)),
            memory_rss: from.memory.and_then(|memory| number(memory.rss_bytes)),
            memory_at: from.memory.map_or(0, |memory| memory.timestamp),
            cpu_ns: from.cpu.and_then(|cpu| number(cpu.usage_core_nano_seconds)),
            cpu_nano_cores: from.cpu.and_then(|cpu| number(cpu.usage_nano_cores)),
            cpu_at: from.cpu.map_or(0, |cpu| cpu.timestamp),
            disk: layer.as_ref().and_then(|layer| number(layer.used_bytes)),
            inodes: layer.as_ref().and_then(|layer| number(layer.inodes_used)),
        })
    };
    HousekeepingReply::Containers(reply.stats.into_iter().filter_map(usage).collect())
}

fn sandboxes(reply: s::ListPodSandboxStatsResponse) -> HousekeepingReply {
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
