//! Layers that are as they should be, layers that mean harm, and jobs that are killed.

mod gunzip;
mod registry;
pub(super) mod support;

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::*;
use crate::limits::{IMAGE_INDEX_DEPTH_MAX, IMAGE_PAX_BYTES_MAX, LAYER_SPARE_BYTES};
use support::{Image, Place, Tar, gzip, settings};

fn imported(place: &Place, image: &Image) -> Result<ImageRecord, JobFault> {
    let path = image.layout(&place.0.join("layout"));
    match import(&place.settings(), &path) {
        Ok(JobReply::Images(mut records)) if records.len() == 1 => Ok(records.remove(0)),
        Ok(other) => panic!("got {other:?}"),
        Err(fault) => Err(fault),
    }
}

/// Unpacks one archive; returns its folder.
fn unpacked(place: &Place, tar: Tar) -> Result<std::path::PathBuf, JobFault> {
    let image = Image::plain(&[tar.end()]);
    imported(place, &image).map(|_| place.layer(&image.diff_ids[0]))
}

fn xattr(path: &Path, name: &str) -> Option<String> {
    let [path, name] = [path.to_str().expect("UTF-8"), name].map(CString::new);
    let (path, name) = (path.expect("no zero"), name.expect("no zero"));
    let mut value = vec![0; 4 << 10];
    // SAFETY: both names end with a zero, and the value has room for as many bytes as it says.
    #[expect(unsafe_code, reason = "nix does not have it")]
    let got = unsafe {
        let to = value.as_mut_ptr().cast();
        libc::lgetxattr(path.as_ptr(), name.as_ptr(), to, value.len())
    };
    value.truncate(usize::try_from(got).ok()?);
    Some(String::from_utf8_lossy(&value).into_owned())
}

#[test]
fn members_become_files() {
    let place = Place::new();
    let tar = Tar::default()
        .folder("./")
        .folder("etc/")
        .file("etc/a", b"text")
        .head("bin/su", b'0', 0, "", |block| block[100..108].copy_from_slice(b"0004755\0"))
        .hard_link("etc/same", "etc/a")
        .link("etc/link", "../../../../outside")
        .device("dev/c", b'3')
        .device("dev/b", b'4')
        .head("dev/p", b'6', 0, "", |_| ())
        .pax(&[("path", b"long/\xff"), ("uid", b"70000"), ("mtime", b"7.5")])
        .file("x", b"y");
    let layer = unpacked(&place, tar).expect("a layer");
    let meta = |name: &str| fs::symlink_metadata(layer.join(name)).expect(name);
    let file = meta("etc/a");
    assert_eq!((file.uid(), file.gid(), file.mode(), file.mtime()), (1, 2, 0o100_644, 5));
    assert_eq!(fs::read(layer.join("etc/a")).expect("a file"), b"text");
    assert_eq!((meta("etc").mode(), meta("etc").mtime()), (0o40_751, 5), "after its content");
    assert_eq!(meta("").mode(), 0o40_751, "the layer's own folder");
    assert_eq!(meta("bin/su").mode(), 0o104_755, "the mode comes after the owner");
    assert_eq!((meta("bin").mode(), meta("bin").uid()), (0o40_755, 0), "no member says so");
    assert_eq!((meta("etc/same").ino(), file.nlink()), (file.ino(), 2));
    let link = meta("etc/link");
    assert_eq!((link.uid(), link.mtime()), (1, 5));
    let to = fs::read_link(layer.join("etc/link")).expect("a link");
    assert_eq!(to.to_str(), Some("../../../../outside"));
    let (character, block) = (meta("dev/c"), meta("dev/b"));
    assert!(character.file_type().is_char_device() && block.file_type().is_block_device());
    assert_eq!(character.rdev(), nix::sys::stat::makedev(8, 7));
    assert!(meta("dev/p").file_type().is_fifo());
    let odd = layer.join(OsStr::from_bytes(b"long/\xff"));
    let odd = fs::symlink_metadata(odd).expect("any bytes are a name");
    assert_eq!((odd.uid(), odd.gid()), (70_000, 2));
    assert_eq!((odd.mtime(), odd.mtime_nsec()), (7, 500_000_000));
    assert_eq!(place.names("tmp"), [""; 0]);
}

