//! Pulls from a registry (OCI distribution-spec; Docker's token servers).
//!
//! ```text
//!  GET ──▶ 200, 206 ──▶ the body
//!   ▲ ├──▶ 3xx ──▶ there, without Authorization if it is another server
//!   │ ├──▶ 401 ──▶ Basic, or a token of the realm that it names ─┐ once
//!   │ ├──▶ 429, 5xx, no connection ──▶ back-off ─────────────────┤
//!   └─┴──────────────────────────────────────────────────────────┘
//! ```
//!
//! Mirrors are asked before the registry itself, each until one has the image; what a mirror lacks
//! later comes from the next. Credentials go to the registry alone.
//!
//! A layer is downloaded to `tmp/blob-HEX.part`. If the connection breaks, or the job is killed,
//! the next request asks for the rest alone. The digest of the whole is compared when it is
//! unpacked, and the file is removed then, whatever comes of it.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use nix::poll::{PollTimeout, poll};
use nix::sys::statvfs::statvfs;
use ureq::Body;
use ureq::http::Response;

use super::http::{Client, is_loopback, origin};
use super::unpack::after;
use crate::io::image_import::archive::{Blob, Span};
use crate::limits::{
    IMAGE_JSON_BYTES_MAX, LAYER_SPARE_BYTES, REGISTRY_ANSWER_BYTES_MAX, REGISTRY_FOLDERS_TRIES_MAX,
    REGISTRY_PROGRESS_BYTES, REGISTRY_REDIRECTS_MAX, REGISTRY_RETRY_MAX_MS, REGISTRY_RETRY_MS,
    REGISTRY_TRIES_MAX,
};
use crate::model::base64;
use crate::model::builtin::Registries;
use crate::model::image::{HUB, ImageName, is_sha256};
use crate::model::runtime::{JobFault, RegistryAuth};
use crate::wire::oci::image::{Challenge, encoded, refusal, token};
use crate::wire::oci::sha256;

/// Where the parts of one image come from: its registry, and the mirrors before it.
pub(super) struct Sources<'a> {
    /// The registry itself is the last.
    all: Vec<Registry<'a>>,
    /// The first that has not failed yet.
    at: usize,
    /// Why those before it failed.
    passed: Vec<String>,
}

/// One repository of a registry or of a mirror.
struct Registry<'a> {
    client: Client,
    /// `https://registry.example:5000`
    base: String,
    repository: String,
    /// For a mirror: the registry that is meant (`ns=`, as containerd sends it).
    query: String,
    auth: Option<&'a RegistryAuth>,
    /// The header that the registry accepts.
    authorization: Option<String>,
    /// Hosts of plain HTTP.
    insecure: &'a [String],
    tries_max: u32,
}

/// Why a source has not answered as it should.
enum Failure {
    /// Another may do better.
    Source(JobFault),
    /// No other can help: the disk.
    Own(JobFault),
}

impl From<JobFault> for Failure {
    fn from(fault: JobFault) -> Self {
        Self::Source(fault)
    }
}

/// Failures in a row, and how many there may be.
struct Tries(u32, u32);

impl Tries {
    /// Waits before the next try; after the last one the failure is returned.
    fn again(&mut self, why: JobFault, wait_ms: Option<u64>) -> Result<(), JobFault> {
        self.0 += 1;
        if self.0 >= self.1 {
            return Err(why);
        }
        let wait_ms = patience_ms(self.0, wait_ms) as i32;
        // Nobody needs this process meanwhile.
        let _ = poll(&mut [], PollTimeout::try_from(wait_ms).unwrap_or(PollTimeout::ZERO));
        Ok(())
    }
}

