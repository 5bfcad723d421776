//! Keys for the built-in runtime, which `edged runtime` reads. `builtinRuntime` is edged's own; the
//! two of CNI are KubeEdge's up to 1.12.

use super::Config;
use super::table::{Row, Rule, Table, absolute, folder, text};
use crate::limits::{REGISTRIES_MAX, REGISTRY_MIRRORS_MAX};
use crate::model::error::Input;
use crate::model::image::ImageName;
use crate::wire::tree::{Node, Value};

use Rule::{Map, Take as Set};

/// Below `modules.edged`.
pub(super) const EDGED: &[Row] = &[
    ("builtinRuntime", Map(&BUILTIN)),
    ("cniBinDir", Set(plugins)),
    ("cniConfDir", Set(|config, value| place(value, &mut config.builtin.cni_conf_dir))),
];

const BUILTIN: Table = Table {
    rules: &[
        ("dataDir", Set(|config, value| place(value, &mut config.builtin.data_dir))),
        ("insecureRegistries", Set(insecure)),
        ("ociProgram", Set(|config, value| path(value, &mut config.builtin.oci_program))),
        (
            "registryCAFile",
            Set(|config, value| path(value, &mut config.builtin.registries.ca_file)),
        ),
        ("registryMirrors", Set(mirrors)),
    ],
    more: &[],
    unused: "",
};

/// Every map in the shipped file.
#[cfg(test)]
pub(super) const TABLES: &[&Table] = &[&BUILTIN];

/// Nothing leaves the default.
fn place(value: &Value, setting: &mut String) -> Result<(), Input> {
    let given = text(value)?;
    if !given.is_empty() {
        *setting = folder(given)?;
    }
    Ok(())
}

fn path(value: &Value, setting: &mut String) -> Result<(), Input> {
    let given = text(value)?;
    let path = if given.is_empty() { Some(String::new()) } else { absolute(given) };
    *setting = path.ok_or_else(|| Input::quoted(given, "an absolute path, or nothing"))?;
    Ok(())
}

/// KubeEdge has several, separated by commas.
fn plugins(config: &mut Config, value: &Value) -> Result<(), Input> {
    let given = text(value)?.split(',').map(str::trim).filter(|one| !one.is_empty());
    config.builtin.cni_bin_dirs = given.map(folder).collect::<Result<_, _>>()?;
    Ok(())
}

fn insecure(config: &mut Config, value: &Value) -> Result<(), Input> {
    let list = list(value, REGISTRIES_MAX)?.iter().map(|node| registry(text(&node.value)?));
    config.builtin.registries.insecure = list.collect::<Result<_, _>>()?;
    Ok(())
}

fn mirrors(config: &mut Config, value: &Value) -> Result<(), Input> {
    let Value::Map(map) = value else {
        return Err(Input::new(value, "a map of registries, each with a list of mirrors"));
    };
    bounded(map.len(), REGISTRIES_MAX)?;
    let mut taken = Vec::new();
    for (name, entry) in map {
        let name = if &**name == "*" { "*".to_owned() } else { registry(name)? };
        let list = list(&entry.node.value, REGISTRY_MIRRORS_MAX).and_then(|list| {
            list.iter().map(|node| mirror(text(&node.value)?)).collect::<Result<Vec<_>, _>>()
        });
        taken.push((name.clone(), list.map_err(|wrong| wrong.at(name))?));
    }
    config.builtin.registries.mirrors = taken;
    Ok(())
}

fn list(value: &Value, most: usize) -> Result<&[Node], Input> {
    let Value::List(list) = value else { return Err(Input::new(value, "a list")) };
    bounded(list.len(), most)?;
    Ok(list)
}

fn bounded(count: usize, most: usize) -> Result<(), Input> {
    if count > most {
        return Err(Input::new(format_args!("{count} entries"), format!("{most} at most")));
    }
    Ok(())
}

/// As image names begin with it: without one, they mean `docker.io`.
fn registry(given: &str) -> Result<String, Input> {
    let expected = "a registry as in image names, such as docker.io or registry.example:5000";
    match ImageName::parse(&format!("{given}/a/b")) {
        Ok(name) if &*name.domain == given => Ok(given.to_owned()),
        _ => Err(Input::quoted(given, expected)),
    }
}

