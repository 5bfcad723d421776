//! Replies of every method. Input: which, then the bytes. What decodes encodes to the same again.
#![no_main]

use edged::wire::cri::{Request, container, decode, events, image, runtime, sandbox, stats};
use libfuzzer_sys::fuzz_target;
use prost::Message;

fuzz_target!(|data: &[u8]| {
    let [which, bytes @ ..] = data else { return };
    let check = [
        check::<container::ListContainersRequest>,
        check::<container::ContainerStatusRequest>,
        check::<container::ExecSyncRequest>,
        check::<events::GetEventsRequest>,
        check::<image::ListImagesRequest>,
        check::<image::ImageStatusRequest>,
        check::<image::ImageFsInfoRequest>,
        check::<runtime::StatusRequest>,
        check::<runtime::RuntimeConfigRequest>,
        check::<sandbox::ListPodSandboxRequest>,
        check::<sandbox::PodSandboxStatusRequest>,
        check::<stats::ListContainerStatsRequest>,
        check::<stats::ListPodSandboxStatsRequest>,
    ];
    check[usize::from(*which) % check.len()](bytes);
});

fn check<R: Request<Reply: PartialEq>>(bytes: &[u8]) {
    let Ok(reply) = decode::<R>(bytes) else { return };
    assert!(decode::<R>(&reply.encode_to_vec()) == Ok(reply));
}