impl<'a> Sources<'a> {
    pub(super) fn new(
        name: &'a ImageName,
        auth: Option<&'a RegistryAuth>,
        registries: &'a Registries,
    ) -> Self {
        let client = Client::new(&registries.ca_file);
        let source = |base: String, path: &str, tries_max| Registry {
            client: client.clone(),
            base,
            repository: format!("{path}{}", name.path),
            query: format!("?ns={}", encoded(&name.domain)),
            auth: None,
            authorization: None,
            insecure: &registries.insecure,
            tries_max,
        };
        let folders = registries.image_folders.iter();
        // The agent may just be starting it.
        let folders =
            folders.map(|host| source(format!("http://{host}"), "", REGISTRY_FOLDERS_TRIES_MAX));
        let mirrors = registries.mirrors_of(&name.domain).map(|mirror| {
            let base = origin(mirror).unwrap_or(mirror);
            let path = mirror[base.len()..].trim_matches('/');
            let path = if path.is_empty() { String::new() } else { format!("{path}/") };
            source(base.to_owned(), &path, 1)
        });
        let host = if &*name.domain == HUB { "registry-1.docker.io" } else { &*name.domain };
        let plain = is_loopback(host) || registries.insecure.iter().any(|other| other == host);
        let scheme = if plain { "http" } else { "https" };
        let ready = auth.and_then(|auth| auth.registry_token.as_ref());
        let registry = Registry {
            query: String::new(),
            auth,
            authorization: ready.map(|token| format!("Bearer {token}")),
            ..source(format!("{scheme}://{host}"), "", REGISTRY_TRIES_MAX)
        };
        let own = folders.chain(mirrors).filter(|mirror| mirror.base != registry.base);
        let mut all: Vec<Registry<'a>> = own.collect();
        all.push(registry);
        Self { all, at: 0, passed: Vec::new() }
    }

    /// A manifest or an index, by tag or digest; `None`: `latest`.
    pub(super) fn manifest(&mut self, reference: Option<&str>) -> Result<Vec<u8>, JobFault> {
        self.first(|source| Ok(source.manifest(reference)?))
    }

    /// A blob that is kept in memory: a configuration.
    pub(super) fn small_blob(&mut self, digest: &str, size: u64) -> Result<Vec<u8>, JobFault> {
        self.first(|source| Ok(source.small_blob(digest, size)?))
    }

    /// A layer, in a file below `tmp`.
    pub(super) fn blob(&mut self, tmp: &Path, digest: &str, size: u64) -> Result<Blob, JobFault> {
        self.first(|source| source.blob(tmp, digest, size))
    }

    /// The answer of the first source that has one. Those before it are not asked again.
    fn first<T>(
        &mut self,
        mut ask: impl FnMut(&mut Registry<'a>) -> Result<T, Failure>,
    ) -> Result<T, JobFault> {
        loop {
            let is_last = self.at + 1 == self.all.len();
            let source = &mut self.all[self.at];
            match ask(source) {
                Ok(answer) => {
                    source.tries_max = REGISTRY_TRIES_MAX;
                    return Ok(answer);
                }
                Err(Failure::Own(fault)) => return Err(fault),
                Err(Failure::Source(fault)) if is_last => {
                    return Err(match &*self.passed.join("; ") {
                        "" => fault,
                        passed => after(fault, &format!(" (mirrors: {passed})")),
                    });
                }
                Err(Failure::Source(JobFault::NotFound(_))) => {}
                Err(Failure::Source(fault)) => {
                    let why = fault.text();
                    let rest = why.strip_prefix(&*source.base).unwrap_or(why);
                    let rest = rest.trim_start_matches(": ");
                    self.passed.push(format!("{}: {rest}", source.base));
                }
            }
            self.at += 1;
        }
    }
}

impl Registry<'_> {
    fn manifest(&mut self, reference: Option<&str>) -> Result<Vec<u8>, JobFault> {
        let reference = reference.unwrap_or("latest");
        let Self { base, repository, query, .. } = &*self;
        let url = format!("{base}/v2/{repository}/manifests/{reference}{query}");
        self.json(&url, &[("Accept", ACCEPTED)], |answer, bytes| {
            let digest = answer.headers().get("docker-content-digest");
            let digest = digest.and_then(|digest| digest.to_str().ok());
            match digest.filter(|digest| is_sha256(digest) && *digest != sha256(bytes)) {
                None => Ok(()),
                Some(said) => {
                    let got = sha256(bytes);
                    let why = format!("got a manifest with the digest {got}, expected {said}");
                    Err(JobFault::Invalid(why))
                }
            }
        })
    }

