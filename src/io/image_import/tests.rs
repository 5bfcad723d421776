//! Valid and malicious archives and layouts.

use std::fs;
use std::path::{Path, PathBuf};

use super::RegistryProcess;
use super::archive::Catalog;
use super::image_store::{ImageStore, full_name};
use crate::agent::time::Instant;
use crate::limits::{IMAGE_MEMBERS_MAX, IMAGE_PAX_BYTES_MAX, IMAGE_SOURCES_MAX, MIRROR_RESTART_MS};
use crate::wire::oci::reference::RequestedName;
use crate::wire::oci::sha256;

/// A member: name, kind, link's target, contents.
type Member<'a> = (&'a str, u8, &'a str, &'a [u8]);

fn tar(members: &[Member<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, kind, link, contents) in members {
        let mut head = [0; 512];
        head[..name.len()].copy_from_slice(name.as_bytes());
        head[124..135].copy_from_slice(format!("{:011o}", contents.len()).as_bytes());
        head[156] = *kind;
        head[157..157 + link.len()].copy_from_slice(link.as_bytes());
        head[257..263].copy_from_slice(b"ustar\0");
        head[148..156].fill(b' ');
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(contents);
        bytes.resize(bytes.len().next_multiple_of(512), 0);
    }
    bytes.resize(bytes.len() + 1024, 0);
    bytes
}

fn file<'a>(name: &'a str, contents: &'a [u8]) -> Member<'a> {
    (name, b'0', "", contents)
}

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("edged-image-{name}.{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder of ours");
        Self(path)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("below ours")).expect("a folder of ours");
        fs::write(&path, bytes).expect("a file of ours");
        path
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn digest(bytes: &[u8]) -> String {
    sha256(bytes)
}

fn config(layers: &[&[u8]]) -> Vec<u8> {
    let ids: Vec<String> = layers.iter().map(|layer| format!("{:?}", digest(layer))).collect();
    format!(r#"{{"os":"linux","rootfs":{{"diff_ids":[{}]}}}}"#, ids.join(",")).into_bytes()
}

/// The contents that the catalog has for a digest.
fn blob(path: &Path, digest: &str) -> Option<Vec<u8>> {
    let catalog = Catalog::open(path).expect("a catalog");
    catalog.blob(path, digest).expect("readable").map(|blob| blob.json().expect("small"))
}

#[test]
fn what_docker_saves_is_served_with_a_manifest_made_for_it() {
    let dir = Dir::new("docker");
    let (low, high) = (&b"low layer"[..], &b"high layer"[..]);
    let config = config(&[low, high, low]);
    let saved = br#"[{"Config":"c.json","RepoTags":["app:1","x.io/team/app:2"],
                      "Layers":["a/layer.tar","./b/layer.tar","c/layer.tar"]}]"#;
    let path = dir.put(
        "app.tar",
        &tar(&[
            ("a/", b'5', "", b""),
            file("a/layer.tar", low),
            file("b/layer.tar", high),
            ("c/layer.tar", b'2', "../a/layer.tar", b""),
            file("c.json", &config),
            file("manifest.json", saved),
        ]),
    );
    let catalog = Catalog::open(&path).expect("an archive");
    let names: Vec<String> = catalog.images.iter().map(full_name).collect();
    assert_eq!(names, ["docker.io/library/app:1", "x.io/team/app:2"]);
    for contents in [low, high, &config] {
        assert_eq!(blob(&path, &digest(contents)).as_deref(), Some(contents));
    }
    let manifest = blob(&path, &catalog.images[0].descriptor.digest).expect("made");
    assert_eq!(digest(&manifest), catalog.images[0].descriptor.digest);
    assert_eq!(blob(&path, &digest(b"other")), None);
}