fn mirror(given: &str) -> Result<String, Input> {
    let trimmed = given.trim_end_matches('/');
    let rest = ["https://", "http://"].into_iter().find_map(|it| trimmed.strip_prefix(it));
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._~/:[]".contains(c);
    match rest {
        Some(rest) if !rest.is_empty() && !rest.starts_with('/') && rest.chars().all(is_plain) => {
            Ok(trimmed.to_owned())
        }
        _ => Err(Input::quoted(given, "http:// or https://, a host, perhaps a port and a path")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::edged_section;
    use crate::model::builtin::{Registries, Settings};

    #[test]
    fn every_setting_is_taken() {
        let text = "cniBinDir: '/opt/cni/bin, /usr/lib/cni', cniConfDir: /data/cni/, \
             builtinRuntime: {dataDir: /data/rt, ociProgram: /usr/bin/crun, \
             registryCAFile: /etc/plant.pem, insecureRegistries: ['10.0.0.5:5000'], \
             registryMirrors: {'*': ['http://10.0.0.5:5000/'], \
             docker.io: ['https://mirror.example/hub', 'https://[fe80::1]:5000']}}";
        let expected = Settings {
            data_dir: "/data/rt".to_owned(),
            oci_program: "/usr/bin/crun".to_owned(),
            cni_conf_dir: "/data/cni".to_owned(),
            cni_bin_dirs: ["/opt/cni/bin", "/usr/lib/cni"].map(str::to_owned).into(),
            registries: Registries {
                image_folders: None,
                mirrors: vec![
                    ("*".to_owned(), vec!["http://10.0.0.5:5000".to_owned()]),
                    (
                        "docker.io".to_owned(),
                        ["https://mirror.example/hub", "https://[fe80::1]:5000"]
                            .map(str::to_owned)
                            .into(),
                    ),
                ],
                ca_file: "/etc/plant.pem".to_owned(),
                insecure: vec!["10.0.0.5:5000".to_owned()],
            },
        };
        assert_eq!(edged_section(text).expect("all of it is right").builtin, expected);
        let of = |registry| expected.registries.mirrors_of(registry).collect::<Vec<_>>();
        assert_eq!(of("quay.io"), ["http://10.0.0.5:5000"]);
        assert_eq!(of("docker.io"), ["https://mirror.example/hub", "https://[fe80::1]:5000"]);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let many =
            |count: usize| format!("insecureRegistries: [{}]", vec!["a.b"; count].join(", "));
        let mirrors = |count: usize| {
            format!("registryMirrors: {{a.b: [{}]}}", vec!["http://a"; count].join(", "))
        };
        for (text, want) in [
            ("dataDir: data", "dataDir: got \"data\", expected an absolute path"),
            ("ociProgram: crun", "ociProgram: got \"crun\", expected an absolute path, or nothing"),
            ("insecureRegistries: [a]", "got \"a\", expected a registry as in image names"),
            ("insecureRegistries: ['http://a.b']", "got \"http://a.b\", expected a registry"),
            ("registryMirrors: [a]", "expected a map of registries, each with a list of mirrors"),
            ("registryMirrors: {a.b: 'http://c'}", "a.b: got \"http://c\", expected a list"),
            ("registryMirrors: {a.b: [c.d]}", "a.b: got \"c.d\", expected http:// or https://"),
            ("registryMirrors: {a.b: ['http://u@c']}", "a.b: got \"http://u@c\", expected http"),
            ("registryMirrors: {a.b: ['https:///c']}", "a.b: got \"https:///c\", expected http"),
            (&many(REGISTRIES_MAX + 1), "got 65 entries, expected 64 at most"),
            (&mirrors(REGISTRY_MIRRORS_MAX + 1), "a.b: got 9 entries, expected 8 at most"),
            ("runDir: /run", "builtinRuntime.runDir: got an unknown key"),
        ] {
            let text = format!("builtinRuntime: {{{text}}}");
            let why = edged_section(&text).expect_err(&text).to_string();
            assert!(why.contains(want), "{why}\n{want}");
        }
        for text in [&many(REGISTRIES_MAX), &mirrors(REGISTRY_MIRRORS_MAX)] {
            assert!(edged_section(&format!("builtinRuntime: {{{text}}}")).is_ok());
        }
    }
}
