//! Facts about the node that change without a notification: its addresses, its DNS servers, its
//! registry credentials. They are read every minute, and reported if they changed.
//!
//! Nothing is stored; after a crash all of them are reported again.

use std::net::IpAddr;

use super::credentials::Credentials;
use super::sys;
use crate::agent::event::Event;
use crate::agent::time::Instant;
use crate::limits::ADDRESSES_MS;
use crate::model::cri::Dns;

/// The values of the last report.
#[derive(Debug)]
pub(super) struct Surroundings {
    node_ip: Option<IpAddr>,
    resolv_conf: String,
    credentials: Credentials,
    addresses: Option<Vec<String>>,
    resolver: Option<Dns>,
    refresh_at: Instant,
}

impl Surroundings {
    /// The first [`Surroundings::tick`] reports all of it.
    pub(super) fn new(
        node_ip: Option<IpAddr>,
        resolv_conf: &str,
        credentials: Credentials,
    ) -> Self {
        let (addresses, resolver, refresh_at) = (None, None, Instant(0));
        let resolv_conf = resolv_conf.to_owned();
        Self { node_ip, resolv_conf, credentials, addresses, resolver, refresh_at }
    }

    /// When to call [`Surroundings::tick`].
    pub(super) fn wake_at(&self) -> Instant {
        self.refresh_at
    }

    /// Reads the values, if that is due.
    pub(super) fn tick(&mut self, now: Instant, events: &mut Vec<Event>) {
        if now < self.refresh_at {
            return;
        }
        self.refresh_at = now.plus_ms(ADDRESSES_MS);
        let addresses = Some(sys::addresses(self.node_ip));
        if addresses != self.addresses {
            self.addresses.clone_from(&addresses);
            events.extend(addresses.map(Event::Addresses));
        }
        let resolver = sys::resolver(&self.resolv_conf);
        if self.resolver.as_ref() != Some(&resolver) {
            self.resolver = Some(resolver.clone());
            events.push(Event::Resolver(Box::new(resolver)));
        }
        let credentials = self.credentials.reload();
        events.extend(credentials.map(|found| Event::Credentials(Box::new(found))));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_changed_is_reported_with_the_next_refresh() {
        let path = std::env::temp_dir().join(format!("edged-resolv-{}", std::process::id()));
        let write = |server: &str| fs::write(&path, format!("nameserver {server}\n"));
        write("192.0.2.1").expect("a file of ours");
        let credentials = Credentials::new(&path);
        let path = path.to_str().expect("UTF-8");
        let mut surroundings = Surroundings::new(None, path, credentials);
        let mut reported = |now: Instant| -> Option<Vec<String>> {
            let mut events = Vec::new();
            surroundings.tick(now, &mut events);
            events.into_iter().find_map(|event| match event {
                Event::Resolver(dns) => Some(dns.servers),
                _ => None,
            })
        };
        let began = Instant(1_000);
        assert_eq!(reported(began), Some(vec!["192.0.2.1".to_owned()]));
        write("192.0.2.2").expect("a file of ours");
        assert_eq!(reported(began.plus_ms(ADDRESSES_MS - 1)), None);
        assert_eq!(reported(began.plus_ms(ADDRESSES_MS)), Some(vec!["192.0.2.2".to_owned()]));
        assert_eq!(reported(began.plus_ms(2 * ADDRESSES_MS)), None, "it is as it was");
        fs::remove_file(path).expect("ours");
    }
}
