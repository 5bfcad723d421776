//! How long an image takes from a file into the store, unpacked.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::{builtin, name_program, order, program, settle};
use crate::figure::{Figure, Limit};
use crate::rig::Rig;
use crate::support::containerd::{Containerd, run};

/// Names of [`import`].
pub const NAMES: &[&str] = &["runtime.import"];

const ROUNDS: usize = 5;
/// Bytes of an image's files, about: they come from this machine's libraries.
const BYTES: u64 = 60 << 20;

/// Milliseconds for an image of 60 MB in one layer by gzip, until it can be used. Each round has
/// another layer.
pub fn import(rig: &Rig) -> Vec<Figure> {
    name_program();
    rig.wipe();
    let crun = builtin(rig, "crun");
    let folder = rig.new_folder("image");
    fill(&folder.join("root"));
    let mut times = [const { Vec::new() }; 2];
    for round in 0..=ROUNDS {
        let file = image(&folder, round);
        let mut shown = [0.0; 2];
        for side in order::<2>(round) {
            settle();
            let begun = Instant::now();
            match side {
                0 => by_ctr(rig.containerd(), &file),
                _ => by_edged(&crun, &file),
            }
            shown[side] = begun.elapsed().as_secs_f64() * 1_000.0;
        }
        eprintln!("bench:   {} round {round}: {shown:.0?} ms, the first by ctr", NAMES[0]);
        std::fs::remove_file(&file).expect("ours");
        rig.containerd().ctr(&["images", "rm", "--sync", &name(round)]);
        if round > 0 {
            times.iter_mut().zip(shown).for_each(|(times, time)| times.push(time));
        }
    }
    crun.cut();
    std::fs::remove_dir_all(folder).expect("ours");
    vec![Figure::beside(NAMES[0], &times[1], &times[0], "ms", Limit::Ratio(1.0))]
}

fn by_ctr(containerd: &Containerd, file: &Path) {
    containerd.ctr(&["images", "import", &file.to_string_lossy()]);
}

fn by_edged(runtime: &Containerd, file: &Path) {
    let endpoint = format!("ttrpc://{}", runtime.socket().display());
    let mut import = Command::new(program());
    run(import.args(["images", "import", "--runtime", &endpoint]).arg(file));
}

fn name(round: usize) -> String {
    format!("localhost/large:{round}")
}

/// Copies files until there are enough of them.
fn fill(folder: &Path) {
    std::fs::create_dir_all(folder).expect("a folder of ours");
    let mut left = BYTES;
    for entry in std::fs::read_dir("/usr/bin").expect("every machine has it").flatten() {
        let Ok(meta) = std::fs::symlink_metadata(entry.path()) else { continue };
        // Many of middle size: as an image's are.
        if meta.is_file() && meta.len() <= left.min(1 << 20) {
            std::fs::copy(entry.path(), folder.join(entry.file_name())).expect("there is room");
            left -= meta.len();
        }
    }
    assert!(left < BYTES / 2, "programs of this machine fill the image");
}

/// An OCI layout in an archive, with one layer.
fn image(folder: &Path, round: usize) -> PathBuf {
    let mut shell = Command::new("sh");
    run(shell.args(["-c", PACK]).arg(folder).arg(round.to_string()).arg(name(round)));
    folder.join("image.tar")
}

/// In the folder $0, for the round $1, with the name $2.
const PACK: &str = r#"set -eu
cd "$0"
echo "$1" >root/round
mkdir -p image/blobs/sha256
type=application/vnd.oci.image
blob() {
    sum=$(sha256sum "$1" | cut -d ' ' -f 1)
    size=$(wc -c <"$1")
    mv "$1" "image/blobs/sha256/$sum"
    blob="{\"mediaType\":\"$type.$2\",\"digest\":\"sha256:$sum\",\"size\":$size"
}
tar --create --file=layer --sort=name --mtime=@0 --owner=0 --group=0 -C root .
diff=$(sha256sum layer | cut -d ' ' -f 1)
gzip -1 -n layer
blob layer.gz layer.v1.tar+gzip
layer="$blob}"
cat >config <<JSON
{ "architecture": "$(dpkg --print-architecture)", "os": "linux", "config": {},
  "rootfs": { "type": "layers", "diff_ids": ["sha256:$diff"] } }
JSON
blob config config.v1+json
echo "{\"schemaVersion\":2,\"config\":$blob},\"layers\":[$layer]}" >manifest
blob manifest manifest.v1+json
cat >image/index.json <<JSON
{ "schemaVersion": 2, "manifests": [$blob, "annotations": {
  "io.containerd.image.name": "$2", "org.opencontainers.image.ref.name": "$2" } }] }
JSON
echo '{ "imageLayoutVersion": "1.0.0" }' >image/oci-layout
tar --create --file=image.tar -C image .
rm -r image
"#;