    fn small_blob(&mut self, digest: &str, size: u64) -> Result<Vec<u8>, JobFault> {
        if size > IMAGE_JSON_BYTES_MAX as u64 {
            let why = format!("got {size} bytes of JSON, expected {IMAGE_JSON_BYTES_MAX} at most");
            return Err(JobFault::Invalid(why));
        }
        let url = self.blob_url(digest);
        self.json(&url, &[], |_, _| Ok(()))
    }

    fn blob_url(&self, digest: &str) -> String {
        let Self { base, repository, query, .. } = self;
        format!("{base}/v2/{repository}/blobs/{digest}{query}")
    }

    fn json(
        &mut self,
        url: &str,
        headers: &[(&str, &str)],
        check: impl Fn(&Response<Body>, &[u8]) -> Result<(), JobFault>,
    ) -> Result<Vec<u8>, JobFault> {
        let mut tries = self.tries();
        loop {
            let mut answer = self.get(url, headers, &mut tries)?;
            match whole(&mut answer, IMAGE_JSON_BYTES_MAX as u64) {
                Ok(bytes) => {
                    check(&answer, &bytes)?;
                    return Ok(bytes);
                }
                Err(error) if error.kind() == ErrorKind::InvalidData => {
                    return Err(JobFault::Invalid(error.to_string()));
                }
                Err(error) => tries.again(JobFault::Failed(error.to_string()), None)?,
            }
        }
    }

    fn blob(&mut self, tmp: &Path, digest: &str, size: u64) -> Result<Blob, Failure> {
        let path = part(tmp, digest);
        let at = |error: io::Error| {
            Failure::Own(JobFault::Failed(format!("{}: {error}", path.display())))
        };
        let mut options = OpenOptions::new();
        let mut file = options.append(true).read(true).create(true).open(&path).map_err(at)?;
        // The job of a server that was killed may not have ended yet.
        let _lock = Flock::lock(file.try_clone().map_err(at)?, FlockArg::LockExclusive)
            .map_err(|(_, errno)| at(errno.into()))?;
        let mut got = file.metadata().map_err(at)?.len();
        if got > size {
            got = 0;
            file.set_len(0).map_err(at)?;
        }
        room(tmp, size - got).map_err(Failure::Own)?;
        let url = self.blob_url(digest);
        let mut tries = self.tries();
        while got < size {
            let begin = got;
            let range = format!("bytes={got}-");
            let headers = [("Range", &*range)];
            let mut answer = self.get(&url, &headers[..usize::from(got > 0)], &mut tries)?;
            let continues = answer.status() == 206 && range_start(&answer) == Some(got);
            if got > 0 && !continues {
                // From its beginning, or a range that was not asked for.
                file.set_len(0).map_err(at)?;
                got = 0;
                if answer.status() != 200 {
                    let why = format!("got status {}, expected a range", answer.status());
                    tries.again(JobFault::Failed(why), None)?;
                    continue;
                }
            }
            let read = append(&mut answer, &mut file, size - got);
            got = file.metadata().map_err(at)?.len();
            let progress = got.saturating_sub(begin) >= REGISTRY_PROGRESS_BYTES;
            if progress {
                tries = self.tries();
            }
            match read {
                Ok(()) if got == size => {}
                // The line may be poor: at once again, as far as it goes.
                Ok(()) | Err(Append::Network(_)) if progress => {}
                Ok(()) => {
                    let why = format!("got {got} bytes of {digest}, expected {size}");
                    tries.again(JobFault::Failed(why), None)?;
                }
                Err(Append::File(error)) => return Err(at(error)),
                Err(Append::Long) => {
                    let why = format!("got more than {size} bytes of {digest}, expected as many");
                    return Err(JobFault::Invalid(why).into());
                }
                Err(Append::Network(error)) => {
                    tries.again(JobFault::Failed(format!("{digest}: {error}")), None)?;
                }
            }
        }
        Ok(Blob::File(file, Span { at: 0, size }))
    }

