//! Archives, layouts and folders for the tests of images.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::io::builtin::layout::{Layout, Settings};
use crate::io::test_folder::TestFolder;
use crate::model::builtin::Registries;
use crate::wire::oci::sha256;

/// The folders of one test.
pub(crate) struct Place(pub(crate) TestFolder);

impl Place {
    /// In memory, where there is such a place: everything is synced.
    pub(crate) fn new() -> Self {
        Self::of(TestFolder::in_memory("images"))
    }

    pub(crate) fn on_disk() -> Self {
        Self::of(TestFolder::new("images"))
    }

    fn of(top: TestFolder) -> Self {
        fs::create_dir_all(top.join("data/tmp")).expect("a folder of ours");
        Self(top)
    }

    pub(crate) fn settings(&self) -> Settings {
        settings(&self.0)
    }

    /// The unpacked layer.
    pub(crate) fn layer(&self, id: &str) -> PathBuf {
        let hex = id.trim_start_matches("sha256:");
        self.0.join("data/layers").join(hex).join("fs")
    }

    /// Names in a folder of the data folder, sorted.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.0.join("data").join(folder)) else { return Vec::new() };
        let name = |entry: std::io::Result<fs::DirEntry>| {
            entry.expect("it can be read").file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }
}

pub(crate) fn settings(place: &Path) -> Settings {
    Settings {
        layout: Layout::new(place.join("run"), place.join("data")),
        oci: PathBuf::new(),
        handlers: Vec::new(),
        cni_conf_dir: PathBuf::new(),
        cni_bin_dir: PathBuf::new(),
        registries: Registries::default(),
    }
}

/// A tar archive, member by member; heads may say anything.
#[derive(Clone, Default)]
pub(crate) struct Tar(pub(crate) Vec<u8>);

impl Tar {
    /// A file of user 1, group 2, mode 0644, second 5.
    pub(crate) fn file(self, name: &str, text: &[u8]) -> Self {
        self.head(name, b'0', text.len() as u64, "", |_| ()).contents(text)
    }

    pub(crate) fn folder(self, name: &str) -> Self {
        self.head(name, b'5', 0, "", |block| block[100..108].copy_from_slice(b"0000751\0"))
    }

    pub(crate) fn link(self, name: &str, to: &str) -> Self {
        self.head(name, b'2', 0, to, |_| ())
    }

    pub(crate) fn hard_link(self, name: &str, to: &str) -> Self {
        self.head(name, b'1', 0, to, |_| ())
    }

    pub(crate) fn device(self, name: &str, kind: u8) -> Self {
        self.head(name, kind, 0, "", |block| {
            block[329..337].copy_from_slice(b"0000010\0");
            block[337..345].copy_from_slice(b"0000007\0");
        })
    }

    /// The pax records `key=value` of the next member.
    pub(crate) fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let mut text = Vec::new();
        for (key, value) in records {
            let rest = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
            // The length counts itself.
            let mut length = rest.len();
            while length != rest.len() + length.to_string().len() {
                length = rest.len() + length.to_string().len();
            }
            text.extend_from_slice(length.to_string().as_bytes());
            text.extend_from_slice(&rest);
        }
        self.head("pax", b'x', text.len() as u64, "", |_| ()).contents(&text)
    }

    pub(crate) fn head(
        mut self,
        name: &str,
        kind: u8,
        size: u64,
        link: &str,
        change: impl FnOnce(&mut [u8; 512]),
    ) -> Self {
        let mut block = [0; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[100..108].copy_from_slice(b"0000644\0");
        block[108..116].copy_from_slice(b"0000001\0");
        block[116..124].copy_from_slice(b"0000002\0");
        block[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        block[136..147].copy_from_slice(b"00000000005");
        block[156] = kind;
        block[157..157 + link.len()].copy_from_slice(link.as_bytes());
        block[257..263].copy_from_slice(b"ustar\0");
        change(&mut block);
        block[148..156].fill(b' ');
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&block);
        self
    }

    pub(crate) fn contents(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        let padded = self.0.len().next_multiple_of(512);
        self.0.resize(padded, 0);
        self
    }

    /// With the end of the archive.
    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}

/// Compressed by another program.
pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new("gzip")
        .arg("-1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("gzip is part of every Debian");
    let mut input = child.stdin.take().expect("piped");
    let bytes = bytes.to_vec();
    #[expect(clippy::disallowed_methods, reason = "the other end of two pipes")]
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("it ends").expect("it reads everything");
    output.stdout
}

/// An image with its blobs, as a layout or a registry has them.
pub(crate) struct Image {
    pub(crate) manifest: Vec<u8>,
    /// Digests and contents, the configuration first.
    pub(crate) blobs: Vec<(String, Vec<u8>)>,
    pub(crate) diff_ids: Vec<String>,
}

impl Image {
    /// Of layers as archives and as they are sent.
    pub(crate) fn of(layers: &[(Vec<u8>, Vec<u8>)]) -> Self {
        let diff_ids: Vec<String> = layers.iter().map(|(plain, _)| sha256(plain)).collect();
        let architecture = crate::io::sys::image_machine().architecture;
        let config = serde_json::json!({
            "os": "linux", "architecture": architecture,
            "config": { "Cmd": ["sh"], "Env": ["A=b"] },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        })
        .to_string()
        .into_bytes();
        let mut blobs = vec![(sha256(&config), config)];
        blobs.extend(layers.iter().map(|(_, sent)| (sha256(sent), sent.clone())));
        let contents: Vec<serde_json::Value> = blobs
            .iter()
            .map(|(digest, bytes)| {
                serde_json::json!({ "mediaType": "m", "digest": digest, "size": bytes.len() })
            })
            .collect();
        let manifest = serde_json::json!({
            "schemaVersion": 2, "config": contents[0], "layers": contents[1..],
        });
        Self { manifest: manifest.to_string().into_bytes(), blobs, diff_ids }
    }

    /// Of plain archives.
    pub(crate) fn plain(layers: &[Vec<u8>]) -> Self {
        let layers: Vec<_> = layers.iter().map(|layer| (layer.clone(), layer.clone())).collect();
        Self::of(&layers)
    }

    /// Writes an OCI layout called `app:1`.
    pub(crate) fn layout(&self, folder: &Path) -> String {
        let blobs = folder.join("blobs/sha256");
        fs::create_dir_all(&blobs).expect("a folder of ours");
        let manifest = (sha256(&self.manifest), self.manifest.clone());
        for (digest, bytes) in self.blobs.iter().chain([&manifest]) {
            fs::write(blobs.join(&digest[7..]), bytes).expect("a file of ours");
        }
        let index = serde_json::json!({ "schemaVersion": 2, "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": manifest.0, "size": manifest.1.len(),
            "annotations": { "org.opencontainers.image.ref.name": "localhost/app:1" },
        }]});
        fs::write(folder.join("index.json"), index.to_string()).expect("a file of ours");
        fs::write(folder.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)
            .expect("a file of ours");
        folder.to_str().expect("UTF-8").to_owned()
    }
}
