//! `edged images import` into the built-in runtime, which has a call of its own for that.

use std::path::Path;

use prost::Message;

use crate::io::runtime::blocking::Client;
use crate::limits::PULL_DEADLINE_MS;
use crate::model::endpoint::RuntimeEndpoint;
use crate::model::error::{Error, Input, Peer};
use crate::wire::cri::edged::ImportRequest;
use crate::wire::cri::{Rpc, decode};

/// Imports the images of an archive or of an OCI layout. Returns their names.
pub(super) fn import(
    file: &Path,
    runtime: &RuntimeEndpoint,
    waiting: &mut dyn FnMut(u64),
) -> Result<Vec<String>, Error> {
    let path = std::path::absolute(file)?;
    let path = path.to_str().ok_or_else(|| Input::quoted(&path.to_string_lossy(), "UTF-8"))?;
    let mut client = Client::connect(runtime).map_err(|error| error.at(runtime))?;
    let message = ImportRequest { path: path.to_owned() }.encode_to_vec();
    let reply = client.exchange(Rpc::Import, &message, PULL_DEADLINE_MS, waiting)?;
    let reply = decode::<ImportRequest>(&reply);
    Ok(reply.map_err(|error| Peer::new(error.to_string()))?.names)
}