#[test]
fn what_an_archive_says_of_its_members_beside_their_names_is_passed_over() {
    let dir = Dir::new("pax");
    let (layer, config) = (&b"a layer"[..], config(&[b"a layer"]));
    let saved = br#"[{"Config":"c.json","RepoTags":["app:1"],"Layers":["layer.tar"]}]"#;
    let mut records = b"20029 LIBARCHIVE.xattr=".to_vec();
    records.resize(20_028, 0xff);
    records.extend_from_slice(b"\n18 path=layer.tar\n");
    let path = dir.put(
        "app.tar",
        &tar(&[
            ("x", b'x', "", &records),
            file("short", layer),
            file("c.json", &config),
            file("manifest.json", saved),
        ]),
    );
    assert_eq!(blob(&path, &digest(layer)).as_deref(), Some(layer));
    // A record of the maximum total length, and one that is a byte longer.
    for (bytes, told) in [
        (IMAGE_PAX_BYTES_MAX, "got neither index.json nor manifest.json".to_owned()),
        (
            IMAGE_PAX_BYTES_MAX + 1,
            format!(
                "byte 0: got {} bytes of pax records, expected {IMAGE_PAX_BYTES_MAX} at most",
                IMAGE_PAX_BYTES_MAX + 1
            ),
        ),
    ] {
        let mut record = format!("{bytes} comment=").into_bytes();
        record.resize(bytes - 1, b'x');
        record.push(b'\n');
        let path = dir.put("big.tar", &tar(&[("x", b'x', "", &record)]));
        let why = Catalog::open(&path).expect_err("it has no image").to_string();
        assert!(why.contains(&told), "{why}");
    }
}

#[test]
fn an_oci_archive_and_a_layout_are_served_as_they_are() {
    let dir = Dir::new("oci");
    let manifest = br#"{"schemaVersion":2,"layers":[]}"#;
    let digest = digest(manifest);
    let index = |name: &str| {
        format!(
            r#"{{"manifests":[{{"mediaType":"m","digest":"{digest}","size":31,"annotations":
                {{"org.opencontainers.image.ref.name":"{name}"}}}}]}}"#
        )
    };
    let member = format!("blobs/sha256/{}", digest.trim_start_matches("sha256:"));
    let whole = index("x.io/app:3");
    let path = dir.put(
        "any.tar",
        &tar(&[
            file("oci-layout", b"{}"),
            file("index.json", whole.as_bytes()),
            file(&member, manifest),
        ]),
    );
    assert_eq!(full_name(&Catalog::open(&path).expect("an archive").images[0]), "x.io/app:3");
    assert_eq!(blob(&path, &digest).as_deref(), Some(&manifest[..]));
    // For a tag alone, the folder's name is the image's name.
    dir.put("stick/Tool/oci-layout", b"{}");
    dir.put("stick/Tool/index.json", index("7").as_bytes());
    dir.put(&format!("stick/Tool/{member}"), manifest);
    let layout = dir.0.join("stick/Tool");
    let catalog = Catalog::open(&layout).expect("a layout");
    assert_eq!(full_name(&catalog.images[0]), "docker.io/library/tool:7");
    assert_eq!(blob(&layout, &digest).as_deref(), Some(&manifest[..]));
    // A blob that is a link is refused, whatever its target.
    let path = layout.join(&member);
    fs::remove_file(&path).expect("a file of ours");
    std::os::unix::fs::symlink("/etc/hostname", &path).expect("a link of ours");
    assert!(catalog.blob(&layout, &digest).is_err());
}

