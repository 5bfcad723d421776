//! Programs out of images as runtimes keep them, and an `edged-run` that answers as a test says.

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use serde_json::json;

use super::*;
use crate::io::sys::image_machine;
use crate::io::test_folder::TestFolder;
use crate::limits::{
    IMAGE_INDEX_DEPTH_MAX, RELEASE_BYTES_MAX, UPGRADE_LAYER_BYTES_MAX, UPGRADE_STATE_BYTES_MAX,
};
use crate::wire::oci::sha256;

/// A member of an archive: its name, its type as tar has it, its contents.
type Member<'a> = (&'a str, u8, &'a [u8]);

fn head(name: &str, kind: u8, size: u64) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name.as_bytes());
    block[100..108].copy_from_slice(b"0000755\0");
    block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    block[156] = kind;
    block[257..263].copy_from_slice(b"ustar\0");
    block[148..156].copy_from_slice(b"        ");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block
}

fn tar(members: &[Member<'_>]) -> Vec<u8> {
    let mut all = Vec::new();
    for (name, kind, contents) in members {
        all.extend(head(name, *kind, contents.len() as u64));
        all.extend_from_slice(contents);
        all.resize(all.len().next_multiple_of(512), 0);
    }
    all.resize(all.len() + 1_024, 0);
    all
}

/// Not compressed: blocks that are stored (RFC 1951 section 3.2.4).
fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut all = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];
    let blocks: Vec<&[u8]> = plain.chunks(0x8000).collect();
    for (at, block) in blocks.iter().enumerate() {
        let length = block.len() as u16;
        all.push(u8::from(at + 1 == blocks.len()));
        all.extend([length.to_le_bytes(), (!length).to_le_bytes()].concat());
        all.extend_from_slice(block);
    }
    all.extend([0; 4]);
    all.extend((plain.len() as u32).to_le_bytes());
    all
}

fn folder(path: &Path) -> OwnedFd {
    open(path, OFlag::O_DIRECTORY, Mode::empty()).expect("a folder of ours")
}

/// Takes the files out of these layers, one after the other.
fn extracted(place: &TestFolder, layers: &[Vec<u8>]) -> Result<(), String> {
    let to = place.join("to");
    fs::create_dir_all(&to).expect("a folder of ours");
    let root = folder(&to);
    layers.iter().try_for_each(|layer| {
        let path = place.write("layer", layer);
        let done = layer::extract(&root, &File::open(path).expect("a file of ours"));
        done.map_err(|Failure(why)| why)
    })
}

fn text(place: &TestFolder, name: &str) -> Option<String> {
    fs::read_to_string(place.join(name)).ok()
}

#[test]
fn the_files_of_the_topmost_layer_count() {
    let place = TestFolder::new("upgrade");
    let lower =
        tar(&[("etc/edged", b'0', b"x"), ("edged", b'0', b"old"), ("edged.sig", b'0', b"s")]);
    let new = vec![b'n'; 70_000];
    let upper = tar(&[("./", b'5', b""), ("./edged", b'0', &new), ("a", b'2', b"")]);
    extracted(&place, &[lower.clone(), gzip(&upper)]).expect("two layers");
    assert_eq!(text(&place, "to/edged"), Some("n".repeat(70_000)));
    assert_eq!(text(&place, "to/edged.sig").as_deref(), Some("s"));
    assert_eq!(fs::read_dir(place.join("to")).expect("a folder").count(), 2, "nothing else");
    // A whiteout removes one, an opaque folder both.
    extracted(&place, &[tar(&[(".wh.edged", b'0', b"")])]).expect("a layer");
    assert!(!place.join("to/edged").exists() && place.join("to/edged.sig").exists());
    extracted(&place, &[lower, tar(&[(".wh..wh..opq", b'0', b"")])]).expect("two layers");
    assert_eq!(fs::read_dir(place.join("to")).expect("a folder").count(), 0);
}

#[test]
fn names_of_other_heads_count_as_well() {
    let place = TestFolder::new("upgrade");
    let pax = b"14 path=edged\n15 size=000003\n";
    let layer = tar(&[
        ("pax", b'x', pax),
        ("other", b'0', b"new"),
        ("././@LongLink", b'L', b"edged.sig\0"),
        ("other", b'0', b"sig"),
    ]);
    extracted(&place, &[layer]).expect("a layer");
    assert_eq!(text(&place, "to/edged").as_deref(), Some("new"));
    assert_eq!(text(&place, "to/edged.sig").as_deref(), Some("sig"));
}

