//! Who the machine is: what the kernel, the firmware and the distribution say.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::model::machine::Identity;

/// Reads it. What cannot be read is empty.
pub(super) fn read() -> Identity {
    let machine_id = first(&["/etc/machine-id", "/var/lib/dbus/machine-id"]);
    let firmware = first(&[
        "/sys/class/dmi/id/product_uuid",
        "/proc/device-tree/system-id",
        "/proc/device-tree/vm,uuid",
    ]);
    let release = ["/etc/os-release", "/usr/lib/os-release"].map(fs::read_to_string);
    let release = release.into_iter().find_map(Result::ok).unwrap_or_default();
    Identity {
        system_uuid: if firmware.is_empty() { machine_id.clone() } else { firmware },
        machine_id,
        boot_id: first(&["/proc/sys/kernel/random/boot_id"]),
        kernel_version: first(&["/proc/sys/kernel/osrelease"]),
        os_image: pretty_name(&release).into(),
        architecture: architecture(std::env::consts::ARCH).into(),
        huge_pages: huge_pages(Path::new("/sys/kernel/mm/hugepages")),
    }
}

/// The first of the files that says anything.
fn first(paths: &[&str]) -> Box<str> {
    let mut texts = paths.iter().filter_map(|path| fs::read_to_string(path).ok());
    let told = texts.find_map(|text| {
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!text.is_empty()).then(|| text.into())
    });
    told.unwrap_or_default()
}

/// `PRETTY_NAME` of os-release(5), which is `Linux` where it is not told.
fn pretty_name(release: &str) -> &str {
    let value = release.lines().find_map(|line| line.trim().strip_prefix("PRETTY_NAME="));
    let name = value.map_or("", |value| value.trim_matches(|c| c == '"' || c == '\''));
    if name.is_empty() { "Linux" } else { name }
}

/// Go's name of an architecture, from Rust's.
fn architecture(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

/// Folders `hugepages-2048kB` with a file `nr_hugepages`.
fn huge_pages(folder: &Path) -> BTreeMap<u64, u64> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let of_size = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let count = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
        let count: u64 = count.trim().parse().ok()?;
        let page_bytes = kib.checked_mul(1_024)?;
        Some((page_bytes, page_bytes.checked_mul(count)?))
    };
    entries.filter_map(of_size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_is_named_as_it_names_itself() {
        for (release, name) in [
            (
                "NAME=x\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
                "Debian GNU/Linux 12 (bookworm)",
            ),
            ("PRETTY_NAME='Alpine Linux v3.20'", "Alpine Linux v3.20"),
            ("PRETTY_NAME=Buildroot\n", "Buildroot"),
            ("PRETTY_NAME=\"\"", "Linux"),
            ("", "Linux"),
        ] {
            assert_eq!(pretty_name(release), name, "{release:?}");
        }
    }

    #[test]
    fn architectures_have_the_names_of_go() {
        for (rust, go) in
            [("x86_64", "amd64"), ("aarch64", "arm64"), ("arm", "arm"), ("riscv64", "riscv64")]
        {
            assert_eq!(architecture(rust), go);
        }
    }

    #[test]
    fn this_machine_is_somebody() {
        let identity = read();
        assert!(
            identity.boot_id.len() == 36 && identity.kernel_version.contains('.'),
            "{identity:?}"
        );
        for (page_bytes, bytes) in &identity.huge_pages {
            assert!(page_bytes.is_power_of_two() && bytes % page_bytes == 0, "{identity:?}");
        }
    }
}
