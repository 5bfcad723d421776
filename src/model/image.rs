//! Names of images: `registry.example:5000/team/app:1.2@sha256:…`, by the grammar that registries
//! and runtimes share (distribution/reference; spec sections 2.5 and 3.6).

use std::fmt;

/// A parsed name. Omitted parts have their defaults: `docker.io` and `library/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageName {
    /// The registry, with its port: `docker.io`, `registry.example:5000`.
    pub domain: Box<str>,
    /// Without slashes at its ends: `library/busybox`.
    pub path: Box<str>,
    /// As written.
    pub tag: Option<Box<str>>,
    /// `sha256:` and 64 hex digits.
    pub digest: Option<Box<str>>,
}

/// Why a text is no name; shown in the kubelet's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidName {
    /// 64 hexadecimal digits, which could be an image's id.
    Hexadecimal(Box<str>),
    /// This path has an upper case letter.
    UpperCase(Box<str>),
    /// It does not follow the grammar.
    Format,
    /// Registry and path are too long.
    Length,
    /// Neither SHA-256, SHA-384 nor SHA-512.
    DigestAlgorithm,
    /// Not as long as its algorithm's.
    DigestLength,
    /// Other characters than hexadecimal digits in lower case.
    DigestFormat,
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hexadecimal(name) => write!(
                f,
                "invalid repository name ({name}), cannot specify 64-byte hexadecimal strings"
            ),
            Self::UpperCase(path) => {
                write!(f, "invalid reference format: repository name ({path}) must be lowercase")
            }
            Self::Format => f.write_str("invalid reference format"),
            Self::Length => {
                write!(f, "repository name must not be more than {NAME_MAX} characters")
            }
            Self::DigestAlgorithm => f.write_str("unsupported digest algorithm"),
            Self::DigestLength => f.write_str("invalid checksum digest length"),
            Self::DigestFormat => f.write_str("invalid checksum digest format"),
        }
    }
}

impl ImageName {
    /// Parses a name.
    pub fn parse(name: &str) -> Result<Self, InvalidName> {
        if name.len() == 64 && name.bytes().all(is_hex) {
            return Err(InvalidName::Hexadecimal(name.into()));
        }
        let (domain, rest) = split_domain(name);
        let written = rest.split(':').next().unwrap_or_default();
        if written.to_lowercase() != written {
            return Err(InvalidName::UpperCase(written.into()));
        }
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (rest, None),
        };
        let (path, tag) = match rest.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (rest, None),
        };
        // A name without a slash on Docker Hub is one of its own library.
        let path: Box<str> = match (domain, path.contains('/')) {
            (HUB, false) => format!("library/{path}").into(),
            _ => path.into(),
        };
        let sound = is_domain(domain)
            && path.split('/').all(is_component)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(looks_like_a_digest);
        if !sound {
            return Err(InvalidName::Format);
        }
        if domain.len() + 1 + path.len() > NAME_MAX {
            return Err(InvalidName::Length);
        }
        if let Some(digest) = digest {
            check_digest(digest)?;
        }
        let (tag, digest) = (tag.map(Into::into), digest.map(Into::into));
        Ok(Self { domain: domain.into(), path, tag, digest })
    }

    /// Registry and path: the key for looking up credentials.
    pub fn repository(&self) -> String {
        format!("{}/{}", self.domain, self.path)
    }
}

/// The image name for a request to the runtime: as written, but a name without tag and digest means
/// `latest`. No registry is added: the runtime resolves short names.
pub fn with_tag(name: &str) -> Box<str> {
    if has_tag(name) { name.into() } else { format!("{name}:latest").into() }
}

/// Whether it has a tag or a digest.
pub fn has_tag(name: &str) -> bool {
    name.contains('@') || name.rsplit('/').next().unwrap_or_default().contains(':')
}

/// Whether this is `sha256:` and 64 hex digits, the only kind in use.
pub fn is_sha256(digest: &str) -> bool {
    digest.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64 && hex.bytes().all(is_hex))
}

/// The registry of names without one.
pub const HUB: &str = "docker.io";
const NAME_MAX: usize = 255;

fn split_domain(name: &str) -> (&str, &str) {
    match name.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':'])
                || first == "localhost"
                || first.to_lowercase() != first =>
        {
            (if first == "index.docker.io" { HUB } else { first }, rest)
        }
        _ => (HUB, name),
    }
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.rsplit_once(':') {
        // The colons of an IPv6 address are in brackets.
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (domain, None),
    };
    let digits = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let ipv6 = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let named = match ipv6 {
        Some(inner) => {
            !inner.is_empty() && inner.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':')
        }
        None => host.split('.').all(|label| {
            let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            let bytes = label.as_bytes();
            edge(bytes.first())
                && edge(bytes.last())
                && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        }),
    };
    named && port.is_none_or(digits)
}

