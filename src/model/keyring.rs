//! Registry credentials: Docker's configuration, and which entry matches which image (spec section
//! 3.6).
//!
//! Errors in a configuration name only the place, because the values are secret.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::limits::{KEYRING_BYTES_MAX, KEYRING_ENTRIES_MAX};
use crate::model::base64;
use crate::model::cri::Auth;
use crate::model::error::Input;
use crate::model::object::Secret;

/// The entries of one or several configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyring {
    /// By host, port and path, without a scheme.
    entries: BTreeMap<Box<str>, Vec<Auth>>,
    count: usize,
}

/// The two forms of Docker's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `config.json`: entries under `auths`.
    Json,
    /// `.dockercfg`: entries alone.
    Cfg,
}

/// The key for a name on Docker Hub that no other entry matches.
const HUB_KEY: &str = "index.docker.io";

impl Keyring {
    /// Adds the content of a secret. A secret of another type adds nothing.
    pub fn add_secret(&mut self, secret: &Secret) -> Result<(), Input> {
        let (key, form) = match &*secret.r#type {
            "kubernetes.io/dockerconfigjson" => (".dockerconfigjson", Form::Json),
            "kubernetes.io/dockercfg" => (".dockercfg", Form::Cfg),
            _ => return Ok(()),
        };
        let Some(bytes) = secret.data.get(key).map(AsRef::as_ref) else { return Ok(()) };
        self.add(bytes, form).map_err(|wrong| {
            let metadata = &secret.metadata;
            wrong.at(format_args!("secret {}/{}: {key}", metadata.namespace, metadata.name))
        })
    }

    /// Adds a whole configuration, or nothing of it.
    pub fn add(&mut self, bytes: &[u8], form: Form) -> Result<(), Input> {
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.len() > KEYRING_BYTES_MAX {
            let got = format_args!("{} bytes", bytes.len());
            return Err(Input::new(got, format!("{KEYRING_BYTES_MAX} at most")));
        }
        let value: Value = serde_json::from_slice(bytes).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            Input::new(format_args!("no JSON, line {line} column {column}"), "")
        })?;
        let mut whole = object(&value, "the whole")?;
        let empty = Map::new();
        if form == Form::Json {
            whole = match whole.get("auths") {
                None | Some(Value::Null) => &empty,
                Some(auths) => object(auths, "auths")?,
            };
        }
        let mut new = Vec::new();
        for (registry, entry) in whole {
            let auth = read(entry).map_err(|wrong| wrong.at(cut(registry)))?;
            new.push((key_of(registry), auth));
        }
        self.count += new.len();
        if self.count > KEYRING_ENTRIES_MAX {
            self.count -= new.len();
            let got = format_args!("more than {KEYRING_ENTRIES_MAX} entries");
            return Err(Input::new(got, "fewer"));
        }
        for (key, auth) in new {
            self.entries.entry(key).or_default().push(auth);
        }
        Ok(())
    }

    /// All entries that match a repository (`docker.io/library/busybox`), the longest path first;
    /// if there is none, and the repository is on Docker Hub, those of Docker Hub's old name.
    pub fn find(&self, repository: &str) -> impl Iterator<Item = &Auth> {
        let mut found =
            self.entries.iter().rev().filter(|(key, _)| matches(key, repository)).peekable();
        let hub = repository.starts_with("docker.io/") && found.peek().is_none();
        let hub = hub.then(|| self.entries.get(HUB_KEY)).flatten();
        found.map(|(_, auths)| auths).chain(hub).flatten()
    }
}

/// The credentials of a secret in the form that `EdgeCore` expects of jobs: username and password
/// alone, for whatever registry. `None`: it has another form.
#[cfg(feature = "node-jobs")]
pub fn flat(secret: &Secret) -> Option<Auth> {
    let bytes = secret.data.get(".dockerconfigjson")?.as_ref();
    if bytes.len() > KEYRING_BYTES_MAX {
        return None;
    }
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let map = value.as_object().filter(|map| !map.contains_key("auths"))?;
    let (username, password) = (map.get("username")?.as_str()?, map.get("password")?.as_str()?);
    Some(Auth { username: username.into(), password: password.into() })
}

fn object<'a>(value: &'a Value, what: &str) -> Result<&'a Map<String, Value>, Input> {
    value.as_object().ok_or_else(|| Input::new(kind(value), "a map").at(what))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

/// The beginning of a registry's name, enough to recognise it.
fn cut(registry: &str) -> String {
    format!("{:?}", registry.chars().take(64).collect::<String>())
}

