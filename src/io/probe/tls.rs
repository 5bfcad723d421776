//! TLS under a GET, without verification of the other end, as the kubelet's probes do: a probe
//! checks whether the server answers, not who it is.

use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use mio::net::TcpStream;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};

use crate::io::crypto;

#[derive(Debug)]
pub(super) struct Tls {
    connection: ClientConnection,
    trouble: Option<String>,
    /// The first bytes that were received.
    first: Vec<u8>,
}

impl Tls {
    /// For a connection to this address.
    pub(super) fn new(ip: IpAddr) -> Option<Self> {
        let name = ServerName::IpAddress(ip.into());
        let connection = ClientConnection::new(config(), name).ok()?;
        Some(Self { connection, trouble: None, first: Vec::new() })
    }

    /// As [`Read::read`], of plain bytes.
    pub(super) fn read(&mut self, socket: &mut TcpStream, to: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(to) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Closed without close_notify: the bytes before count, and HTTP knows its length.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            let mut peek = Peek { socket, first: &mut self.first };
            if self.connection.read_tls(&mut peek)? == 0 {
                return Ok(0);
            }
            if let Err(error) = self.connection.process_new_packets() {
                self.trouble = Some(format!("tls: {error}"));
                // Sends the alert to the other end.
                let _ = self.connection.write_tls(socket);
                return Err(ErrorKind::InvalidData.into());
            }
            self.push(socket)?;
        }
    }

    /// As [`Write::write`], of plain bytes.
    pub(super) fn write(&mut self, socket: &mut TcpStream, from: &[u8]) -> io::Result<usize> {
        let count = if from.is_empty() { 0 } else { self.connection.writer().write(from)? };
        self.push(socket)?;
        Ok(count)
    }

    fn push(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The error of TLS itself.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.clone()
    }

    /// The other end answered without TLS.
    pub(super) fn is_plain_http(&self) -> bool {
        self.trouble.is_some() && self.first.starts_with(b"HTTP/")
    }
}

/// Keeps a copy of the first bytes that are read.
struct Peek<'a> {
    socket: &'a mut TcpStream,
    first: &'a mut Vec<u8>,
}

impl Read for Peek<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.socket.read(to)?;
        let room = FIRST_BYTES.saturating_sub(self.first.len());
        self.first.extend_from_slice(&to[..count.min(room)]);
        Ok(count)
    }
}

const FIRST_BYTES: usize = 8;

/// Made once, and shared by all connections.
fn config() -> Arc<ClientConfig> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let made = CONFIG.get_or_init(|| {
        let provider = Arc::new(crypto::provider());
        let verifier = Arc::new(Anybody(Arc::clone(&provider)));
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has suites for these versions")
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Arc::new(config)
    });
    Arc::clone(made)
}

/// Accepts every certificate and every signature: a probe sends no secret and trusts no content.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