    /// An answer with a body: 200, 206 or 416.
    fn get(
        &mut self,
        url: &str,
        headers: &[(&str, &str)],
        tries: &mut Tries,
    ) -> Result<Response<Body>, JobFault> {
        let mut challenged = false;
        loop {
            let mut answer = match self.follow(url, headers) {
                Ok(answer) => answer,
                Err(Follow::Network(error)) => {
                    tries.again(JobFault::Failed(format!("{}: {error}", self.base)), None)?;
                    continue;
                }
                Err(Follow::Redirect(why)) => return Err(JobFault::Failed(why)),
            };
            let status = answer.status().as_u16();
            let said = |answer: &mut Response<Body>| {
                let bytes = whole(answer, REGISTRY_ANSWER_BYTES_MAX).unwrap_or_default();
                match refusal(&bytes) {
                    text if text.is_empty() => format!("status {status}"),
                    text => text,
                }
            };
            match status {
                200 | 206 | 416 => return Ok(answer),
                401 if !challenged => {
                    challenged = true;
                    let challenges = answer.headers().get_all("www-authenticate");
                    let mut challenges = challenges.iter().filter_map(|it| it.to_str().ok());
                    let challenge = challenges.find_map(Challenge::parse);
                    let Some(challenge) = challenge else { return Err(denied(&said(&mut answer))) };
                    self.authorize(challenge, tries)?;
                }
                401 | 403 => return Err(denied(&said(&mut answer))),
                404 => {
                    let why = format!("not found: {}", said(&mut answer));
                    return Err(JobFault::NotFound(why));
                }
                429 | 500..=599 => {
                    let wait_ms = retry_after_ms(&answer);
                    let why = format!("{}: {}", self.base, said(&mut answer));
                    tries.again(JobFault::Failed(why), wait_ms)?;
                }
                _ => {
                    let why = format!("{}: got status {status}: {}", self.base, said(&mut answer));
                    return Err(JobFault::Failed(why));
                }
            }
        }
    }

