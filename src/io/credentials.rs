//! The node's registry credentials: Docker's configuration, in the places where a kubelet looks for
//! it (spec section 3.6). Only the first usable file counts.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::limits::KEYRING_BYTES_MAX;
use crate::model::error::{Error, Input};
use crate::model::keyring::{Form, Keyring};

/// The credentials that were read last.
#[derive(Debug)]
pub struct Credentials {
    /// The paths to try, in this order.
    places: Vec<(PathBuf, Form)>,
    reported: Keyring,
    /// Errors of files that could not be used, as they were logged.
    logged: Vec<String>,
}

impl Credentials {
    /// Below the kubelet's root, the working directory, and the home directory.
    pub fn new(root: &Path) -> Self {
        let here = std::env::current_dir().ok();
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
        Self { places: places(root, here, home), reported: Keyring::default(), logged: Vec::new() }
    }

    /// Reads again; returns the credentials if they changed.
    pub fn reload(&mut self) -> Option<Keyring> {
        let mut troubles = Vec::new();
        let mut found = Keyring::default();
        for (path, form) in &self.places {
            match read(path, *form) {
                Ok(Some(keyring)) => {
                    found = keyring;
                    break;
                }
                Ok(None) => {}
                Err(why) => troubles.push(format!("path={}: {why}", path.display())),
            }
        }
        for trouble in troubles.iter().filter(|trouble| !self.logged.contains(trouble)) {
            log::warn!("credentials not used: {trouble}");
        }
        self.logged = troubles;
        (found != self.reported).then(|| {
            self.reported = found.clone();
            found
        })
    }
}

fn places(root: &Path, here: Option<PathBuf>, home: Option<PathBuf>) -> Vec<(PathBuf, Form)> {
    let top = PathBuf::from("/");
    let near = [Some(root.to_owned()), here].into_iter().flatten();
    let docker = home.clone().map(|home| home.join(".docker"));
    let json = near.clone().chain(docker).chain([top.join(".docker")]);
    let json = json.map(|dir| (dir.join("config.json"), Form::Json));
    let cfg = near.chain(home).chain([top]).map(|dir| (dir.join(".dockercfg"), Form::Cfg));
    json.chain(cfg).collect()
}

/// `None`: there is no such file.
fn read(path: &Path, form: Form) -> Result<Option<Keyring>, Error> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    if !is_file {
        let expected = "Docker's configuration";
        return Err(Input::new("something other than a file", expected).into());
    }
    let mut bytes = Vec::new();
    let limit = KEYRING_BYTES_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut bytes)?;
    let mut keyring = Keyring::default();
    keyring.add(&bytes, form)?;
    Ok(Some(keyring))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_are_the_kubelets_in_its_order() {
        let all = places(Path::new("/r"), Some("/w".into()), Some("/h".into()));
        let all: Vec<&str> = all.iter().filter_map(|(path, _)| path.to_str()).collect();
        assert_eq!(
            all,
            [
                "/r/config.json",
                "/w/config.json",
                "/h/.docker/config.json",
                "/.docker/config.json",
                "/r/.dockercfg",
                "/w/.dockercfg",
                "/h/.dockercfg",
                "/.dockercfg",
            ]
        );
    }

    #[test]
    fn the_first_file_that_can_be_used_counts_and_a_change_is_told_once() {
        let dir = std::env::temp_dir().join(format!("edged-credentials-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a folder");
        let places =
            vec![(dir.join("config.json"), Form::Json), (dir.join(".dockercfg"), Form::Cfg)];
        let mut credentials =
            Credentials { places, reported: Keyring::default(), logged: Vec::new() };
        let user = |keyring: &Keyring| {
            keyring.find("r.example/a").next().map(|auth| auth.username.to_string())
        };
        assert_eq!(credentials.reload(), None, "there is none");
        let entry =
            |name: &str| format!(r#"{{"r.example":{{"username":"{name}","password":"p"}}}}"#);
        fs::write(dir.join(".dockercfg"), entry("old")).expect("a file");
        assert_eq!(credentials.reload().as_ref().and_then(user), Some("old".to_owned()));
        assert_eq!(credentials.reload(), None, "it is as it was");
        let json = format!(r#"{{"auths":{}}}"#, entry("new"));
        fs::write(dir.join("config.json"), json).expect("a file");
        assert_eq!(credentials.reload().as_ref().and_then(user), Some("new".to_owned()));
        fs::write(dir.join("config.json"), "{").expect("a file");
        assert_eq!(credentials.reload().as_ref().and_then(user), Some("old".to_owned()));
        assert_eq!(credentials.logged.len(), 1, "what is wrong is logged");
        assert!(!credentials.logged[0].contains("password"), "{:?}", credentials.logged);
        fs::remove_dir_all(&dir).expect("it is ours");
        assert_eq!(credentials.reload(), Some(Keyring::default()));
    }
}
