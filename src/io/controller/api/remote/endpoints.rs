//! How to reach the API server: its addresses, its CA, and our credentials. From a
//! kubeconfig, or from the service account of a pod.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
    ServerName,
};
use rustls::{ClientConfig, RootCertStore};

use crate::controller::time::Instant;
use crate::io::cloud::files;
use crate::limits::API_TOKEN_MS;
use crate::model::error::{Error, Input, System};
use crate::wire::kubeconfig::{self, Cluster, Material};
use crate::wire::x509::{self, pem};

/// The address and credentials of one API server.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// `host:port`, as in the header `Host`.
    pub host: String,
    /// The addresses of the host's last lookup.
    pub addresses: Vec<SocketAddr>,
    /// The name that its certificate must have.
    pub name: ServerName<'static>,
    /// The trusted CA, and our certificate.
    pub tls: Arc<ClientConfig>,
    /// Its CA, PEM: nodes may request it.
    pub authority: String,
    token: Material,
    /// The token when it was last read, and when to read it again.
    bearer: String,
    read_at: Option<Instant>,
}

impl Endpoint {
    /// The address of this machine from which the server is reached.
    pub fn own_address(&self) -> Option<IpAddr> {
        let to = self.addresses.first()?;
        let any: IpAddr = match to {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // No packet is sent: the kernel chooses the route.
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    }

    /// From a kubeconfig.
    pub fn of_file(path: &Path) -> Result<Self, Error> {
        let text = files::read(path).map_err(|error| System::at(path.display(), error))?;
        let cluster = kubeconfig::parse(text.as_bytes())
            .map_err(|refusal| Input::other(format!("{}{refusal}", path.display())))?;
        Self::of(cluster, path.parent().unwrap_or(Path::new("/")))
    }

    /// For the cluster in which this pod runs.
    pub fn in_cluster() -> Result<Self, Error> {
        let of = |name: &str| {
            let unset = || format!("{name} is not set: this process is not in a pod");
            std::env::var(name).map_err(|_| Input::other(unset()))
        };
        let (host, port) = (of("KUBERNETES_SERVICE_HOST")?, of("KUBERNETES_SERVICE_PORT")?);
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let file = |name: &str| Material::File(format!("{ACCOUNT}/{name}"));
        let cluster = Cluster {
            server: format!("https://{host}:{port}"),
            authority: file("ca.crt"),
            token: file("token"),
            ..Cluster::default()
        };
        Self::of(cluster, Path::new("/"))
    }

    fn of(cluster: Cluster, folder: &Path) -> Result<Self, Error> {
        let server = cluster.server.trim_end_matches('/');
        let expected = || Error::from(Input::quoted(server, "https://host:port").at("server"));
        let host = server.strip_prefix("https://").ok_or_else(expected)?;
        if host.contains('/') {
            return Err(expected());
        }
        let with_port = if host.rsplit(']').next().unwrap_or(host).contains(':') {
            host.to_owned()
        } else {
            format!("{host}:443")
        };
        let (bare, _) = with_port.rsplit_once(':').ok_or_else(expected)?;
        let bare = bare.trim_start_matches('[').trim_end_matches(']');
        let name = if cluster.tls_name.is_empty() { bare } else { &cluster.tls_name };
        let name = ServerName::try_from(name.to_owned()).map_err(|_| expected())?;
        let addresses = with_port.to_socket_addrs();
        let addresses = addresses.map_err(|error| System::at(bare, error))?.collect();
        let text = |material: &Material| text(material, folder);
        let authority = text(&cluster.authority)?;
        let authority = authority.ok_or_else(|| {
            Input::other("the cluster has no certificate-authority, expected one")
        })?;
        let tls = tls(&authority, text(&cluster.certificate)?, text(&cluster.key)?)?;
        let mut reach = Self {
            host: with_port,
            addresses,
            name,
            tls: Arc::new(tls),
            authority,
            token: match cluster.token {
                Material::File(path) => {
                    Material::File(folder.join(path).to_string_lossy().into_owned())
                }
                other => other,
            },
            bearer: String::new(),
            read_at: None,
        };
        reach.bearer = self::text(&reach.token, folder)?.unwrap_or_default();
        Ok(reach)
    }

    /// The header that authenticates us; empty if a certificate does.
    pub fn authorization(&mut self, now: Instant) -> String {
        if matches!(self.token, Material::File(_)) && self.read_at.is_none_or(|at| at <= now) {
            self.read_at = Some(now.plus_ms(API_TOKEN_MS));
            match text(&self.token, Path::new("/")) {
                Ok(Some(bearer)) => self.bearer = bearer,
                Ok(None) => {}
                Err(why) => log::warn!("the old token is used: {why}"),
            }
        }
        match self.bearer.trim() {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        }
    }
}

fn text(material: &Material, folder: &Path) -> Result<Option<String>, System> {
    match material {
        Material::None => Ok(None),
        Material::Inline(text) => Ok(Some(text.clone())),
        Material::File(path) => {
            let path: PathBuf = folder.join(path);
            let text = files::read(&path);
            text.map(Some).map_err(|error| System::at(path.display(), error))
        }
    }
}

fn tls(
    authority: &str,
    certificate: Option<String>,
    key: Option<String>,
) -> Result<ClientConfig, Input> {
    let wrong = |key: &str, why: &dyn std::fmt::Display| Input::other(why.to_string()).at(key);
    let mut roots = RootCertStore::empty();
    for block in pem::decode(authority).map_err(|why| wrong("certificate-authority", &why))? {
        let added = roots.add(CertificateDer::from(block.der));
        added.map_err(|error| wrong("certificate-authority", &error))?;
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for these versions")
        .with_root_certificates(roots);
    let mut config = match certificate.zip(key) {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = pem::decode(&certificate)
                .map_err(|why| wrong("client-certificate", &why))?
                .into_iter()
                .map(|block| CertificateDer::from(block.der));
            let key = private_key(&key)?;
            builder
                .with_client_auth_cert(chain.collect(), key)
                .map_err(|error| wrong("client-certificate", &error))?
        }
    };
    config.resumption = Resumption::in_memory_sessions(16);
    Ok(config)
}

fn private_key(text: &str) -> Result<PrivateKeyDer<'static>, Input> {
    let wrong = |why: String| Input::other(why).at("client-key");
    let blocks = pem::decode(text).map_err(|fault| wrong(fault.to_string()))?;
    blocks
        .into_iter()
        .find_map(|block| match &*block.label {
            "EC PRIVATE KEY" => Some(PrivateSec1KeyDer::from(block.der).into()),
            "PRIVATE KEY" if x509::is_sec1(&block.der) => {
                Some(PrivateSec1KeyDer::from(block.der).into())
            }
            "PRIVATE KEY" => Some(PrivatePkcs8KeyDer::from(block.der).into()),
            "RSA PRIVATE KEY" => Some(PrivatePkcs1KeyDer::from(block.der).into()),
            _ => None,
        })
        .ok_or_else(|| wrong("expected a PEM block PRIVATE KEY, got none".to_owned()))
}

