//! Settings of the built-in runtime: what edgecore.yaml says to `edged runtime`.

use serde::{Deserialize, Serialize};

/// Below `modules.edged`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `builtinRuntime.dataDir`: absolute folder.
    pub data_dir: String,
    /// `builtinRuntime.ociProgram`: absolute path of crun or runc; empty: the one that this machine
    /// can use.
    pub oci_program: String,
    /// `cniConfDir`: absolute folder.
    pub cni_conf_dir: String,
    /// `cniBinDir`: absolute folders, of which the first that exists is taken; none: those of the
    /// distributions.
    pub cni_bin_dirs: Vec<String>,
    /// Where images come from.
    pub registries: Registries,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            data_dir: "/var/lib/edged/rt".to_owned(),
            oci_program: String::new(),
            cni_conf_dir: "/etc/cni/net.d".to_owned(),
            cni_bin_dirs: Vec::new(),
            registries: Registries::default(),
        }
    }
}

/// Registries, their mirrors, and how far they are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registries {
    /// Host and port of the agent's own registry, which serves `imageFolders`; `None`: there is
    /// none. It is asked before all others.
    pub image_folders: Option<String>,
    /// `builtinRuntime.registryMirrors`: by the registry as image names have it, or `*` for those
    /// that are not listed; `http://` or `https://`, host, perhaps port and path.
    pub mirrors: Vec<(String, Vec<String>)>,
    /// `builtinRuntime.registryCAFile`: PEM, beside the CAs of the system; empty: only those.
    pub ca_file: String,
    /// `builtinRuntime.insecureRegistries`: host, perhaps with port, to which plain HTTP is spoken.
    pub insecure: Vec<String>,
}

impl Registries {
    /// The mirrors of a registry, the first to be asked first.
    pub fn mirrors_of(&self, registry: &str) -> impl Iterator<Item = &str> {
        let named = |name: &str| self.mirrors.iter().find(|(listed, _)| listed == name);
        let listed = named(registry).or_else(|| named("*")).map_or(&[][..], |(_, all)| all);
        listed.iter().map(|mirror| &**mirror)
    }
}