#[test]
fn what_is_wrong_with_an_archive_is_said_with_its_place() {
    let dir = Dir::new("hostile");
    let one = config(&[b"l"]);
    let docker = |saved: &str, more: &[Member<'_>]| {
        let mut members = vec![file("c.json", &one), file("manifest.json", saved.as_bytes())];
        members.extend_from_slice(more);
        tar(&members)
    };
    let plain = r#"[{"Config":"c.json","RepoTags":["a:1"],"Layers":["l"]}]"#;
    let mut cut = docker(plain, &[file("l", b"l")]);
    cut.truncate(560);
    let mut long = tar(&[file("l", b"l")]);
    long[124..135].copy_from_slice(b"77777777777");
    let mut sealed = [0; 512];
    sealed.copy_from_slice(&long[..512]);
    sealed[148..156].fill(b' ');
    let sum: u32 = sealed.iter().map(|byte| u32::from(*byte)).sum();
    long[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    for (bytes, want) in [
        (b"hello".to_vec(), "byte 0: the archive ends within a head"),
        ([0x1f, 0x8b].repeat(512), "got a compressed archive, expected a plain one"),
        (vec![b'x'; 2048], "byte 0: got a head"),
        (tar(&[file("x", b"y")]), "got neither index.json nor manifest.json"),
        (cut, "byte 0: got a member of"),
        (long, "byte 0: got a member of 8589934591 bytes in an archive of"),
        (docker("[", &[]), "manifest.json: got JSON of another form"),
        (docker(plain, &[]), "manifest.json names \"l\", which is not in the archive"),
        (
            docker(plain, &[("l", b'2', "../../../etc/passwd", b"")]),
            "manifest.json names \"l\", which is not in the archive",
        ),
        (
            docker(plain, &[("l", b'2', "m", b""), ("m", b'2', "l", b"")]),
            "manifest.json names \"l\", which is not in the archive",
        ),
        (
            docker(&plain.replace("\"l\"", "\"/etc/passwd\""), &[]),
            "\"/etc/passwd\", which is not in the archive",
        ),
        (docker(plain, &[file("l", &[0x1f, 0x8b, 8])]), "l: got a compressed layer"),
        (docker(&plain.replace("a:1", "A B"), &[file("l", b"l")]), "got the name \"A B\": invalid"),
        (
            docker(&plain.replace("[\"l\"]", "[]"), &[]),
            "got 0 layers, expected 1 as in the configuration",
        ),
        (
            tar(&[file(
                "index.json",
                br#"{"manifests":[{"mediaType":"m","digest":"x","size":1}]}"#,
            )]),
            "index.json: got the digest \"x\", expected sha256:",
        ),
    ] {
        let path = dir.put("a.tar", &bytes);
        let why = Catalog::open(&path).expect_err(want).to_string();
        assert!(why.contains(want), "{why}\n{want}");
    }
    let link = dir.0.join("link.tar");
    std::os::unix::fs::symlink("/etc/hostname", &link).expect("a link of ours");
    assert!(Catalog::open(&link).is_err());
}

#[test]
fn every_beginning_of_an_archive_is_refused_or_read_without_harm() {
    let dir = Dir::new("cut");
    let config = config(&[b"l"]);
    let saved = br#"[{"Config":"c.json","RepoTags":["a:1"],"Layers":["l"]}]"#;
    let whole = tar(&[file("l", b"l"), file("c.json", &config), file("manifest.json", saved)]);
    for end in (0..whole.len()).step_by(37) {
        let path = dir.put("a.tar", &whole[..end]);
        if let Ok(catalog) = Catalog::open(&path) {
            assert_eq!(catalog.images.len(), 1, "{end}");
        }
    }
}

#[test]
fn an_archive_has_a_bound_of_members_and_of_heads_that_are_none() {
    let dir = Dir::new("members");
    let too_many = format!("got more than {IMAGE_MEMBERS_MAX} members");
    let none = "got neither index.json nor manifest.json";
    let end = tar(&[]);
    let why = |heads: &[u8]| {
        let path = dir.put("a.tar", &[heads, &end].concat());
        Catalog::open(&path).expect_err("it has no image").to_string()
    };
    // Empty files: each is only a header.
    let names: Vec<String> = (0..=IMAGE_MEMBERS_MAX).map(|number| number.to_string()).collect();
    let members: Vec<Member<'_>> = names.iter().map(|name| file(name, b"")).collect();
    let heads = tar(&members);
    let heads = &heads[..heads.len() - end.len()];
    let head_bytes = heads.len() / members.len();
    let fits = why(&heads[head_bytes..]);
    assert!(fits.starts_with(none), "{fits}");
    assert_eq!(why(heads), too_many);
    // One name many times: the last one counts. The end of the archive is a header, too.
    let same = heads[..head_bytes].repeat(2 * IMAGE_MEMBERS_MAX);
    assert_eq!(why(&same), format!("{too_many}, expected fewer"));
}

#[test]
fn of_too_many_archives_the_first_by_name_are_used() {
    let dir = Dir::new("sources");
    for number in 0..=IMAGE_SOURCES_MAX {
        dir.put(&format!("{number:04}.tar"), b"bad");
    }
    let told = ImageStore::default().scan(std::slice::from_ref(&dir.0));
    let all = IMAGE_SOURCES_MAX + 1;
    assert_eq!(told[0], format!("got {all} files of images, expected {IMAGE_SOURCES_MAX} at most"));
    assert_eq!(told.len() - 1, IMAGE_SOURCES_MAX, "a line for each that is looked into");
    assert!(told.iter().all(|line| !line.contains(&format!("{IMAGE_SOURCES_MAX:04}.tar"))));
    fs::remove_file(dir.0.join("0000.tar")).expect("a file of ours");
    let told = ImageStore::default().scan(std::slice::from_ref(&dir.0));
    assert_eq!(told.len(), IMAGE_SOURCES_MAX);
}

#[test]
fn a_registry_that_ends_is_started_again_ever_later() {
    let mut keeper = RegistryProcess::new(([127, 0, 0, 1], 1).into(), &["/nowhere".to_owned()]);
    let mut now = Instant(1_000);
    for wait_ms in [1, 2, 4, 8, 16, 32, 64, 64].map(|times| times * MIRROR_RESTART_MS) {
        let mut child = std::process::Command::new("true").spawn().expect("coreutils");
        child.wait().expect("it ends");
        keeper.child = Some(child);
        keeper.reap(now);
        assert_eq!(keeper.wake_at(), Some(now.plus_ms(wait_ms)));
        keeper.tick(now.plus_ms(wait_ms - 1));
        assert!(keeper.child.is_none(), "not before");
        now = now.plus_ms(wait_ms);
    }
}

#[test]
fn the_image_store_follows_its_folders_and_finds_by_name() {
    let dir = Dir::new("store");
    let archive = |names: &str, layer: &[u8]| {
        let config = config(&[layer]);
        let saved = format!(r#"[{{"Config":"c.json","RepoTags":[{names}],"Layers":["l"]}}]"#);
        tar(&[file("l", layer), file("c.json", &config), file("manifest.json", saved.as_bytes())])
    };
    let folders = [dir.0.join("in"), dir.0.join("not-there")];
    let mut store = ImageStore::default();
    assert_eq!(store.scan(&folders), [] as [&str; 0]);
    dir.put("in/a.tar", &archive(r#""x.io/app:1","tool:1""#, b"a"));
    dir.put("in/b.tar", &archive(r#""y.io/app:1""#, b"b"));
    dir.put("in/bad.tar", b"bad");
    dir.put("in/readme.txt", b"not an image");
    let told = store.scan(&folders);
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[2].contains("in/bad.tar cannot be used: byte 0"), "{told:?}");
    assert_eq!(store.scan(&folders), [] as [&str; 0], "nothing changed");
    let asked = |path: &str, domain: Option<&str>| RequestedName {
        path: path.to_owned(),
        domain: domain.map(str::to_owned),
    };
    let found = |asked: RequestedName| store.find(&asked, "1").map(full_name);
    assert_eq!(found(asked("app", Some("x.io"))).as_deref(), Ok("x.io/app:1"));
    assert_eq!(found(asked("y.io/app", None)).as_deref(), Ok("y.io/app:1"));
    assert_eq!(found(asked("tool", None)).as_deref(), Ok("docker.io/library/tool:1"));
    let two = found(asked("app", None)).expect_err("two").to_string();
    assert_eq!(two, "app:1 is ambiguous: x.io/app:1 or y.io/app:1");
    assert!(found(asked("app", Some("z.io"))).is_err());
    fs::remove_file(dir.0.join("in/a.tar")).expect("a file of ours");
    let told = store.scan(&folders);
    assert!(told.len() == 1 && told[0].ends_with("in/a.tar is gone"), "{told:?}");
    assert_eq!(store.find(&asked("app", None), "1").map(full_name).as_deref(), Ok("y.io/app:1"));
}
