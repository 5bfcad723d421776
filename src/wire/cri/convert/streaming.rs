//! Conversion of the calls for people to and from CRI v1 messages.

use super::super::Rpc;
use super::super::stats::ListContainerStatsRequest;
use super::super::streaming as st;
use super::{Why, decode_reply, named, of};
use crate::limits::CriBudget;
use crate::model::cri::{Reply, StreamingCall};

pub(super) fn encode(call: &StreamingCall) -> (Rpc, Vec<u8>) {
    match call {
        StreamingCall::Exec { container, command, pipes } => of(&st::ExecRequest {
            container_id: container.to_string(),
            cmd: command.clone(),
            tty: pipes.tty,
            stdin: pipes.stdin,
            stdout: pipes.stdout,
            stderr: pipes.stderr,
        }),
        StreamingCall::Attach { container, pipes } => of(&st::AttachRequest {
            container_id: container.to_string(),
            stdin: pipes.stdin,
            tty: pipes.tty,
            stdout: pipes.stdout,
            stderr: pipes.stderr,
        }),
        StreamingCall::PortForward { sandbox, ports } => of(&st::PortForwardRequest {
            pod_sandbox_id: sandbox.to_string(),
            port: ports.iter().map(|port| i32::from(*port)).collect(),
        }),
        StreamingCall::ListContainerStats => of(&ListContainerStatsRequest { filter: None }),
    }
}

/// The replies of all of them have the same shape.
pub(super) fn decode(bytes: &[u8], budget: &CriBudget) -> Result<Reply, Why> {
    let reply = decode_reply::<st::ExecRequest>(bytes, budget)?;
    Ok(Reply::Url(named("url", reply.url)?))
}