/// Letters and digits, and between them `.`, `_`, `__` or any number of `-`.
fn is_component(component: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = component.as_bytes();
    let (Some(&first), Some(&last)) = (bytes.first(), bytes.last()) else { return false };
    let mut separators = component.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    plain(first)
        && plain(last)
        && separators.all(|between| {
            matches!(between, "" | "." | "_" | "__") || between.bytes().all(|byte| byte == b'-')
        })
}

fn is_tag(tag: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut bytes = tag.bytes();
    tag.len() <= 128
        && bytes.next().is_some_and(word)
        && bytes.all(|byte| word(byte) || matches!(byte, b'.' | b'-'))
}

fn looks_like_a_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let mut parts = algorithm.split(['-', '_', '+', '.']);
    let named = parts.all(|part| {
        part.starts_with(|c: char| c.is_ascii_alphabetic())
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    named && hex.len() >= 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn check_digest(digest: &str) -> Result<(), InvalidName> {
    let (algorithm, hex) = digest.split_once(':').expect("it looks like a digest");
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Err(InvalidName::DigestAlgorithm),
    };
    if hex.len() != length {
        return Err(InvalidName::DigestLength);
    }
    if !hex.bytes().all(is_hex) {
        return Err(InvalidName::DigestFormat);
    }
    Ok(())
}

fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_what_everybody_reads() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for (name, domain, path, tag, by_digest) in [
            ("busybox", "docker.io", "library/busybox", None, false),
            ("busybox:1.36", "docker.io", "library/busybox", Some("1.36"), false),
            ("team/app", "docker.io", "team/app", None, false),
            ("docker.io/busybox", "docker.io", "library/busybox", None, false),
            ("index.docker.io/team/app:1", "docker.io", "team/app", Some("1"), false),
            ("localhost/app:1", "localhost", "app", Some("1"), false),
            ("127.0.0.1:5000/a/b_c/d--e:V.1", "127.0.0.1:5000", "a/b_c/d--e", Some("V.1"), false),
            ("[::1]:5000/app", "[::1]:5000", "app", None, false),
            ("Upper/app", "Upper", "app", None, false),
            ("ghcr.io/a@DIGEST", "ghcr.io", "a", None, true),
            ("ghcr.io/a:1@DIGEST", "ghcr.io", "a", Some("1"), true),
        ] {
            let got = ImageName::parse(&name.replace("DIGEST", &digest)).expect(name);
            let want = ImageName {
                domain: domain.into(),
                path: path.into(),
                tag: tag.map(Into::into),
                digest: by_digest.then(|| digest.as_str().into()),
            };
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused_in_the_kubelets_words() {
        let format = "invalid reference format";
        for (name, want) in [
            ("", format),
            ("a b", format),
            ("-app", format),
            ("app:", format),
            ("app:-x", format),
            ("a//b", format),
            ("a..b/c", format),
            ("a/b..c", format),
            ("x.io/", format),
            ("x.io:p/a", format),
            ("a@sha256:12", format),
            ("FAILED_IMAGE:1", "invalid reference format: repository name (FAILED_IMAGE) must"),
            ("x.io/App", "invalid reference format: repository name (App) must be lowercase"),
            (&"ab".repeat(32), "cannot specify 64-byte hexadecimal strings"),
            (&"a".repeat(250), "repository name must not be more than 255 characters"),
            (&format!("a@sha256:{}", "a".repeat(40)), "invalid checksum digest length"),
            (&format!("a@sha256:{}", "A".repeat(64)), "invalid checksum digest format"),
            (&format!("a@md5:{}", "a".repeat(32)), "unsupported digest algorithm"),
        ] {
            let got = ImageName::parse(name).expect_err(name).to_string();
            assert!(got.contains(want), "{name}: {got}");
        }
    }

    #[test]
    fn latest_is_written_out_and_nothing_else() {
        for (name, want) in [
            ("busybox", "busybox:latest"),
            ("h:5000/busybox", "h:5000/busybox:latest"),
            ("busybox:1", "busybox:1"),
            ("h:5000/busybox@sha256:0", "h:5000/busybox@sha256:0"),
        ] {
            assert_eq!(&*with_tag(name), want);
        }
    }
}
