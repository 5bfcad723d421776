//! The name servers for all names that are not of Services: those of the configuration, or of the
//! host's `resolv.conf`, read again when it changes.
//!
//! A server that sends our own queries back to us would make them go round for ever: a probe with a
//! name that only we know is sent to each, and one whose probe comes back is not used.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::SystemTime;

use crate::agent::time::Instant;
use crate::io::{clock, sys};
use crate::limits::DNS_SERVERS_MS;
use crate::model::dns::kind;
use crate::wire::dns::OwnQuery;

use super::protocol::Settings;

const PORT: u16 = 53;

#[derive(Debug, Default)]
pub(super) struct Upstream {
    own: Option<Ipv4Addr>,
    configured: Vec<String>,
    resolv_conf: String,
    servers: Vec<Server>,
    /// Of the file, when it was read.
    changed: Option<SystemTime>,
    look_at: Instant,
    turn: usize,
}

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    /// The name of its probe.
    probe: String,
    loops: bool,
}

impl Upstream {
    pub(super) fn set(&mut self, settings: &Settings) {
        let (own, configured) = (Some(settings.address), &settings.upstream);
        if self.own == own
            && self.configured == *configured
            && self.resolv_conf == settings.resolv_conf
        {
            return;
        }
        self.own = own;
        self.configured.clone_from(configured);
        self.resolv_conf.clone_from(&settings.resolv_conf);
        (self.changed, self.look_at) = (None, Instant(0));
        self.servers.clear();
    }

    /// The next server that can be used.
    pub(super) fn next(&mut self, now: Instant) -> Option<SocketAddr> {
        self.look(now);
        let able: Vec<&Server> = self.servers.iter().filter(|server| !server.loops).collect();
        let server = able.get(self.turn % able.len().max(1))?;
        Some(server.address)
    }

    /// The server did not answer: the next question goes to another one.
    pub(super) fn failed(&mut self) {
        self.turn = self.turn.wrapping_add(1);
    }

    /// Whether this name is a probe of ours that came back.
    pub(super) fn is_probe(&mut self, name: &str) -> bool {
        let found = self.servers.iter_mut().find(|server| server.probe == name);
        let is_probe = found.is_some();
        if let Some(server) = found {
            server.loops = true;
        }
        is_probe
    }

    pub(super) fn trouble(&self) -> impl Iterator<Item = String> {
        let looping = self.servers.iter().filter(|server| server.loops);
        looping.map(|server| {
            format!("the name server {} is not used: it asks this one", server.address)
        })
    }

    fn look(&mut self, now: Instant) {
        if now < self.look_at {
            return;
        }
        self.look_at = now.plus_ms(DNS_SERVERS_MS);
        let names = if self.configured.is_empty() {
            let changed = fs::metadata(&self.resolv_conf).and_then(|meta| meta.modified()).ok();
            if changed == self.changed && changed.is_some() {
                return;
            }
            self.changed = changed;
            sys::resolver(&self.resolv_conf).servers
        } else if self.servers.is_empty() {
            self.configured.clone()
        } else {
            return;
        };
        let own = self.own.map(IpAddr::V4);
        let addresses = names.iter().filter_map(|name| name.parse().ok());
        let others = addresses.filter(|ip| Some(*ip) != own).take(SERVERS_MAX);
        self.servers = others.map(|ip| Server::probed(SocketAddr::new(ip, PORT))).collect();
        self.turn = 0;
    }
}

/// As many as resolvers read.
const SERVERS_MAX: usize = 3;

impl Server {
    fn probed(address: SocketAddr) -> Self {
        let probe = format!("edged-{:016x}.invalid", clock::seed());
        let query = OwnQuery::new(clock::seed() as u16, &probe, kind::A);
        let any: IpAddr =
            if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { [0_u16; 8].into() };
        // An answer is of no interest, and that it cannot be sent shows with the next query.
        let _ = UdpSocket::bind((any, 0)).and_then(|it| it.send_to(&query.bytes, address));
        Self { address, probe, loops: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_again_when_their_file_changes_and_one_that_asks_us_is_left_out() {
        let path = std::env::temp_dir().join(format!("edged-upstream-{}", std::process::id()));
        let write = |text: &str, age_s: u64| {
            fs::write(&path, text).expect("a file of ours");
            let file = fs::File::options().write(true).open(&path).expect("ours");
            let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000 - age_s);
            file.set_modified(at).expect("ours");
        };
        write("nameserver 169.254.96.16\nnameserver 127.0.0.77\nnameserver 127.0.0.78\n", 100);
        let settings = Settings {
            domain: String::new(),
            address: Ipv4Addr::new(169, 254, 96, 16),
            upstream: Vec::new(),
            resolv_conf: path.to_str().expect("UTF-8").to_owned(),
            pods_cgroup: String::new(),
        };
        let mut upstream = Upstream::default();
        upstream.set(&settings);
        let address = |upstream: &mut Upstream, at| {
            upstream.next(Instant(at)).map(|address| address.to_string())
        };
        assert_eq!(address(&mut upstream, 1).as_deref(), Some("127.0.0.77:53"));
        upstream.failed();
        assert_eq!(address(&mut upstream, 2).as_deref(), Some("127.0.0.78:53"));
        let probe = upstream.servers[1].probe.clone();
        assert!(upstream.is_probe(&probe) && !upstream.is_probe("edged-0.invalid"));
        assert_eq!(address(&mut upstream, 3).as_deref(), Some("127.0.0.77:53"));
        assert_eq!(upstream.trouble().count(), 1);
        write("nameserver 127.0.0.79\n", 50);
        assert_eq!(address(&mut upstream, DNS_SERVERS_MS).as_deref(), Some("127.0.0.77:53"));
        let later = DNS_SERVERS_MS + 1;
        assert_eq!(address(&mut upstream, later).as_deref(), Some("127.0.0.79:53"));
        let named = Settings { upstream: vec!["127.0.0.80".to_owned()], ..settings };
        upstream.set(&named);
        assert_eq!(address(&mut upstream, later).as_deref(), Some("127.0.0.80:53"));
        fs::remove_file(&path).expect("ours");
    }
}