#[test]
fn whiteouts_become_those_of_overlayfs() {
    let place = Place::new();
    let tar = Tar::default()
        .file("a/.wh.gone", b"")
        .folder("opaque/")
        .file("opaque/.wh..wh..opq", b"")
        .file("opaque/kept", b"1")
        // In either order, what the layer has itself stays.
        .file("before", b"1")
        .file(".wh.before", b"")
        .file(".wh.after", b"")
        .file("after", b"2")
        .file(".wh.folder", b"")
        .folder("folder/")
        .folder("later/")
        .file(".wh.later", b"")
        .file(".wh..wh.plnk/1.2", b"aufs")
        .file(".wh..wh.aufs", b"aufs");
    let layer = unpacked(&place, tar).expect("a layer");
    let gone = fs::symlink_metadata(layer.join("a/gone")).expect("a whiteout");
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    let opaque = |name: &str| xattr(&layer.join(name), "trusted.overlay.opaque");
    for (name, want) in [("opaque", true), ("folder", true), ("later", true), ("a", false)] {
        assert_eq!(opaque(name).as_deref(), want.then_some("y"), "{name}");
    }
    for (name, want) in [("opaque/kept", "1"), ("before", "1"), ("after", "2")] {
        assert_eq!(fs::read_to_string(layer.join(name)).expect(name), want);
    }
    let names = fs::read_dir(&layer).expect("a folder").count();
    assert_eq!(names, 6, "nothing of AUFS, no whiteout as a file");
}

#[test]
fn attributes_of_this_layer_are_kept_and_marks_of_overlayfs_are_not() {
    let place = Place::on_disk();
    let capability = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let tar = Tar::default()
        .pax(&[
            ("SCHILY.xattr.user.color", b"red"),
            ("SCHILY.xattr.user.overlay.opaque", b"y"),
            ("SCHILY.xattr.trusted.overlay.redirect", b"/etc"),
            ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
            ("SCHILY.xattr.security.selinux", b"x"),
            ("SCHILY.xattr.security.capability", capability),
        ])
        .file("f", b"");
    let layer = unpacked(&place, tar).expect("a layer");
    for (name, is_kept) in [
        ("user.color", true),
        ("security.capability", true),
        ("user.overlay.opaque", false),
        ("trusted.overlay.redirect", false),
        ("trusted.overlay.opaque", false),
        ("security.selinux", false),
    ] {
        assert_eq!(xattr(&layer.join("f"), name).is_some(), is_kept, "{name}");
    }
    assert_eq!(xattr(&layer.join("f"), "user.color").as_deref(), Some("red"));
}

#[test]
fn a_folder_that_is_no_member_is_as_below() {
    let place = Place::new();
    let mode = |block: &mut [u8; 512]| block[100..108].copy_from_slice(b"0001777\0");
    let low = Tar::default().head("tmp/", b'5', 0, "", mode).end();
    let high = Tar::default().file("tmp/a/f", b"x").end();
    let image = Image::plain(&[low, high]);
    imported(&place, &image).expect("two layers");
    let meta = |name| {
        let meta = fs::metadata(place.layer(&image.diff_ids[1]).join(name)).expect(name);
        (meta.mode() & 0o7777, meta.uid(), meta.gid())
    };
    assert_eq!(meta("tmp"), (0o1777, 1, 2));
    assert_eq!(meta("tmp/a"), (0o755, 0, 0), "it is in no layer");
}

#[test]
fn a_later_member_replaces_an_earlier_one() {
    let place = Place::new();
    let tar = Tar::default()
        .file("a", b"1")
        .file("a", b"2")
        .folder("d/")
        .file("d/x", b"1")
        .folder("d/")
        .folder("e/")
        .file("e/x", b"1")
        .file("e", b"now a file")
        .link("f", "nowhere")
        .folder("f/")
        .file("f/x", b"1");
    let layer = unpacked(&place, tar).expect("a layer");
    for (name, want) in [("a", "2"), ("d/x", "1"), ("e", "now a file"), ("f/x", "1")] {
        assert_eq!(fs::read_to_string(layer.join(name)).expect(name), want);
    }
}

