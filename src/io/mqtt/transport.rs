//! A connection to or from a broker: a plain socket, or TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::agent::time::Wall;
use crate::io::cloud::files::{Pair, certificates};
use crate::io::cloud::tls::{Trust, builder};
use crate::io::crypto;
use crate::io::socket::Stream;
use crate::io::tls::Tls;
use crate::model::error::{Error, Input};
use crate::model::settings::{MqttBrokerSettings, MqttClientSettings};

#[derive(Debug)]
pub(super) enum Transport {
    Plain(Stream),
    Tls(Box<Tls>),
}

/// What a read brought.
pub(super) enum Came {
    Bytes(usize),
    /// `true`: there is more, of which epoll will not report.
    Nothing(bool),
    /// The other end closed.
    End,
}

impl Transport {
    /// Starts a turn; returns whether the handshake is complete.
    pub(super) fn begin_turn(&mut self) -> io::Result<bool> {
        match self {
            Self::Plain(_) => Ok(true),
            Self::Tls(tls) => {
                tls.begin_turn();
                tls.handshake()
            }
        }
    }

    pub(super) fn read(&mut self, to: &mut [u8]) -> io::Result<Came> {
        loop {
            let read = match self {
                Self::Plain(stream) => stream.read(to),
                Self::Tls(tls) => tls.read(to),
            };
            return match read {
                Ok(0) => Ok(Came::End),
                Ok(count) => Ok(Came::Bytes(count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(Came::End),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    Ok(Came::Nothing(self.has_more()))
                }
                Err(error) => Err(error),
            };
        }
    }

    /// Writes once, and returns how many bytes have left: 0 if no more can be taken.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let wrote = match self {
                Self::Plain(stream) => stream.write(bytes),
                Self::Tls(tls) => tls.write(bytes),
            };
            return match wrote {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
                wrote => wrote,
            };
        }
    }

    /// Whether the turn ended before the socket was empty.
    pub(super) fn has_more(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.more,
        }
    }

    /// Says to the other end that this was all.
    pub(super) fn send_close(&mut self) {
        if let Self::Tls(tls) = self {
            tls.send_close();
        }
    }
}

/// TLS as a client: trusts the CA of the settings, and shows their certificate if there is one.
/// Read anew for each connection, so that a replaced certificate is used from the next one on.
pub(super) fn client_config(
    settings: &MqttClientSettings,
    wall: Option<Wall>,
) -> Result<Arc<ClientConfig>, Error> {
    let MqttClientSettings { ca_file, cert_file, key_file, .. } = settings;
    if ca_file.is_empty() {
        let why = format!("{}: TLS needs the file of a CA, got none", settings.server);
        return Err(Input::other(why).at("tlsMqttCAFile").into());
    }
    let provider = Arc::new(crypto::provider());
    let mut roots = RootCertStore::empty();
    for certificate in certificates(Path::new(ca_file))? {
        roots.add(certificate).map_err(|error| Input::other(error.to_string()).at(ca_file))?;
    }
    let trust = Trust::of(roots, wall, &provider);
    let mut config = if cert_file.is_empty() {
        builder(provider, trust).with_no_client_auth()
    } else {
        let pair = Pair::of(Path::new(cert_file), Path::new(key_file), &provider)?;
        let resolver = Arc::new(SingleCertAndKey::from(pair.certified));
        builder(provider, trust).with_client_cert_resolver(resolver)
    };
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// TLS as the broker.
pub(super) fn server_config(settings: &MqttBrokerSettings) -> Result<Arc<ServerConfig>, Error> {
    let MqttBrokerSettings { cert_file, key_file, .. } = settings;
    let provider = Arc::new(crypto::provider());
    let pair = Pair::of(Path::new(cert_file), Path::new(key_file), &provider)?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for these versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(pair.certified)));
    // A session that is resumed would save a little time, and cost memory for each client.
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}