#[test]
fn hostile_layers_are_refused_within_bounds() {
    let place = TestFolder::new("upgrade");
    let many = head("edged", b'0', RELEASE_BYTES_MAX as u64 + 1);
    let long = head("x", b'x', crate::limits::IMAGE_PAX_BYTES_MAX as u64 + 1);
    for (layer, expected) in [
        (tar(&[("edged", b'2', b"")]), "got /edged as SymbolicLink"),
        (tar(&[("edged", b'1', b"")]), "got /edged as HardLink"),
        (many, &format!("/edged: got {} bytes", RELEASE_BYTES_MAX + 1)),
        (long, "got 1048577 bytes about a member"),
        (vec![0x28, 0xb5, 0x2f, 0xfd], "got a layer that zstd has compressed"),
        (head("edged", b'0', 10), "failed to fill whole buffer"),
        (head("other", b'0', 10), "got an archive that ends within a member"),
        (vec![7; 512], "got a head"),
        (vec![0x20; 100], "got an archive that ends within a head"),
        (vec![0x1f, 0x8b, 8, 0], "gzip: "),
        (vec![1], "failed to fill whole buffer"),
    ] {
        let why = extracted(&place, &[layer]).expect_err(expected);
        assert!(why.starts_with(expected), "got {why:?}, expected {expected:?}");
    }
}

#[test]
fn a_layer_that_is_too_large_is_not_read_to_its_end() {
    let place = TestFolder::new("upgrade");
    let path = place.write("layer", head("other", b'0', UPGRADE_LAYER_BYTES_MAX));
    let file = File::options().write(true).open(&path).expect("a file of ours");
    // A hole.
    file.set_len(UPGRADE_LAYER_BYTES_MAX + (1 << 20)).expect("a hole");
    let why = layer::extract(&folder(&place), &File::open(path).expect("a file of ours"));
    let expected = "got an archive that ends within a member".to_owned();
    assert_eq!(why, Err(Failure(expected)));
}

/// An `edged-run` that is this script.
fn keeper(place: &TestFolder, script: &str) -> Keeper {
    let program = place.write("edged-run", format!("#!/bin/sh\n{script}\n"));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a file of ours");
    fs::create_dir_all(place.join("home")).expect("a folder of ours");
    Keeper { program, home: place.join("home") }
}

/// Containerd's folder of images, with a content store that has an index of this layer.
fn containerd(place: &TestFolder, layer: &[u8]) -> (PathBuf, Box<str>) {
    let blob = |bytes: &[u8]| {
        let digest = sha256(bytes);
        let name = digest.strip_prefix("sha256:").expect("a digest");
        place.write(&format!("io.containerd.content.v1.content/blobs/sha256/{name}"), bytes);
        digest
    };
    let json = |value: serde_json::Value| blob(value.to_string().as_bytes());
    let layer_digest = blob(layer);
    let manifest = json(json!({
        "schemaVersion": 2, "config": {"digest": layer_digest, "size": 1},
        "layers": [{"digest": layer_digest, "size": layer.len()}],
    }));
    let machine = image_machine();
    let platform = json!({"os": "linux", "architecture": machine.architecture});
    let other = json!({"os": "linux", "architecture": "other"});
    let index = json(json!({"schemaVersion": 2, "manifests": [
        {"digest": format!("sha256:{}", "0".repeat(64)), "size": 1, "platform": other},
        {"digest": manifest, "size": 1, "platform": platform},
    ]}));
    let images = place.join("io.containerd.snapshotter.v1.overlayfs");
    (images, format!("registry.example/edged@{index}").into())
}