/// Everything below a folder but the layers of `data`, with contents and times.
fn outside(place: &Place) -> Vec<String> {
    let find = Command::new("find")
        .arg(&*place.0)
        .args(["-path", "*/layout", "-prune", "-o", "-path", "*/data", "-prune", "-o"])
        .args(["-printf", "%P %y %m %U %G %s %T@ %n %l\n"])
        .output()
        .expect("find is here");
    let mut lines: Vec<String> =
        String::from_utf8_lossy(&find.stdout).lines().map(str::to_owned).collect();
    // The folder itself gets `layout` in it.
    lines.retain(|line| !line.starts_with(' '));
    lines.sort();
    lines
}

/// A folder that a layer may try to reach.
struct Scene {
    place: Place,
    victim: String,
    before: Vec<String>,
}

impl Scene {
    fn new() -> Self {
        let place = Place::new();
        fs::create_dir(place.0.join("victim")).expect("a folder");
        fs::write(place.0.join("victim/file"), "as it was").expect("a file");
        let victim = place.0.join("victim").to_str().expect("UTF-8").to_owned();
        let before = outside(&place);
        assert_eq!(before.len(), 2, "{before:?}");
        Self { place, victim, before }
    }

    /// Unpacks each layer: `None` succeeds, the others are refused with this text. Nothing outside
    /// changes.
    fn play<const COUNT: usize>(&self, layers: [(&str, Tar, Option<&str>); COUNT]) {
        for (what, tar, refusal) in layers {
            let got = unpacked(&self.place, tar);
            if let Some(why) = refusal {
                let text = format!("{:?}", got.as_ref().expect_err(what)).replace("\\0", "\0");
                assert!(text.contains(why), "{what}: {text}");
                assert!(text.contains("localhost/app:1: layer sha256:"), "{what}: {text}");
                assert_eq!(self.place.names("tmp"), [""; 0], "{what}");
            } else {
                assert!(got.is_ok(), "{what}: {got:?}");
            }
            assert_eq!(outside(&self.place), self.before, "{what}");
            fs::remove_dir_all(self.place.0.join("layout")).expect("it was made");
        }
    }
}

#[test]
fn names_lead_nowhere_outside() {
    let scene = Scene::new();
    let (victim, tar) = (&scene.victim, Tar::default);
    let (deep, long) = ("d/".repeat(200), "n".repeat(300));
    scene.play([
        ("a name that leads up", tar().file("../victim/file", b"x"), Some("expected no ..")),
        ("one that leads up later", tar().file("a/../../victim/file", b"x"), Some("no ..")),
        ("an absolute name", tar().file(victim, b"x"), None),
        ("a file as the layer's folder", tar().file("./", b"x"), Some("own folder")),
        ("a file below a file", tar().file("a", b"x").file("a/b", b"x"), Some("Not a directory")),
        ("a name with a zero", tar().pax(&[("path", b"a\0b")]).file("x", b""), Some("a\0b")),
        ("a deep name", tar().pax(&[("path", deep.as_bytes())]).folder("x"), None),
        (
            "a deep name that is replaced",
            tar().pax(&[("path", deep.as_bytes())]).folder("x").file("d", b"1"),
            None,
        ),
        ("a long part", tar().pax(&[("path", long.as_bytes())]).file("x", b""), Some("too long")),
        (
            "a longer name than the kernel takes, as GNU tar has it",
            tar()
                .head("././@LongLink", b'L', 5_000, "", |_| ())
                .contents(&b"d/".repeat(2_500))
                .file("x", b""),
            Some("name of 5000 bytes, expected 4096"),
        ),
        ("a link to nothing", tar().link("l", ""), Some("make l")),
    ]);
}