    /// Follows redirects. Another server does not get the header that this one accepts.
    fn follow(&self, url: &str, headers: &[(&str, &str)]) -> Result<Response<Body>, Follow> {
        let mut url = url.to_owned();
        let mut authorization = self.authorization.as_deref();
        for _ in 0..=REGISTRY_REDIRECTS_MAX {
            let mut headers = headers.to_vec();
            headers.extend(authorization.map(|value| ("Authorization", value)));
            let answer = self.client.send(&url, &headers, None).map_err(Follow::Network)?;
            if !matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(answer);
            }
            let to = answer.headers().get("location").and_then(|to| to.to_str().ok());
            let to = to.unwrap_or_default();
            let here = origin(&url).unwrap_or_default();
            let next = if to.starts_with('/') && !to.starts_with("//") {
                format!("{here}{to}")
            } else {
                to.to_owned()
            };
            let there = origin(&next).filter(|there| self.may(there));
            let there = there.ok_or_else(|| {
                let shown: String = to.chars().take(200).collect();
                Follow::Redirect(format!("got a redirect to {shown:?}, expected a URL of HTTPS"))
            })?;
            if there != self.base {
                authorization = None;
            }
            url = next;
        }
        let why = format!("got more than {REGISTRY_REDIRECTS_MAX} redirects, expected fewer");
        Err(Follow::Redirect(why))
    }

    /// Plain HTTP stays on this machine and at the hosts that are named for it, and only a source
    /// of plain HTTP leads there.
    fn may(&self, origin: &str) -> bool {
        let is_named = |host: &str| is_loopback(host) || self.insecure.iter().any(|it| it == host);
        let plain = origin.strip_prefix("http://");
        let from_plain = self.base.starts_with("http://");
        plain.is_none_or(|host| from_plain && (is_named(host) || origin == self.base))
    }

    fn tries(&self) -> Tries {
        Tries(0, self.tries_max)
    }

    fn authorize(&mut self, challenge: Challenge, tries: &mut Tries) -> Result<(), JobFault> {
        let basic = self.auth.and_then(|auth| auth.basic.as_ref()).map(|(user, password)| {
            format!("Basic {}", base64::encode(format!("{user}:{password}").as_bytes()))
        });
        let (realm, service, scope) = match challenge {
            Challenge::Basic => {
                self.authorization = basic;
                return match self.authorization {
                    Some(_) => Ok(()),
                    None => Err(denied("no basic auth credentials")),
                };
            }
            Challenge::Bearer { realm, service, scope } => (realm, service, scope),
        };
        if !origin(&realm).is_some_and(|origin| self.may(origin)) {
            let shown: String = realm.chars().take(200).collect();
            let why = format!("got the token server {shown:?}, expected a URL of HTTPS");
            return Err(JobFault::Failed(why));
        }
        let scope = scope.unwrap_or_else(|| format!("repository:{}:pull", self.repository));
        let service = service.map(|service| format!("&service={}", encoded(&service)));
        let query = format!("scope={}{}", encoded(&scope), service.unwrap_or_default());
        let refresh = self.auth.and_then(|auth| auth.identity_token.as_deref());
        let form = refresh.map(|token| {
            let token = encoded(token);
            format!("grant_type=refresh_token&client_id=edged&{query}&refresh_token={token}")
        });
        let url = match form {
            Some(_) => realm,
            None => format!("{realm}{}{query}", if realm.contains('?') { '&' } else { '?' }),
        };
        let headers: Vec<(&str, &str)> =
            basic.iter().filter(|_| form.is_none()).map(|it| ("Authorization", &**it)).collect();
        loop {
            let (why, wait_ms) = match self.client.send(&url, &headers, form.as_deref()) {
                Err(error) => (error.to_string(), None),
                Ok(mut answer) => {
                    let status = answer.status().as_u16();
                    let bytes = whole(&mut answer, REGISTRY_ANSWER_BYTES_MAX).unwrap_or_default();
                    match (status, token(&bytes)) {
                        (200, Some(token)) => {
                            self.authorization = Some(format!("Bearer {token}"));
                            return Ok(());
                        }
                        (400 | 401 | 403, _) => return Err(denied(&refusal(&bytes))),
                        (429 | 500..=599, _) => {
                            (format!("status {status}"), retry_after_ms(&answer))
                        }
                        _ => (format!("got status {status}, expected a token"), None),
                    }
                }
            };
            let server = origin(&url).unwrap_or_default();
            tries.again(JobFault::Failed(format!("the token server {server}: {why}")), wait_ms)?;
        }
    }
}

/// Before the next try after so many failures, where the registry may have asked for a time.
fn patience_ms(failures: u32, asked_ms: Option<u64>) -> u64 {
    asked_ms.unwrap_or(REGISTRY_RETRY_MS << (failures - 1)).min(REGISTRY_RETRY_MAX_MS)
}

/// Removes what was downloaded of this blob.
pub(super) fn forget(tmp: &Path, digest: &str) {
    // Otherwise it is removed with those that nothing continues.
    let _ = fs::remove_file(part(tmp, digest));
}

fn part(tmp: &Path, digest: &str) -> PathBuf {
    tmp.join(format!("blob-{}.part", digest.trim_start_matches("sha256:")))
}

/// Whether a file in `tmp` is a download.
pub(super) fn is_part(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.starts_with(b"blob-") && name.ends_with(b".part")
}

/// What a registry may send as a manifest.
const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.docker.distribution.manifest.v2+json";

