//! What Services by name need of this machine: the link, the process that serves them, and that it
//! answers.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;

use crate::config::Config;
use crate::io::clock;
use crate::io::link;
use crate::io::services::socket_of;
use crate::model::dns::kind;
use crate::model::settings::ServiceSettings;
use crate::wire::dns::OwnQuery;

#[derive(Clone, Debug)]
pub struct ServiceFacts {
    pub settings: ServiceSettings,
    /// `clusterDNS`, as pods get it.
    pub cluster_dns: Vec<String>,
    /// Whether the link exists, or why that cannot be known.
    pub link: Result<bool, String>,
    /// Whether the process that serves them has its socket.
    pub process: bool,
    /// Whether the responder answers for its zone.
    pub answers: Result<(), String>,
}

/// `None`: they are not served.
pub(super) fn read(config: &Config) -> Option<ServiceFacts> {
    let settings = config.services.settings()?.clone();
    let zone = &config.settings.cluster_domain;
    Some(ServiceFacts {
        cluster_dns: config.settings.cluster_dns.clone(),
        link: link::exists(link::SERVICES).map_err(|error| error.to_string()),
        process: socket_of(Path::new(&config.root)).is_some_and(|path| path.exists()),
        answers: ask(SocketAddr::new(settings.address.into(), 53), zone)
            .map_err(|error| error.to_string()),
        settings,
    })
}

/// The SOA of the zone, from a responder that is on this machine.
fn ask(server: SocketAddr, zone: &str) -> io::Result<()> {
    let id = clock::seed() as u16;
    let query = OwnQuery::new(id, zone, kind::SOA);
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(WAIT))?;
    socket.connect(server)?;
    socket.send(&query.bytes)?;
    let mut buffer = [0; 1_232];
    let bytes = socket.recv(&mut buffer)?;
    if query.is_answered_by(id, &buffer[..bytes]) {
        return Ok(());
    }
    Err(io::Error::other("got an answer to another question"))
}

/// It is on this machine.
const WAIT: Duration = Duration::from_millis(500);
