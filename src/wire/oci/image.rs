//! What a runtime reads of an image: its index, its manifest and its configuration (OCI image-spec,
//! and Docker's image manifest version 2, schema 2, which has the same fields).

use std::fmt;

use super::json::{self, Fault};
use super::manifest;
pub use super::manifest::{Content, Document, Entry, Machine, Manifest, Platform, document};
use crate::model::runtime::{DiffId, ImageConfig};

/// An image's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub platform: Platform,
    pub image: ImageConfig,
    /// The lowest first.
    pub layers: Vec<DiffId>,
}

/// Reads an image's configuration.
pub fn config(bytes: &[u8]) -> Result<Config, Fault> {
    let all = json::read(bytes)?;
    let layers = json::layer_ids(&all)?.into_iter().map(|id| DiffId(id.into())).collect();
    json::map(&all, "config")?;
    let config = &all["config"];
    let text = |name| manifest::text(config, name).map(Into::into);
    let image = ImageConfig {
        user: text("User")?,
        env: json::texts(config, "Env")?,
        entrypoint: json::texts(config, "Entrypoint")?,
        cmd: json::texts(config, "Cmd")?,
        working_dir: text("WorkingDir")?,
        volumes: json::map(config, "Volumes")?
            .map_or_else(Vec::new, |volumes| volumes.keys().map(|path| (**path).into()).collect()),
        stop_signal: text("StopSignal")?,
        labels: json::texts_by_name(config, "Labels")?,
    };
    Ok(Config { platform: manifest::platform(&all)?, image, layers })
}

/// What a registry wants to see before it answers: the header `WWW-Authenticate` (RFC 9110 section
/// 11.6.1; the OCI distribution-spec's token server).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    Basic,
    Bearer {
        /// The URL of the token server.
        realm: String,
        service: Option<String>,
        scope: Option<String>,
    },
}

impl Challenge {
    /// `None`: neither of the two.
    pub fn parse(header: &str) -> Option<Self> {
        let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service, mut scope) = (None, None, None);
        let mut rest = rest.trim_start();
        while let Some((key, after)) = rest.split_once('=') {
            let (value, after) = match after.strip_prefix('"') {
                Some(quoted) => {
                    let (value, after) = quoted.split_once('"')?;
                    (value, after.trim_start().strip_prefix(',').unwrap_or_default())
                }
                None => after.split_once(',').unwrap_or((after, "")),
            };
            let slot = match key.trim() {
                "realm" => Some(&mut realm),
                "service" => Some(&mut service),
                "scope" => Some(&mut scope),
                _ => None,
            };
            if let Some(slot) = slot {
                *slot = Some(value.to_owned());
            }
            rest = after.trim_start();
        }
        Some(Self::Bearer { realm: realm?, service, scope })
    }
}

/// The token of a token server's answer. `None`: there is none that can be sent.
pub fn token(bytes: &[u8]) -> Option<String> {
    let answer = json::read(bytes).ok()?;
    let token = match manifest::text(&answer, "token").ok()? {
        "" => manifest::text(&answer, "access_token").ok()?,
        token => token,
    };
    let is_plain = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then(|| token.to_owned())
}

/// The text of a registry's refusal: `code: message` of its first error; empty if it is of another
/// form.
pub fn refusal(bytes: &[u8]) -> String {
    let answer = json::read(bytes).unwrap_or_default();
    let text = |name| manifest::text(&answer["errors"][0], name).unwrap_or_default();
    let (code, message) = (text("code"), text("message"));
    // As the codes are read: MANIFEST_UNKNOWN, with any message.
    let code = code.to_ascii_lowercase().replace('_', " ");
    let text = match message.to_ascii_lowercase() {
        lower if lower.starts_with(&code) => message.to_owned(),
        _ if message.is_empty() => code,
        _ => format!("{code}: {message}"),
    };
    text.chars().filter(|c| !c.is_control()).take(REFUSAL_CHARS_MAX).collect()
}

const REFUSAL_CHARS_MAX: usize = 200;