#[test]
fn links_lead_nowhere_outside() {
    let scene = Scene::new();
    let (victim, tar) = (&scene.victim, Tar::default);
    let up = "../".repeat(12);
    scene.play([
        ("an absolute link", tar().link("l", victim).file("l/file", b"x"), Some("open l")),
        (
            "a link that leads up",
            tar().link("l", &format!("{up}{victim}")).folder("l/").file("l/file", b"x"),
            None,
        ),
        ("a link to the root", tar().link("l", "/").file("l/file", b"x"), None),
        (
            "a link in the place of a folder",
            tar().folder("d/").file("d/a", b"1").link("d", victim).file("d/file", b"x"),
            Some("open d"),
        ),
        (
            "a link onto which a file is written",
            tar().link("l", &format!("{victim}/file")).file("l", b"x"),
            None,
        ),
        ("a hard link out", tar().hard_link("l", &format!("{victim}/file")), Some("hard link")),
        ("a hard link up", tar().hard_link("l", "../victim/file"), Some("no ..")),
        (
            "a hard link through a link",
            tar().link("d", victim).hard_link("l", "d/file"),
            Some("open d"),
        ),
        (
            "a hard link to a link",
            tar().link("d", &format!("{victim}/file")).hard_link("l", "d").file("l", b"x"),
            None,
        ),
        ("a hard link to a folder", tar().folder("d").hard_link("l", "d"), Some("link l")),
        ("a hard link to itself", tar().hard_link("l", "l"), None),
    ]);
}

#[test]
fn marks_and_devices_reach_nothing_outside() {
    let scene = Scene::new();
    let (victim, tar) = (&scene.victim, Tar::default);
    scene.play([
        ("a process's links", tar().file("proc/self/root/victim", b"x"), None),
        ("a device", tar().device("sda", b'4').file("sda", b"x"), None),
        ("a whiteout of the layer itself", tar().file(".wh..", b""), Some("whiteout of no name")),
        ("a whiteout of its parent", tar().file("a/.wh...", b""), Some("whiteout of no name")),
        ("a whiteout without a name", tar().file(".wh.", b""), Some("whiteout of no name")),
        ("an opaque root", tar().file(".wh..wh..opq", b""), None),
        (
            "a whiteout behind a link",
            tar().link("d", victim).file("d/.wh.file", b""),
            Some("open d"),
        ),
        (
            "an opaque folder behind a link",
            tar().folder("e/").link("d", "e").file("d/.wh..wh..opq", b""),
            Some("open d"),
        ),
    ]);
}

