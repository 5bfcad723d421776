//! The machine's identity, from the kernel, the firmware and the distribution.

use std::fs;

use crate::model::machine::Identity;

/// Reads it. A value that cannot be read is empty.
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
    }
}

/// The first of the files that is not empty.
fn first(paths: &[&str]) -> Box<str> {
    let mut texts = paths.iter().filter_map(|path| fs::read_to_string(path).ok());
    let text = texts.find_map(|text| {
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!text.is_empty()).then(|| text.into())
    });
    text.unwrap_or_default()
}

/// `PRETTY_NAME` of os-release(5), which defaults to `Linux`.
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
    }
}
