//! Image names: which images the name in a pod may refer to.

use std::collections::BTreeSet;

use crate::model::housekeeping::StoredImage;
use crate::model::image::ImageName;

/// Image names from pods, indexed by everything that an image may be named by, because both may be
/// many. A short name matches any registry: runtimes differ in which ones they search.
#[derive(Debug, Default)]
pub(super) struct NameMatcher<'a> {
    ids: BTreeSet<&'a str>,
    digests: BTreeSet<&'a str>,
    whole: BTreeSet<String>,
    tagged: BTreeSet<&'a str>,
    untagged: BTreeSet<&'a str>,
}

impl<'a> NameMatcher<'a> {
    /// Matches these names.
    pub(super) fn by(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all = Self::default();
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            all.ids.insert(id_of(name));
            if let Some((_, digest)) = name.split_once('@') {
                all.digests.insert(digest);
                continue;
            }
            all.whole.extend(whole_name(name));
            let tagged = base_of(name) != name.rsplit('/').next().unwrap_or(name);
            if tagged { &mut all.tagged } else { &mut all.untagged }.insert(name);
        }
        all
    }

    /// Whether one of the names may refer to this image.
    pub(super) fn has(&self, image: &StoredImage) -> bool {
        self.ids.contains(id_of(&image.id)) || image.names.iter().any(|name| self.has_name(name))
    }

    fn has_name(&self, name: &str) -> bool {
        let ends = |name: &'_ str, among: &BTreeSet<&str>| {
            let slashes = name.match_indices('/').map(|(at, _)| at + 1);
            std::iter::once(0).chain(slashes).any(|from| among.contains(&name[from..]))
        };
        name.split_once('@').is_some_and(|(_, digest)| self.digests.contains(digest))
            || whole_name(name).is_some_and(|whole| self.whole.contains(&whole))
            || ends(name, &self.tagged)
            || name.strip_suffix(":latest").is_some_and(|name| ends(name, &self.untagged))
    }
}

/// Runtimes write an id with or without the digest algorithm.
fn id_of(name: &str) -> &str {
    name.strip_prefix("sha256:").unwrap_or(name)
}

/// With all optional parts: `docker.io/busybox` is `docker.io/library/busybox:latest`.
fn whole_name(name: &str) -> Option<String> {
    let ImageName { domain, path, tag, digest } = ImageName::parse(name).ok()?;
    let (tag, digest) = (tag.as_deref().unwrap_or("latest"), digest.as_deref().unwrap_or(""));
    Some([&*domain, "/", &*path, ":", tag, "@", digest].concat())
}

/// `reg:5000/a/pause:3.6` → `pause`
pub(super) fn base_of(name: &str) -> &str {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.split([':', '@']).next().unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_pod_matches_all_names_of_an_image() {
        let image = StoredImage {
            id: "sha256:0af1".into(),
            names: vec![
                "docker.io/library/busybox:1.36".into(),
                "docker.io/library/busybox@sha256:77".into(),
                "reg:5000/tool:latest".into(),
            ],
            size: 1,
            pinned: false,
        };
        for (name, matcher) in [
            ("busybox:1.36", true),
            ("library/busybox:1.36", true),
            ("docker.io/library/busybox:1.36", true),
            ("busybox@sha256:77", true),
            ("busybox:1.36@sha256:77", true),
            ("sha256:0af1", true),
            ("0af1", true),
            ("reg:5000/tool", true),
            ("tool", true),
            ("tool:latest", true),
            ("ool:latest", false),
            ("reg:5000/tool:latest", true),
            ("docker.io/busybox:1.36", true),
            ("index.docker.io/library/busybox:1.36", true),
            ("docker.io/busybox:1.35", false),
            ("docker.io/busybox", false),
            ("reg:5000/busybox:1.36", false),
            ("busybox", false),
            ("usybox:1.36", false),
            ("busybox:1.3", false),
            ("busybox@sha256:78", false),
            ("reg:5000", false),
            ("", false),
        ] {
            assert_eq!(NameMatcher::by([name]).has(&image), matcher, "{name}");
            // Other names do not change the result.
            assert_eq!(
                NameMatcher::by(["other:1", name, "sha256:9", "x@y"]).has(&image),
                matcher,
                "{name}"
            );
        }
        assert_eq!(base_of("reg:5000/a/pause:3.6"), "pause");
        assert_eq!(base_of("pause@sha256:1"), "pause");
    }

    #[test]
    fn many_images_match_many_names_fast() {
        // Compared pairwise, these would take an hour.
        let name = |n: usize| format!("r.example/a/{n}:1");
        let wanted: Vec<String> = (0..100_000).map(name).collect();
        let matcher = NameMatcher::by(wanted.iter().map(String::as_str));
        let stored = |n: usize| StoredImage {
            id: n.to_string().into(),
            names: vec![name(n).into()],
            size: 1,
            pinned: false,
        };
        let found =
            (50_000..150_000).filter(|n| matcher.has(&stored(*n + 200_000 * (n % 2)))).count();
        assert_eq!(found, 25_000, "the even ones of those that are wanted");
    }
}