#[test]
fn heads_that_cannot_be_are_refused() {
    let scene = Scene::new();
    let tar = Tar::default;
    scene.play([
        ("a sparse file", tar().head("s", b'S', 0, "", |_| ()), Some("kind 'S'")),
        (
            "a sparse file of pax",
            tar().pax(&[("GNU.sparse.major", b"1")]).file("s", b""),
            Some("sparse"),
        ),
        (
            "a huge file",
            tar().head("h", b'0', 0, "", |b| {
                b[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0, 15, 0, 0, 0, 0, 0, 0]);
            }),
            Some("no space left"),
        ),
        (
            "a file of no size",
            tar().head("h", b'0', 0, "", |b| {
                b[124..136]
                    .copy_from_slice(&[0x80, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
            }),
            Some("got a member of"),
        ),
        (
            "huge records",
            tar().head("h", b'x', IMAGE_PAX_BYTES_MAX as u64 + 1, "", |_| ()),
            Some("that describe a member, expected 1048576 at most"),
        ),
        (
            "an owner of no number",
            tar().head("h", b'0', 0, "", |b| b[108] = b'9'),
            Some("got an owner"),
        ),
        (
            "a member that is cut off",
            tar().head("h", b'0', 9_000, "", |_| ()),
            Some("within a member"),
        ),
    ]);
}

#[test]
fn each_digest_counts() {
    let place = Place::new();
    let tar = Tar::default().file("a", b"text").end();
    let other = Tar::default().file("a", b"tex!").end();
    let failure = |image: &Image, change: &dyn Fn(&Path)| {
        let path = image.layout(&place.0.join("layout"));
        change(Path::new(&path));
        let fault = import(&place.settings(), &path).expect_err("it is wrong");
        assert_eq!((place.names("tmp"), place.names("layers")), (vec![], vec![]));
        fs::remove_dir_all(&path).expect("it was made");
        assert!(matches!(fault, JobFault::Invalid(_)), "{fault:?}");
        format!("{fault:?}")
    };
    let good = Image::of(&[(tar.clone(), gzip(&tar))]);
    let replaced = |digest: &str, bytes: &[u8]| {
        let (digest, bytes) = (digest.to_owned(), bytes.to_vec());
        move |path: &Path| {
            let path = path.join("blobs/sha256").join(&digest[7..]);
            fs::write(path, &bytes).expect("a file of ours");
        }
    };
    let why = failure(&good, &replaced(&good.blobs[1].0, &gzip(&other)));
    assert!(why.contains("of the layer as it is, expected"), "{why}");
    let cut = &good.blobs[1].1[..good.blobs[1].1.len() - 9];
    let why = failure(&good, &replaced(&good.blobs[1].0, cut));
    assert!(why.contains("gzip: it is cut off"), "{why}");
    let why = failure(&good, &replaced(&good.blobs[1].0, b""));
    assert!(why.contains("digest"), "{why}");
    let why = failure(&good, &replaced(&good.blobs[0].0, b"{}"));
    assert!(why.contains("got JSON with the digest"), "{why}");
    let manifest = sha256(&good.manifest);
    let why = failure(&good, &replaced(&manifest, &[&good.manifest[..], b" "].concat()));
    assert!(why.contains("got JSON with the digest"), "{why}");
    // The manifest has the right digest of the wrong layer.
    let swapped = Image::of(&[(tar.clone(), gzip(&other))]);
    let why = failure(&swapped, &|_| ());
    assert!(why.contains("of the layer uncompressed, expected"), "{why}");
    let zstd = Image::of(&[(tar.clone(), b"\x28\xb5\x2f\xfd\x04\0\0\0".to_vec())]);
    assert!(failure(&zstd, &|_| ()).contains("that zstd has compressed"));
    let mut short = Image::plain(&[tar.clone(), other]);
    let text = String::from_utf8(short.manifest).expect("JSON");
    let mut manifest: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    manifest["layers"].as_array_mut().expect("a list").pop();
    short.manifest = manifest.to_string().into_bytes();
    let path = short.layout(&place.0.join("layout"));
    let why = format!("{:?}", import(&place.settings(), &path).expect_err("it is short"));
    assert!(why.contains("got 1 layers, expected 2 as configured"), "{why}");
}

#[test]
fn what_is_there_is_not_unpacked_again() {
    let place = Place::new();
    let low = Tar::default().file("a", &[b'x'; 5_000]).end();
    let high = Tar::default().file("b", b"y").end();
    // The same layer twice counts where it is highest.
    let image = Image::plain(&[low.clone(), high.clone(), low]);
    let record = imported(&place, &image).expect("an image");
    let ids: Vec<&str> = record.layers.iter().map(|id| &*id.0).collect();
    assert_eq!(ids, [&*image.diff_ids[1], &*image.diff_ids[0]]);
    let (config, folder, files) = (image.blobs[0].1.len() as u64, 4_096, 8_192 + 4_096);
    assert_eq!(record.size, config + 2 * folder + files);
    assert_eq!((&*record.tags, record.digests.len()), (&["localhost/app:1".into()][..], 0));
    assert_eq!(&*record.id.0, image.blobs[0].0);
    assert_eq!(
        (&*record.config.cmd, &*record.config.env),
        (&["sh".into()][..], &["A=b".into()][..])
    );
    let inode = || fs::metadata(place.layer(ids[0]).join("b")).expect("it is there").ino();
    let before = inode();
    assert_eq!(imported(&place, &image), Ok(record.clone()));
    assert_eq!(inode(), before);
    assert_eq!(layers(&place.settings()).expect("a list").len(), 2);
    // A layer without its size is none.
    let size = place.layer(ids[0]).with_file_name("size");
    fs::remove_file(&size).expect("it was there");
    assert_eq!(imported(&place, &image), Ok(record.clone()));
    assert_ne!(inode(), before);
    assert_eq!(remove_layers(&place.settings(), &record.layers[..1], false), Ok(JobReply::Done));
    assert_eq!(remove_layers(&place.settings(), &record.layers[..1], false), Ok(JobReply::Done));
    assert_eq!(layers(&place.settings()).expect("a list"), record.layers[1..]);
    let wrong = [DiffId("sha256:../../run".into())];
    assert!(matches!(remove_layers(&place.settings(), &wrong, false), Err(JobFault::Invalid(_))));
    assert_eq!(place.names("tmp"), [""; 0]);
}

#[test]
fn an_image_of_another_machine_is_refused() {
    let place = Place::new();
    let image = Image::plain(&[Tar::default().end()]);
    let path = image.layout(&place.0.join("layout"));
    let index = |entries: serde_json::Value| {
        let text = serde_json::json!({ "schemaVersion": 2, "manifests": entries }).to_string();
        (sha256(text.as_bytes()), text)
    };
    let save = |(digest, text): &(String, String)| {
        let blob = Path::new(&path).join("blobs/sha256").join(&digest[7..]);
        fs::write(blob, text).expect("a file of ours");
        serde_json::json!({ "mediaType": "m", "digest": digest, "size": text.len() })
    };
    let top = |entry: &serde_json::Value| {
        let (_, text) = index(serde_json::json!([entry]));
        fs::write(Path::new(&path).join("index.json"), text).expect("a file of ours");
        import(&place.settings(), &path)
    };
    let own = serde_json::json!({ "mediaType": "m", "digest": sha256(&image.manifest),
        "size": image.manifest.len(),
        "platform": { "os": "linux", "architecture": image_machine().architecture } });
    let foreign = |os: &str| {
        let mut entry = own.clone();
        entry["platform"] = serde_json::json!({ "os": os, "architecture": "s390x" });
        entry
    };
    let both = save(&index(serde_json::json!([foreign("windows"), own])));
    assert!(matches!(top(&both), Ok(JobReply::Images(_))));
    let none = save(&index(serde_json::json!([foreign("windows"), foreign("linux")])));
    let why = top(&none).expect_err("it is for others");
    let JobFault::NotFound(why) = why else { panic!("{why:?}") };
    assert!(why.contains("got linux/s390x, windows/s390x, expected linux/"), "{why}");
    // Without an index the configuration says it.
    let config = String::from_utf8(image.blobs[0].1.clone()).expect("JSON");
    let config = config.replace(image_machine().architecture, "s390x").into_bytes();
    let manifest = String::from_utf8(image.manifest.clone()).expect("JSON");
    let manifest = manifest.replace(&image.blobs[0].0, &sha256(&config)).into_bytes();
    let alone = Image { manifest, blobs: vec![(sha256(&config), config)], diff_ids: vec![] };
    let other = alone.layout(&place.0.join("other"));
    let why = import(&place.settings(), &other).expect_err("it is for another");
    let JobFault::NotFound(why) = why else { panic!("{why:?}") };
    assert!(why.contains("got linux/s390x, expected linux/"), "{why}");
    let mut deep = both;
    for _ in 0..IMAGE_INDEX_DEPTH_MAX {
        deep = save(&index(serde_json::json!([deep])));
    }
    let why = format!("{:?}", top(&deep).expect_err("too deep"));
    assert!(why.contains("indexes in 3 indexes, expected a manifest"), "{why}");
}

#[test]
fn machines_are_named_as_go_names_them() {
    for (program, kernel, want) in [
        ("x86_64", "x86_64", "linux/amd64"),
        ("aarch64", "aarch64", "linux/arm64"),
        ("arm", "armv7l", "linux/arm/v7"),
        ("arm", "armv6l", "linux/arm/v6"),
        ("arm", "armv8l", "linux/arm/v8"),
        ("arm", "aarch64", "linux/arm/v8"),
        ("riscv64", "riscv64", "linux/riscv64"),
    ] {
        assert_eq!(crate::io::sys::image_machine_of(program, kernel).to_string(), want);
    }
}

#[test]
fn a_job_that_is_killed_leaves_only_what_is_unfinished() {
    const CHILD: &str = "EDGED_TEST_IMPORT";
    if let Ok(place) = std::env::var(CHILD) {
        let path = format!("{place}/layout");
        let _ = import(&settings(Path::new(&place)), &path);
        return;
    }
    let place = Place::new();
    let text = vec![b'x'; 40_000];
    let layer = |number: usize| {
        let name = |file: usize| format!("{number}/{file}");
        (0..40).fold(Tar::default(), |tar, file| tar.file(&name(file), &text)).end()
    };
    let plain: Vec<Vec<u8>> = (0..5).map(layer).collect();
    let image = Image::plain(&plain);
    image.layout(&place.0.join("layout"));
    let test = "io::builtin::images::tests::a_job_that_is_killed_leaves_only_what_is_unfinished";
    let mut unfinished = 0;
    for step in 0..12 {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", test])
            .env(CHILD, &*place.0)
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("it starts");
        let wait = std::time::Duration::from_millis(4 * step);
        #[expect(clippy::disallowed_methods, reason = "the moment of a kill is a time")]
        std::thread::sleep(wait);
        child.kill().expect("it is ours");
        child.wait().expect("it ends");
        unfinished += usize::from(!place.names("tmp").is_empty());
        for id in layers(&place.settings()).expect("a list") {
            let number = image.diff_ids.iter().position(|it| **it == *id.0).expect("one of them");
            let files = fs::read_dir(place.layer(&id.0).join(number.to_string()));
            assert_eq!(files.expect("it is whole").count(), 40);
            assert!(layer::size(&place.settings().layout, &id).expect("a size").is_some());
        }
        if step % 3 == 2 {
            empty_tmp(&place.settings()).expect("it can be emptied");
            assert_eq!(place.names("tmp"), [""; 0]);
            let all = layers(&place.settings()).expect("a list");
            let _ = remove_layers(&place.settings(), &all, false);
        }
    }
    assert!(unfinished > 0, "no kill came while a layer was unpacked");
    imported(&place, &image).expect("whatever was left");
    assert_eq!((place.names("layers").len(), place.names("tmp")), (5, vec![]));
}

/// A small file system in the place's data folder.
struct Small<'a>(&'a Place);

