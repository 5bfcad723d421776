//! Requests the runtime's version and status, and waits for the answers.

use crate::io::runtime::blocking::Client;
use crate::limits::CHECK_RUNTIME_MS;
use crate::model::cri::{Reply, Request, RuntimeStatus, Version};
use crate::model::endpoint::RuntimeEndpoint;
use crate::model::error::{Error, Peer};

pub(super) fn query(endpoint: &RuntimeEndpoint) -> Result<(Version, RuntimeStatus), Error> {
    let mut client = Client::connect(endpoint)?;
    let Reply::Version(version) = client.call(&Request::Version, CHECK_RUNTIME_MS)? else {
        return Err(Peer::new("got another answer to Version").into());
    };
    let Reply::Status(status) = client.call(&Request::Status, CHECK_RUNTIME_MS)? else {
        return Err(Peer::new("got another answer to Status").into());
    };
    Ok((version, status))
}
