//! Names of images: which image a pod may mean.

use crate::model::image::ImageName;
use crate::model::upkeep::StoredImage;

/// Whether a pod that writes `name` may mean this image. A short name means any registry's:
/// runtimes differ in which they search.
pub(super) fn is_meant(name: &str, image: &StoredImage) -> bool {
    if name.is_empty() {
        return false;
    }
    let id = image.id.strip_prefix("sha256:").unwrap_or(&image.id);
    if name.strip_prefix("sha256:").unwrap_or(name) == id {
        return true;
    }
    if let Some((_, digest)) = name.split_once('@') {
        let has = |it: &str| it.split_once('@').is_some_and(|(_, of)| of == digest);
        return image.names.iter().any(|it| has(it));
    }
    let tagged = base_of(name) != name.rsplit('/').next().unwrap_or(name);
    let whole = whole_name(name);
    image.names.iter().any(|it| {
        if whole.is_some() && whole_name(it) == whole {
            return true;
        }
        let it = if tagged { it } else { it.strip_suffix(":latest").unwrap_or("") };
        it.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    })
}

/// With all that may be left out: `docker.io/busybox` is `docker.io/library/busybox:latest`.
fn whole_name(name: &str) -> Option<ImageName> {
    let mut name = ImageName::parse(name).ok()?;
    name.tag.get_or_insert_with(|| "latest".into());
    Some(name)
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
    fn a_pods_name_for_an_image_means_it_under_all_its_names() {
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
        for (name, meant) in [
            ("busybox:1.36", true),
            ("library/busybox:1.36", true),
            ("docker.io/library/busybox:1.36", true),
            ("busybox@sha256:77", true),
            ("busybox:1.36@sha256:77", true),
            ("sha256:0af1", true),
            ("0af1", true),
            ("reg:5000/tool", true),
            ("tool", true),
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
            assert_eq!(is_meant(name, &image), meant, "{name}");
        }
        assert_eq!(base_of("reg:5000/a/pause:3.6"), "pause");
        assert_eq!(base_of("pause@sha256:1"), "pause");
    }
}