/// Where every pod finds its service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_token_that_lies_in_a_file_is_read_again_after_a_while() {
        let folder = std::env::temp_dir().join(format!("edged-reach-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder of ours");
        let write = |name: &str, text: &str| {
            fs::write(folder.join(name), text).expect("a file of ours");
        };
        let ca = include_bytes!("../../../../../tests/golden/x509/go-ca.der");
        write("ca.crt", &pem::encode("CERTIFICATE", ca));
        write(
            "config",
            "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts:\n- name: a\n  context: \
             {cluster: a, user: a}\nclusters:\n- name: a\n  cluster: {server: \
             'https://127.0.0.1:1', certificate-authority: ca.crt}\nusers:\n- name: a\n  user: \
             {tokenFile: token}\n",
        );
        write("token", "a");
        let mut reach = Endpoint::of_file(&folder.join("config")).expect("a way");
        let mut header = |ms: u64| reach.authorization(Instant(1_000 + ms));
        assert_eq!(header(0), "Authorization: Bearer a\r\n");
        write("token", "b");
        assert_eq!(header(API_TOKEN_MS - 1), "Authorization: Bearer a\r\n");
        assert_eq!(header(API_TOKEN_MS), "Authorization: Bearer b\r\n");
        fs::remove_dir_all(&folder).expect("it was made");
    }
}