/// Username and password, or both in `auth`, which takes precedence.
fn read(entry: &Value) -> Result<Auth, Input> {
    let entry = object(entry, "the entry")?;
    let text = |name: &str| match entry.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(&**text),
        Some(other) => Err(Input::new(kind(other), "text").at(name)),
    };
    let (mut username, mut password) = (text("username")?.to_owned(), text("password")?.to_owned());
    let auth = text("auth")?;
    if !auth.is_empty() {
        let bytes = base64::decode(auth)
            .ok_or_else(|| Input::new("text that is not base64", "").at("auth"))?;
        let both = String::from_utf8_lossy(&bytes).into_owned();
        let (name, word) = both.split_once(':').ok_or_else(|| {
            let expected = "to be formatted as base64(username:password)";
            Input::new("text without a colon", expected).at("auth")
        })?;
        (username, password) = (name.to_owned(), word.to_owned());
    }
    Ok(Auth { username: username.into(), password: password.into() })
}

/// `https://index.docker.io/v1/` → `index.docker.io`
fn key_of(registry: &str) -> Box<str> {
    let rest = registry.strip_prefix("https://").or_else(|| registry.strip_prefix("http://"));
    let rest = rest.unwrap_or(registry);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let host = host.rsplit('@').next().unwrap_or_default();
    let versioned = path.starts_with("/v1/") || path.starts_with("/v2/");
    let path = if versioned { &path[3..] } else { path };
    format!("{host}{}", if path == "/" { "" } else { path }).into()
}

/// Whether an entry matches a repository: the same port, the same number of labels, each of which
/// may be a pattern, and the entry's path as a prefix of the repository's.
fn matches(key: &str, repository: &str) -> bool {
    let parts = |text: &str| -> (String, String, String) {
        let (host, path) = text.find('/').map_or((text, ""), |at| text.split_at(at));
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => {
                // The brackets of an IPv6 address are not a pattern.
                let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
                (bare.unwrap_or(host), port)
            }
            _ => (host, ""),
        };
        (host.to_owned(), port.to_owned(), path.to_owned())
    };
    let ((wanted, wanted_port, wanted_path), (host, port, path)) = (parts(key), parts(repository));
    let (wanted, host): (Vec<&str>, Vec<&str>) =
        (wanted.split('.').collect(), host.split('.').collect());
    wanted_port == port
        && wanted.len() == host.len()
        && path.starts_with(&wanted_path)
        && wanted.iter().zip(&host).all(|(pattern, label)| is_like(pattern, label))
}

/// `*`, `[a-z]`, `[^a]` and `\` as in file names. An invalid pattern matches nothing.
fn is_like(pattern: &str, label: &str) -> bool {
    let (pattern, label): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), label.chars().collect());
    // For each position in the pattern: which prefixes of the label it matches so far.
    let mut fits = vec![false; label.len() + 1];
    fits[0] = true;
    let mut at = 0;
    while at < pattern.len() {
        let mut next = vec![false; fits.len()];
        let step = if pattern[at] == '*' {
            let mut any = false;
            for (end, fit) in fits.iter().enumerate() {
                any |= fit;
                next[end] = any;
            }
            1
        } else {
            let Some((char_set, length)) = char_set(&pattern[at..]) else { return false };
            for (end, c) in label.iter().enumerate() {
                next[end + 1] = fits[end] && char_set.has(*c);
            }
            length
        };
        fits = next;
        at += step;
    }
    fits[label.len()]
}

/// The set of characters that one character of the pattern matches.
struct CharSet {
    ranges: Vec<(char, char)>,
    not: bool,
}

impl CharSet {
    fn has(&self, c: char) -> bool {
        self.ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != self.not
    }
}

/// The first element of the pattern and its length; `None`: it is invalid.
fn char_set(pattern: &[char]) -> Option<(CharSet, usize)> {
    let exactly = |c: char| CharSet { ranges: vec![(c, c)], not: false };
    match pattern[0] {
        '\\' => Some((exactly(*pattern.get(1)?), 2)),
        '[' => {
            let not = pattern.get(1) == Some(&'^');
            let mut at = 1 + usize::from(not);
            let mut ranges = Vec::new();
            let letter = |at: &mut usize| {
                if pattern.get(*at) == Some(&'\\') {
                    *at += 1;
                }
                let c = *pattern.get(*at)?;
                *at += 1;
                Some(c)
            };
            while ranges.is_empty() || *pattern.get(at)? != ']' {
                let low = letter(&mut at).filter(|c| !matches!(c, '-' | ']'))?;
                let mut high = low;
                if pattern.get(at) == Some(&'-') {
                    at += 1;
                    high = letter(&mut at)?;
                }
                ranges.push((low, high));
            }
            Some((CharSet { ranges, not }, at + 1))
        }
        c => Some((exactly(c), 1)),
    }
}

#[cfg(test)]
mod tests;
