//! Replies of every method. Input: which, then the bytes. What decodes encodes to the same again;
//! and as the agent reads it, which for lists is a decoder of its own, nothing panics and a list
//! names the same objects.
#![no_main]

use edged::model::cri::Reply;
use edged::wire::cri::{
    Request, Rpc, container, convert, decode, events, image, runtime, sandbox, stats,
};
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
    read(Rpc::ALL[usize::from(*which) % Rpc::ALL.len()], bytes);
});

fn read(rpc: Rpc, bytes: &[u8]) {
    let reply = convert::decode(rpc, bytes);
    assert!(convert::decode(rpc, bytes) == reply);
    match reply {
        Ok(Reply::Sandboxes(read)) => {
            let Ok(whole) = decode::<sandbox::ListPodSandboxRequest>(bytes) else { return };
            let whole = whole.items.iter().map(|it| &*it.id);
            assert!(read.iter().map(|it| &*it.id.0).eq(whole));
        }
        Ok(Reply::Containers(read)) => {
            let Ok(whole) = decode::<container::ListContainersRequest>(bytes) else { return };
            let whole = whole.containers.iter().map(|it| &*it.id);
            assert!(read.iter().map(|it| &*it.id.0).eq(whole));
        }
        _ => {}
    }
}

fn check<R: Request<Reply: PartialEq>>(bytes: &[u8]) {
    let Ok(reply) = decode::<R>(bytes) else { return };
    assert!(decode::<R>(&reply.encode_to_vec()) == Ok(reply));
}
