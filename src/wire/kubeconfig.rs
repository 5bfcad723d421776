//! Reads a kubeconfig: the address of the API server and our credentials; the current context, as
//! far as a program without plugins can use it.

use serde_json::{Map, Value as Json};

use super::tree;
use crate::model::base64;
use crate::model::error::Refusal;
use crate::model::tree::fields;

/// The current context.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// `https://host:port`
    pub server: String,
    /// Another name to expect in its certificate; empty: the host's.
    pub tls_name: String,
    /// PEM, or the path of its file.
    pub authority: Material,
    /// PEM, or the path of its file.
    pub certificate: Material,
    /// PEM, or the path of its file.
    pub key: Material,
    /// A bearer token, or the path of its file.
    pub token: Material,
}

/// A text, or the path of its file.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Material {
    /// Neither.
    #[default]
    None,
    /// The text itself.
    Inline(String),
    /// A file.
    File(String),
}

/// Keys and tokens are secret.
impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Inline(text) => write!(f, "{} bytes", text.len()),
            Self::File(path) => f.write_str(path),
        }
    }
}

pub fn parse(bytes: &[u8]) -> Result<Cluster, Refusal> {
    let refusal = |why: String| Refusal { line: 0, column: 0, why };
    let document = tree::parse(bytes)?.into_iter().next();
    let document = document.ok_or_else(|| refusal("got an empty file".to_owned()))?;
    let config: Config = tree::read(&document, &[]).map_err(|fault| fault.refusal(bytes))?;
    let missing = |what: &str, name: &str| refusal(format!("got no {what} {name:?}, expected one"));
    let name = &config.current_context;
    let context = config.contexts.into_iter().find(|it| it.name == *name);
    let context = context.ok_or_else(|| missing("context", name))?.context;
    let cluster = config.clusters.into_iter().find(|it| it.name == context.cluster);
    let cluster = cluster.ok_or_else(|| missing("cluster", &context.cluster))?.cluster;
    let user = config.users.into_iter().find(|it| it.name == context.user);
    let user = user.ok_or_else(|| missing("user", &context.user))?.user;
    if cluster.insecure_skip_tls_verify {
        return Err(refusal("insecure-skip-tls-verify: expected a certificate-authority".into()));
    }
    if user.exec.is_some() || user.auth_provider.is_some() {
        return Err(refusal("got a user with a plugin, expected a token or a certificate".into()));
    }
    let text = |data: &str, file: String, what: &str| {
        if data.is_empty() {
            return Ok(if file.is_empty() { Material::None } else { Material::File(file) });
        }
        let bytes = base64::decode(data).and_then(|bytes| String::from_utf8(bytes).ok());
        bytes.map(Material::Inline).ok_or_else(|| refusal(format!("{what}: expected base64")))
    };
    Ok(Cluster {
        server: cluster.url,
        tls_name: cluster.tls_server_name,
        authority: text(
            &cluster.certificate_authority_data,
            cluster.certificate_authority,
            "certificate-authority-data",
        )?,
        certificate: text(
            &user.client_certificate_data,
            user.client_certificate,
            "client-certificate-data",
        )?,
        key: text(&user.client_key_data, user.client_key, "client-key-data")?,
        token: match (user.token.is_empty(), user.token_file.is_empty()) {
            (false, _) => Material::Inline(user.token),
            (true, false) => Material::File(user.token_file),
            (true, true) => Material::None,
        },
    })
}

#[derive(Default)]
struct Config {
    current_context: String,
    contexts: Vec<NamedContext>,
    clusters: Vec<NamedCluster>,
    users: Vec<NamedUser>,
}

fields!(Config {
    "current-context" => current_context,
    "contexts" => contexts,
    "clusters" => clusters,
    "users" => users,
});

#[derive(Default)]
struct NamedContext {
    name: String,
    context: Context,
}

fields!(NamedContext {
    "name" => name,
    "context" => context,
});

#[derive(Default)]
struct Context {
    cluster: String,
    user: String,
}

fields!(Context {
    "cluster" => cluster,
    "user" => user,
});

#[derive(Default)]
struct NamedCluster {
    name: String,
    cluster: Server,
}

fields!(NamedCluster {
    "name" => name,
    "cluster" => cluster,
});

#[derive(Default)]
struct Server {
    url: String,
    tls_server_name: String,
    certificate_authority: String,
    certificate_authority_data: String,
    insecure_skip_tls_verify: bool,
}

fields!(Server {
    "server" => url,
    "tls-server-name" => tls_server_name,
    "certificate-authority" => certificate_authority,
    "certificate-authority-data" => certificate_authority_data,
    "insecure-skip-tls-verify" => insecure_skip_tls_verify,
});

#[derive(Default)]
struct NamedUser {
    name: String,
    user: User,
}

fields!(NamedUser {
    "name" => name,
    "user" => user,
});

#[derive(Default)]
struct User {
    token: String,
    token_file: String,
    client_certificate: String,
    client_certificate_data: String,
    client_key: String,
    client_key_data: String,
    exec: Option<Map<String, Json>>,
    auth_provider: Option<Map<String, Json>>,
}

fields!(User {
    "token" => token,
    "tokenFile" => token_file,
    "client-certificate" => client_certificate,
    "client-certificate-data" => client_certificate_data,
    "client-key" => client_key,
    "client-key-data" => client_key_data,
    "exec" => exec,
    "auth-provider" => auth_provider,
});

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
apiVersion: v1
kind: Config
current-context: me@here
contexts:
- name: other
  context: {cluster: x, user: z}
- name: me@here
  context: {cluster: here, user: me, namespace: a}
clusters:
- name: here
  cluster: {server: 'https://192.0.2.1:6443', certificate-authority-data: 'YWJj'}
users:
- name: me
  user: {tokenFile: /a/token, client-certificate: /a/crt, client-key-data: 'a2V5'}
";

    #[test]
    fn the_current_context_is_taken() {
        let cluster = parse(TEXT.as_bytes()).expect("a kubeconfig");
        assert_eq!(cluster.server, "https://192.0.2.1:6443");
        assert_eq!(cluster.authority, Material::Inline("abc".to_owned()));
        assert_eq!(cluster.certificate, Material::File("/a/crt".to_owned()));
        assert_eq!(cluster.key, Material::Inline("key".to_owned()));
        assert_eq!(cluster.token, Material::File("/a/token".to_owned()));
        assert!(!format!("{cluster:?}").contains("key\""), "{cluster:?}");
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (from, to, expected) in [
            ("me@here\n", "none\n", "got no context \"none\""),
            ("user: me,", "user: who,", "got no user \"who\""),
            ("'YWJj'", "'?'", "certificate-authority-data: expected base64"),
            ("tokenFile: /a/token", "exec: {command: x}", "got a user with a plugin"),
            ("server: 'https", "insecure-skip-tls-verify: true, server: 'https", "insecure-skip"),
            ("current-context: me", "current-context: [me", "users"),
        ] {
            let why = parse(TEXT.replacen(from, to, 1).as_bytes()).map_err(|it| it.to_string());
            if expected == "users" {
                why.expect_err("no YAML");
            } else {
                let why = why.expect_err(expected);
                assert!(why.contains(expected), "{why}");
            }
        }
    }
}
