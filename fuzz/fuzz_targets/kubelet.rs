//! `wire::kubelet`: every path and query is a request, a refusal, or another's.
#![no_main]

use edged::model::stream::StreamRequest;
use edged::wire::kubelet;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &str, &str)| {
    let (method, path, query) = input;
    let method = ["GET", "POST", "PUT"][usize::from(method) % 3];
    if let Some(Ok(asked)) = kubelet::parse(method, path, query) {
        match asked.request {
            StreamRequest::Exec { pipes, .. } | StreamRequest::Attach { pipes, .. } => {
                assert!(pipes.stdin || pipes.stdout || pipes.stderr);
            }
            StreamRequest::PortForward { ports, .. } => assert!(!ports.contains(&0)),
            StreamRequest::Logs { options, .. } => assert_ne!(options.limit_bytes, Some(0)),
            StreamRequest::Run { .. } | StreamRequest::Command { .. } | StreamRequest::Usage => {}
        }
    }
});