#[test]
fn the_program_comes_out_of_containerds_content_store() {
    let place = TestFolder::new("upgrade");
    let keeper = keeper(&place, r#"[ "$1" = verify ] && [ -f "$2" ] && [ -f "$2.sig" ]"#);
    let layer = gzip(&tar(&[("edged", b'0', b"a program"), ("edged.sig", b'0', b"s")]));
    let (images, digest) = containerd(&place, &layer);
    fs::remove_dir(&keeper.home).expect("an empty folder");
    let absent = format!("registry.example/edged@sha256:{}", "1".repeat(64)).into();
    let taken = keeper.take(&images, "sha256:00", &[absent, digest]);
    assert_eq!(taken, Ok(sha256(b"a program").into()));
    assert_eq!(text(&place, "home/job/edged").as_deref(), Some("a program"));
    let mode = fs::metadata(place.join("home/job")).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn an_image_without_both_files_or_a_store_that_is_none_is_refused() {
    let place = TestFolder::new("upgrade");
    let keeper = keeper(&place, "echo edged-run: first >&2; echo 'edged-run: no key' >&2; exit 1");
    let refused = |images: &Path, digests: &[Box<str>]| {
        let Failure(why) = keeper.take(images, "sha256:00", digests).expect_err("no image");
        why
    };
    let nowhere = place.join("nowhere/images");
    let expected = format!("got the image sha256:00 in {}, expected it in", nowhere.display());
    assert!(refused(&nowhere, &[]).starts_with(&expected));
    let (images, digest) = containerd(&place, &tar(&[("edged", b'0', b"a program")]));
    assert_eq!(refused(&images, &[digest]), "got an image without /edged.sig, expected it");
    assert!(refused(&images, &[]).starts_with("got the digests [] of the image, expected one in"));
    let both = tar(&[("edged", b'0', b"a program"), ("edged.sig", b'0', b"s")]);
    let (images, digest) = containerd(&place, &both);
    assert_eq!(refused(&images, &[digest]), "no key", "edged-run says why");
    // An index that leads to itself cannot exist; one index in another may.
    let mut digest = sha256(b"{}");
    let content = "io.containerd.content.v1.content/blobs/sha256";
    place.write(&format!("{content}/{}", digest.strip_prefix("sha256:").expect("one")), "{}");
    for _ in 0..=IMAGE_INDEX_DEPTH_MAX {
        let index = json!({"manifests": [{"digest": digest, "size": 1}]}).to_string();
        digest = sha256(index.as_bytes());
        place.write(&format!("{content}/{}", digest.strip_prefix("sha256:").expect("one")), index);
    }
    let why = refused(&images, &[format!("x@{digest}").into()]);
    assert_eq!(why, format!("got indexes in {IMAGE_INDEX_DEPTH_MAX} indexes, expected a manifest"));
}

#[test]
fn the_slots_say_which_program_is_tried() {
    let place = TestFolder::new("upgrade");
    let keeper = keeper(&place, "exit 0");
    let own = fs::read("/proc/self/exe").expect("it runs");
    let digest: Box<str> = sha256(&own).into();
    fs::remove_dir(&keeper.home).expect("an empty folder");
    let slots = keeper.look().expect("without an upgrade");
    assert_eq!((slots.trial, &*slots.left), (Trial::None, ""));
    assert_eq!((&slots.program, slots.program_bytes), (&digest, own.len() as u64));
    assert!(slots.free_bytes > 0);
    place.write("home/b/edged", "another");
    place.write("home/current", "b\n");
    place.write("home/trial", "b 1 connected\n");
    place.write("home/left", "does not answer\n");
    place.write("home/job/edged", "taken");
    let slots = keeper.look().expect("a trial");
    assert_eq!((slots.trial, &*slots.left), (Trial::Next, "does not answer"));
    let long = "x".repeat(2 * UPGRADE_STATE_BYTES_MAX as usize);
    place.write("home/left", &long);
    let left = keeper.look().expect("a trial").left;
    assert_eq!(left.len() as u64, UPGRADE_STATE_BYTES_MAX);
    // What runs is the one that is tried.
    fs::remove_file(place.join("home/b/edged")).expect("a file of ours");
    if fs::hard_link("/proc/self/exe", place.join("home/b/edged")).is_err() {
        let exe = fs::read_link("/proc/self/exe").expect("it runs");
        std::os::unix::fs::symlink(exe, place.join("home/b/edged")).expect("a link of ours");
    }
    assert_eq!(keeper.look().expect("a trial").trial, Trial::Running);
    // Power failed under an upgrade: the slot is not the current one.
    place.write("home/trial", "a 0\n");
    assert_eq!(keeper.look().expect("no trial").trial, Trial::None);
    assert!(place.join("home/job/edged").exists(), "what was taken is looked at before its trial");
}

#[test]
fn only_what_was_taken_is_tried() {
    let place = TestFolder::new("upgrade");
    let keeper = keeper(&place, r#"echo "$@" >"$(dirname "$0")/asked""#);
    let path = place.write("home/job/edged", "a program");
    assert_eq!(keeper.begin_trial(&sha256(b"a program")), Ok(()));
    let asked = format!("upgrade --connected {}\n", path.display());
    assert_eq!(text(&place, "asked"), Some(asked));
    assert!(!place.join("home/job").exists(), "it takes as much flash as the program");
    place.write("home/job/edged", "a program");
    fs::remove_file(place.join("asked")).expect("it was written");
    let Failure(why) = keeper.begin_trial(&sha256(b"another")).expect_err("it has changed");
    assert!(why.contains(": got the digest sha256:"), "{why}");
    assert!(!place.join("asked").exists());
}
