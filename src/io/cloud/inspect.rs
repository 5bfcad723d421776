//! Inspects the node's credentials, and whether the cloud can be reached, for `edged check`.
//! Changes nothing on the disk; it only opens a TCP connection to the cloud.

use std::fs;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use super::enrol::Token;
use super::files::{self, Pair};
use super::{names, tls};
use crate::io::crypto;
use crate::limits::CHECK_DIAL_MS;
use crate::model::error::{Error, System};
use crate::model::link::Validity;
use crate::model::settings::CloudLink;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The address of the websocket, `host:port`.
    pub server: String,
    /// The node's certificate and its file; or an error.
    pub certificate: Result<(String, Validity), Error>,
    /// Whether the cloud's CA can be read; or an error.
    pub ca: Result<(), Error>,
    /// The key's file, if users other than its owner may read it.
    pub open_key: Option<String>,
    /// There is a token for a certificate request.
    pub has_token: bool,
    /// Whether the cloud accepts a TCP connection; or an error.
    pub reach: Result<(), System>,
}

pub fn inspect(link: &CloudLink) -> Inspection {
    let provider = crypto::provider();
    let of_node = |pair: Pair| tls::judge(link, &pair, None).map_err(Error::from);
    let certificate = Pair::peek(link, &provider).and_then(of_node);
    let mode = fs::metadata(Path::new(&link.key_file)).map(|about| about.permissions().mode());
    Inspection {
        server: link.server.clone(),
        certificate: certificate.map(|validity| (link.cert_file.clone(), validity)),
        ca: files::certificates(Path::new(&link.ca_file)).map(drop),
        open_key: mode.is_ok_and(|mode| mode & 0o077 != 0).then(|| link.key_file.clone()),
        has_token: Token::find(link).is_ok(),
        reach: reach(&link.server),
    }
}

/// Connects to each address of `host:port` until one succeeds.
pub(in crate::io) fn reach(server: &str) -> Result<(), System> {
    let found = server.to_socket_addrs()?;
    let mut refused = System::new("the name has no address");
    for address in names::first(found) {
        let patience = Duration::from_millis(CHECK_DIAL_MS);
        match TcpStream::connect_timeout(&address, patience) {
            Ok(_) => return Ok(()),
            Err(error) => refused = System::at(address, error),
        }
    }
    Err(refused)
}
