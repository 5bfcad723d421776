//! The node's credential files, in KubeEdge's places: the cloud's CA, the node's certificate and
//! its private key.
//!
//! Two files cannot be replaced in one step, so a new pair is first written beside the old one, as
//! `<file>.new`, and is durable there before either file is renamed:
//!
//! ```text
//!  server.key.new, server.crt.new ─fsync─▶ rename the key ─fsync─▶ rename the certificate ─fsync─▶
//!          ▲ power cut: the old pair is used            ▲ power cut: the key fits `.crt.new`
//! ```
//!
//! [`Pair::load`] uses the files that match each other, so a power cut at any step leaves
//! a valid pair, the old one or the new. Not here: what a certificate contains, and how to get one.

use std::fs::{DirBuilder, File, OpenOptions, remove_file, rename};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};
use rustls::sign::CertifiedKey;

use crate::limits::CREDENTIALS_BYTES_MAX;
use crate::model::error::{Error, Input, System};
use crate::model::settings::CloudLink;
use crate::wire::x509::{self, pem};

/// A certificate and its key.
#[derive(Debug)]
pub(in crate::io) struct Pair {
    /// The node's own certificate first.
    pub(in crate::io) chain: Vec<CertificateDer<'static>>,
    pub(in crate::io) certified: CertifiedKey,
}

impl Pair {
    /// Reads the current pair. An error says which file is invalid, and why.
    pub(super) fn load(link: &CloudLink, provider: &CryptoProvider) -> Result<Self, Error> {
        let (cert, key) = (Path::new(&link.cert_file), Path::new(&link.key_file));
        let (new_cert, new_key) = (beside(cert), beside(key));
        let first = match Self::of(cert, key, provider) {
            Ok(pair) => return Ok(pair),
            Err(why) => why,
        };
        // Power failed during a replacement: then one of these pairs matches.
        for (from_cert, from_key) in [(&*new_cert, key), (cert, &*new_key), (&*new_cert, &*new_key)]
        {
            let Ok(pair) = Self::of(from_cert, from_key, provider) else { continue };
            log::info!(
                "the replacement of certificate={} was interrupted, and is completed now",
                cert.display()
            );
            let moved =
                [(from_key, key), (from_cert, cert)].into_iter().try_for_each(|(from, to)| {
                    if from == to { Ok(()) } else { give_name(from, to) }
                });
            if let Err(error) = moved {
                log::warn!("cannot complete it: {error}; the pair is used from these files");
            }
            return Ok(pair);
        }
        Err(first)
    }

    /// Reads the pair as it is, and completes nothing.
    pub(super) fn peek(link: &CloudLink, provider: &CryptoProvider) -> Result<Self, Error> {
        Self::of(Path::new(&link.cert_file), Path::new(&link.key_file), provider)
    }

    /// Reads the pair of these files.
    pub(in crate::io) fn of(
        cert: &Path,
        key: &Path,
        provider: &CryptoProvider,
    ) -> Result<Self, Error> {
        let chain = certificates(cert)?;
        let certified = CertifiedKey::from_der(chain.clone(), private_key(key)?, provider)
            .map_err(|error| {
                let (cert, key) = (cert.display(), key.display());
                Input::other(format!("certificate {cert} and key {key} do not match: {error}"))
            })?;
        Ok(Self { chain, certified })
    }
}

/// Replaces the node's certificate and key (PEM), durably.
pub(super) fn store_pair(link: &CloudLink, cert_pem: &str, key_pem: &str) -> io::Result<()> {
    let (cert, key) = (Path::new(&link.cert_file), Path::new(&link.key_file));
    write_new(&beside(key), key_pem, PRIVATE)?;
    write_new(&beside(cert), cert_pem, PRIVATE)?;
    give_name(&beside(key), key)?;
    give_name(&beside(cert), cert)
}

/// Writes a file durably and atomically.
pub(in crate::io) fn store(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let new = beside(path);
    let done = write_new(&new, text, mode).and_then(|()| give_name(&new, path));
    if done.is_err() {
        // Most likely the disk is full: a partial file must not use the remaining space. If the
        // removal fails too, the next attempt removes it.
        let _ = remove_file(&new);
    }
    done
}

/// Every certificate of a PEM file.
pub(in crate::io) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let found: Vec<_> = blocks(path)?
        .into_iter()
        .filter(|block| block.label == "CERTIFICATE")
        .map(|block| CertificateDer::from(block.der))
        .collect();
    if found.is_empty() {
        return Err(lacks("CERTIFICATE", path));
    }
    Ok(found)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    for block in blocks(path)? {
        match &*block.label {
            "EC PRIVATE KEY" => return Ok(PrivateSec1KeyDer::from(block.der).into()),
            "PRIVATE KEY" if x509::is_sec1(&block.der) => {
                return Ok(PrivateSec1KeyDer::from(block.der).into());
            }
            "PRIVATE KEY" => return Ok(PrivatePkcs8KeyDer::from(block.der).into()),
            "RSA PRIVATE KEY" => return Ok(PrivatePkcs1KeyDer::from(block.der).into()),
            _ => {}
        }
    }
    Err(lacks("EC PRIVATE KEY", path))
}

fn lacks(label: &str, path: &Path) -> Error {
    Input::other(format!("expected a PEM block {label}, got none")).at(path.display()).into()
}

fn blocks(path: &Path) -> Result<Vec<pem::Block>, Error> {
    let place = path.display();
    let text =
        read(path).map_err(|error| System::at(format_args!("cannot read {place}"), error))?;
    let wrong = |fault: pem::Fault| Input::other(fault.to_string()).at(place);
    pem::decode(&text).map_err(|fault| wrong(fault).into())
}

/// Reads a small text file.
pub(in crate::io) fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(CREDENTIALS_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > CREDENTIALS_BYTES_MAX {
        let why = format!("got more than {CREDENTIALS_BYTES_MAX} bytes, expected fewer");
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    Ok(text)
}

fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let at =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(FOLDER).create(folder).map_err(at)?;
    }
    // Left by an earlier attempt; perhaps with another mode.
    match remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(at(error)),
        _ => {}
    }
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(at)?;
    // Independent of the umask.
    file.set_permissions(std::fs::Permissions::from_mode(mode)).map_err(at)?;
    file.write_all(text.as_bytes()).map_err(at)?;
    file.sync_all().map_err(at)
}

fn give_name(from: &Path, to: &Path) -> io::Result<()> {
    let at = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", to.display()));
    rename(from, to).map_err(at)?;
    let folder = to.parent().unwrap_or(Path::new("/"));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(at)
}

/// `<path>.new`
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

/// The mode of keys, and of files with secrets beside them.
pub(in crate::io) const PRIVATE: u32 = 0o600;
const FOLDER: u32 = 0o700;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_credentials_has_a_bound() {
        let path = std::env::temp_dir().join(format!("edged-token-{}", std::process::id()));
        for (bytes, fits) in [(CREDENTIALS_BYTES_MAX, true), (CREDENTIALS_BYTES_MAX + 1, false)] {
            std::fs::write(&path, "x".repeat(bytes as usize)).expect("a file of ours");
            let done = read(&path).map(|text| text.len() as u64);
            assert_eq!(done.as_ref().ok(), fits.then_some(&bytes), "{done:?}");
        }
        remove_file(&path).expect("it was written");
    }
}