/// `percent-encoding` of one value in a query (RFC 3986 section 2.1).
pub fn encoded(value: &str) -> String {
    use fmt::Write as _;
    let mut text = String::new();
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").expect("writing to a string cannot fail");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::IMAGE_LAYERS_MAX;

    fn digest(digit: &str) -> String {
        format!("sha256:{}", digit.repeat(64))
    }

    fn entry(digit: &str, platform: &str) -> Entry {
        let mut parts = platform.split('/').map(Box::from);
        let mut next = || parts.next().unwrap_or_default();
        let platform = Platform { os: next(), architecture: next(), variant: next() };
        let is_named = !platform.os.is_empty();
        Entry { digest: digit.into(), size: 1, platform: is_named.then_some(platform) }
    }

    #[test]
    fn the_best_platform_is_chosen() {
        let arm = |variant| Machine { architecture: "arm", variant };
        let arm64 = Machine { architecture: "arm64", variant: 8 };
        let amd64 = Machine { architecture: "amd64", variant: 0 };
        let all = [
            "unknown/unknown",
            "windows/amd64",
            "linux/amd64",
            "linux/amd64/v3",
            "linux/arm/v5",
            "linux/arm/v7",
            "linux/arm/v6",
            "linux/arm64/v8",
            "linux/arm64/v9",
        ];
        for (machine, all, want) in [
            (amd64, &all[..], Some("linux/amd64")),
            (amd64, &["linux/amd64/v1"], Some("linux/amd64/v1")),
            (arm64, &all, Some("linux/arm64/v8")),
            (arm64, &["linux/arm64"], Some("linux/arm64")),
            (arm64, &["linux/arm/v7"], None),
            (arm(7), &all, Some("linux/arm/v7")),
            (arm(6), &all, Some("linux/arm/v6")),
            (arm(5), &all, Some("linux/arm/v5")),
            (arm(5), &["linux/arm/v6", "linux/arm"], Some("linux/arm")),
            (arm(5), &["linux/arm/x"], None),
            (arm(7), &["", "linux/arm/v5"], Some("linux/arm/v5")),
            (arm(7), &["windows/arm", ""], Some("")),
            (arm(7), &[], None),
        ] {
            let entries: Vec<Entry> =
                all.iter().map(|platform| entry(platform, platform)).collect();
            let got = machine.choose(&entries).map(|entry| &*entry.digest);
            assert_eq!(got, want, "{machine} of {all:?}");
        }
        let equal = [entry("a", "linux/amd64"), entry("b", "linux/amd64")];
        assert_eq!(amd64.choose(&equal), Some(&equal[0]), "the first of them");
    }

    #[test]
    fn an_index_and_a_manifest_are_told_apart() {
        let index = format!(
            r#"{{"schemaVersion":2,"manifests":[{{"mediaType":"m","digest":"{}","size":7,
                "platform":{{"os":"linux","architecture":"arm","variant":"v7"}}}}]}}"#,
            digest("a")
        );
        let mut want = entry("", "linux/arm/v7");
        (want.digest, want.size) = (digest("a").into(), 7);
        assert_eq!(document(index.as_bytes()), Ok(Document::Index(vec![want])));
        let of = |config: &str, layer: &str| {
            let text = format!(
                r#"{{"config":{{"digest":"{config}","size":1}},
                     "layers":[{{"digest":"{layer}","size":2}}]}}"#
            );
            document(text.as_bytes())
        };
        let content = |digit, size| Content { digest: digest(digit).into(), size };
        let want = Manifest { config: content("b", 1), layers: vec![content("c", 2)] };
        assert_eq!(of(&digest("b"), &digest("c")), Ok(Document::Manifest(want)));
        assert!(matches!(of("sha256:../x", &digest("c")), Err(Fault::Digest(_))));
        assert!(matches!(of(&digest("b"), "md5:0"), Err(Fault::Digest(_))));
        let old = br#"{"schemaVersion":1,"fsLayers":[],"history":[]}"#;
        assert_eq!(document(old), Err(Fault::Schema));
        assert_eq!(document(b"{}"), Err(Fault::Neither));
        let one = format!(r#"{{"digest":"{}","size":1}}"#, digest("a"));
        let many = vec![one.as_str(); IMAGE_LAYERS_MAX + 1].join(",");
        let many = format!(r#"{{"config":{one},"layers":[{many}]}}"#);
        assert!(matches!(document(many.as_bytes()), Err(Fault::TooMany { .. })));
    }

    #[test]
    fn a_configuration_is_read_as_go_writes_it() {
        let text = format!(
            r#"{{"os":"linux","architecture":"arm","variant":"v7","config":{{"User":"1:2",
                "Env":["A=b"],"Entrypoint":null,"Cmd":["sh"],"Volumes":{{"/v":{{}}}},
                "Labels":null,"StopSignal":"SIGINT","ExposedPorts":{{}}}},
                "rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#,
            digest("a")
        );
        let got = config(text.as_bytes()).expect("a configuration");
        assert_eq!(got.platform.to_string(), "linux/arm/v7");
        assert_eq!((&*got.image.user, &*got.image.stop_signal), ("1:2", "SIGINT"));
        assert_eq!((&*got.image.env, &*got.image.cmd), (&["A=b".into()][..], &["sh".into()][..]));
        assert_eq!((&*got.image.volumes, got.image.labels.len()), (&["/v".into()][..], 0));
        assert_eq!(got.layers, [DiffId(digest("a").into())]);
        let bare = config(br#"{"config":null,"rootfs":{"diff_ids":null}}"#).expect("no more");
        assert_eq!((bare.image, bare.layers.len()), (ImageConfig::default(), 0));
        assert!(config(br#"{"rootfs":{"diff_ids":["sha256:../.."]}}"#).is_err());
        assert!(config(b"{}").is_err());
    }

    #[test]
    fn a_challenge_is_taken_apart() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| {
            let [service, scope] = [service, scope].map(|text| text.map(str::to_owned));
            Some(Challenge::Bearer { realm: realm.to_owned(), service, scope })
        };
        for (header, want) in [
            ("Basic realm=\"x\"", Some(Challenge::Basic)),
            ("basic", Some(Challenge::Basic)),
            (
                "Bearer realm=\"https://a.example/token\",service=\"r\",\
                 scope=\"repository:a:pull,push\"",
                bearer("https://a.example/token", Some("r"), Some("repository:a:pull,push")),
            ),
            (
                "bearer  service=r , realm=https://a.example/t, error=\"e\"",
                bearer("https://a.example/t", Some("r "), None),
            ),
            ("Bearer service=\"r\"", None),
            ("Bearer realm=\"https", None),
            ("Digest realm=\"x\"", None),
            ("", None),
        ] {
            assert_eq!(Challenge::parse(header), want, "{header}");
        }
    }

    #[test]
    fn answers_of_registries_are_read() {
        for (text, want) in [
            (r#"{"token":"a.b-c"}"#, Some("a.b-c")),
            (r#"{"access_token":"d","expires_in":60}"#, Some("d")),
            (r#"{"token":"","access_token":"d"}"#, Some("d")),
            (r#"{"token":"a\r\nX: y"}"#, None),
            ("{}", None),
            ("", None),
        ] {
            assert_eq!(token(text.as_bytes()).as_deref(), want, "{text}");
        }
        for (text, want) in [
            (
                r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#,
                "manifest unknown",
            ),
            (r#"{"errors":[{"code":"DENIED","message":"go\nodes"}]}"#, "denied: goodes"),
            (r#"{"errors":[{"code":"DENIED"}]}"#, "denied"),
            (r#"{"errors":[]}"#, ""),
            ("<html>", ""),
        ] {
            assert_eq!(refusal(text.as_bytes()), want, "{text}");
        }
        assert_eq!(encoded("repository:a/b:pull é"), "repository%3Aa%2Fb%3Apull%20%C3%A9");
    }
}
