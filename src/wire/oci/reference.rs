//! A runtime's requests to a registry: `/v2/<name>/manifests/<reference>` and
//! `/v2/<name>/blobs/<digest>`.

use crate::model::image::{HUB, ImageName, is_sha256};

/// A parsed request target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `/v2/`: is there a registry?
    Hello,
    /// By tag.
    Tag {
        /// As requested, with its registry.
        name: RequestedName,
        tag: String,
    },
    /// A manifest by its digest.
    Manifest(String),
    /// Anything by its digest.
    Blob(String),
}

/// An image's name in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestedName {
    /// Of the path: `library/busybox`, or with a registry before it.
    pub path: String,
    /// The mirrored registry (`ns=`); `None`: not specified.
    pub domain: Option<String>,
}

impl Target {
    /// `None`: not a request of a pull.
    pub fn parse(path: &str, query: &str) -> Option<Self> {
        let rest = path.strip_prefix("/v2")?;
        if rest.is_empty() || rest == "/" {
            return Some(Self::Hello);
        }
        let rest = rest.strip_prefix('/')?;
        if let Some((_, digest)) = rest.rsplit_once("/blobs/") {
            return is_sha256(digest).then(|| Self::Blob(digest.to_owned()));
        }
        let (name, reference) = rest.rsplit_once("/manifests/")?;
        if is_sha256(reference) {
            return Some(Self::Manifest(reference.to_owned()));
        }
        let domain = query.split('&').find_map(|pair| pair.strip_prefix("ns=")).map(|domain| {
            // Characters of a registry's name that cannot be in a query.
            let domain = domain.replace("%3A", ":").replace("%3a", ":");
            domain.replace("registry-1.docker.io", HUB)
        });
        let name = RequestedName { path: name.to_owned(), domain };
        Some(Self::Tag { name, tag: reference.to_owned() })
    }
}

impl RequestedName {
    /// How well an image's name matches: 2 completely, 1 by its path alone, 0 not at all.
    pub fn fits(&self, name: &ImageName) -> u8 {
        let short = name.path.strip_prefix("library/").filter(|_| &*name.domain == HUB);
        let is = |path: &str| *path == *name.path || Some(path) == short;
        match &self.domain {
            Some(domain) => 2 * u8::from(domain == &*name.domain && is(&self.path)),
            None if self
                .path
                .split_once('/')
                .is_some_and(|(domain, path)| domain == &*name.domain && is(path)) =>
            {
                2
            }
            None => u8::from(is(&self.path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_taken_apart() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let tag = |path: &str, domain: Option<&str>, tag: &str| {
            let name = RequestedName { path: path.to_owned(), domain: domain.map(str::to_owned) };
            Some(Target::Tag { name, tag: tag.to_owned() })
        };
        for (path, query, want) in [
            ("/v2/", "", Some(Target::Hello)),
            ("/v2", "", Some(Target::Hello)),
            (
                "/v2/library/busybox/manifests/1",
                "ns=docker.io",
                tag("library/busybox", Some("docker.io"), "1"),
            ),
            ("/v2/a/manifests/1", "x=1&ns=h%3A5000", tag("a", Some("h:5000"), "1")),
            ("/v2/a/manifests/b/manifests/1", "", tag("a/manifests/b", None, "1")),
            (&format!("/v2/a/manifests/{digest}"), "", Some(Target::Manifest(digest.clone()))),
            (&format!("/v2/a/b/blobs/{digest}"), "ns=x", Some(Target::Blob(digest.clone()))),
            ("/v2/a/blobs/sha256:../../etc", "", None),
            ("/v2/a/tags/list", "", None),
            ("/v1/", "", None),
            ("/v2x/a/manifests/1", "", None),
        ] {
            assert_eq!(Target::parse(path, query), want, "{path}");
        }
    }

    #[test]
    fn a_whole_name_fits_better_than_a_path() {
        for (path, domain, name, want) in [
            ("library/busybox", Some("docker.io"), "busybox:1", 2),
            ("busybox", Some("docker.io"), "busybox:1", 2),
            ("library/busybox", Some("x.io"), "busybox:1", 0),
            ("docker.io/library/busybox", None, "busybox:1", 2),
            ("docker.io/busybox", None, "busybox:1", 2),
            ("library/busybox", None, "busybox:1", 1),
            ("busybox", None, "busybox:1", 1),
            ("x.io/team/app", None, "x.io/team/app:1", 2),
            ("team/app", None, "x.io/team/app:1", 1),
            ("app", None, "x.io/team/app:1", 0),
        ] {
            let asked = RequestedName { path: path.to_owned(), domain: domain.map(str::to_owned) };
            let name = ImageName::parse(name).expect(name);
            assert_eq!(asked.fits(&name), want, "{path} {name:?}");
        }
    }
}