impl<'a> Small<'a> {
    fn new(place: &'a Place, bytes: u64) -> Self {
        let data = place.0.join("data");
        let (kind, options) = (Some("tmpfs"), format!("size={bytes}"));
        mount(kind, &data, kind, MsFlags::empty(), Some(&*options)).expect("needs root");
        fs::create_dir(data.join("tmp")).expect("a folder of ours");
        Self(place)
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let _ = umount2(&self.0.0.join("data"), MntFlags::MNT_DETACH);
    }
}

#[test]
fn a_full_disk_refuses_an_image_and_keeps_what_is_there() {
    let place = Place::new();
    let _small = Small::new(&place, LAYER_SPARE_BYTES + (2 << 20));
    let layer = |name: &str, bytes: usize| Tar::default().file(name, &vec![b'x'; bytes]).end();
    let base = layer("base", 100_000);
    let first = Image::plain(&[base.clone(), layer("a", 100_000)]);
    imported(&place, &first).expect("there is room");
    let kept = place.names("layers");
    // Its first layer is there, its second has room, its third has none.
    let large = Image::plain(&[base, layer("b", 100_000), layer("c", 2 << 20)]);
    let fault = imported(&place, &large).expect_err("there is no room");
    let JobFault::Failed(why) = fault else { panic!("{fault:?}") };
    assert!(why.contains("localhost/app:1: layer sha256:"), "{why}");
    assert!(why.contains("no space left on device: got 2097152 bytes, expected "), "{why}");
    assert_eq!(place.names("tmp"), [""; 0]);
    assert_eq!(place.names("layers").len(), 3, "what was whole is kept for the next try");
    let new: Vec<DiffId> = layers(&place.settings())
        .expect("a list")
        .into_iter()
        .filter(|id| !kept.contains(&id.0[7..].to_owned()))
        .collect();
    assert_eq!(remove_layers(&place.settings(), &new, false), Ok(JobReply::Done));
    assert_eq!(place.names("layers"), kept);
    imported(&place, &first).expect("it is whole");
}