enum Follow {
    Network(io::Error),
    Redirect(String),
}

enum Append {
    Network(io::Error),
    File(io::Error),
    /// There is more than was to come.
    Long,
}

fn append(answer: &mut Response<Body>, file: &mut File, most: u64) -> Result<(), Append> {
    let mut body = answer.body_mut().with_config().limit(u64::MAX).reader();
    let mut buffer = vec![0; 64 << 10];
    let mut left = most;
    loop {
        let count = match body.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(Append::Network(error)),
        };
        left = left.checked_sub(count as u64).ok_or(Append::Long)?;
        file.write_all(&buffer[..count]).map_err(Append::File)?;
    }
}

/// A body of this many bytes at most.
fn whole(answer: &mut Response<Body>, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let body = answer.body_mut().with_config().limit(u64::MAX).reader();
    body.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let why = format!("got an answer of more than {bytes_max} bytes, expected fewer");
        return Err(io::Error::new(ErrorKind::InvalidData, why));
    }
    Ok(bytes)
}

/// `Content-Range: bytes N-…`
fn range_start(answer: &Response<Body>) -> Option<u64> {
    let range = answer.headers().get("content-range")?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split_once('-')?.0.parse().ok()
}

/// `Retry-After` in seconds; a date is not read.
fn retry_after_ms(answer: &Response<Body>) -> Option<u64> {
    let seconds: u64 = answer.headers().get("retry-after")?.to_str().ok()?.parse().ok()?;
    Some(seconds.saturating_mul(1_000))
}

fn denied(why: &str) -> JobFault {
    JobFault::Denied(format!(
        "pull access denied, repository does not exist or may require authorization: \
         authorization failed: {why}"
    ))
}

/// Whether so many bytes fit, with what has to remain free.
fn room(tmp: &Path, bytes: u64) -> Result<(), JobFault> {
    let stat = statvfs(tmp).map_err(|errno| JobFault::Failed(format!("statvfs: {errno}")))?;
    #[allow(clippy::unnecessary_cast, reason = "these have 32 bits on some machines, 64 on others")]
    let free = stat.blocks_available() as u64 * stat.fragment_size() as u64;
    if bytes.saturating_add(LAYER_SPARE_BYTES) <= free {
        return Ok(());
    }
    let why = format!("no space left on device: got {bytes} bytes to download, {free} are free");
    Err(JobFault::Failed(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_this_machine_and_for_hosts_that_are_named() {
        let registries =
            Registries { insecure: vec!["10.0.0.5:5000".to_owned()], ..Registries::default() };
        for (image, base) in [
            ("busybox", "https://registry-1.docker.io"),
            ("10.0.0.5:5000/a", "http://10.0.0.5:5000"),
            ("10.0.0.5/a", "https://10.0.0.5"),
            ("127.0.0.1:5000/a", "http://127.0.0.1:5000"),
        ] {
            let name = ImageName::parse(image).expect("a name");
            let sources = Sources::new(&name, None, &registries);
            let source = &sources.all[0];
            assert_eq!((sources.all.len(), &*source.base), (1, base));
            let plain = base.starts_with("http://");
            for host in ["10.0.0.5:5000", "127.0.0.1:1"] {
                assert_eq!(source.may(&format!("http://{host}")), plain, "{base} to {host}");
            }
            assert!(!source.may("http://10.0.0.6:5000") && source.may("https://10.0.0.6"));
        }
    }

    #[test]
    fn each_try_waits_longer_and_none_for_ever() {
        let waits = [1, 2, 3, 4].map(|failures| patience_ms(failures, None) / REGISTRY_RETRY_MS);
        assert_eq!(waits, [1, 2, 4, 8]);
        assert_eq!(patience_ms(1, Some(7)), 7);
        assert_eq!(patience_ms(1, Some(u64::MAX)), REGISTRY_RETRY_MAX_MS);
        assert_eq!(patience_ms(30, None), REGISTRY_RETRY_MAX_MS);
    }
}
