//! The common parts of commands that stream from or to a container: which pod and container are
//! meant, the paths of requests, and exit codes.
//!
//! The exit code of `exec` and `attach` is that of the command; 1 where it was refused, 255 where
//! the connection broke before the code came, 2 for a wrong command line.

use std::fmt::Write as _;
use std::io::Write;

use lexopt::prelude::*;
use serde_json::Value;

use super::Error;
use super::list::Api;
use crate::io::client::session::End;
use crate::io::client::{Agent, Answer, Connection, Opened};
use crate::wire::spdy::exec::{self, Outcome, Wanted};

/// The exit code where the connection broke and that of the command is not known.
pub(super) const LOST: u8 = 255;

/// The pod and container that the options name.
#[derive(Debug, Default)]
pub(super) struct Target {
    /// `POD` or `NAMESPACE/POD`.
    pub pod: Option<String>,
    pub namespace: Option<String>,
    pub container: Option<String>,
    server: Option<String>,
    home: Option<String>,
}

/// One of the options with a value that all these commands have.
#[derive(Clone, Copy)]
pub(super) enum Common {
    Namespace,
    Container,
    Server,
    Home,
}

impl Common {
    pub(super) fn of(arg: &lexopt::Arg<'_>, api: Api) -> Option<Self> {
        match arg {
            Short('n') | Long("namespace") => Some(Self::Namespace),
            Short('c') | Long("container") => Some(Self::Container),
            Long("server") => Some(Self::Server),
            Long(flag) if *flag == api.home => Some(Self::Home),
            _ => None,
        }
    }
}

impl Target {
    pub(super) fn set(&mut self, option: Common, value: String) {
        let field = match option {
            Common::Namespace => &mut self.namespace,
            Common::Container => &mut self.container,
            Common::Server => &mut self.server,
            Common::Home => &mut self.home,
        };
        *field = Some(value);
    }

    /// The server to connect to.
    pub(super) fn agent(&self, api: Api) -> Result<Agent, Error> {
        (api.at)(self.server.as_deref(), self.home.as_deref())
    }

    /// The named pod. Without a namespace it is the one of this name, or that in `default`.
    pub(super) fn find(&self, agent: &Agent, api: Api) -> Result<Pod, Error> {
        let body = agent.get(api.pods)?;
        let list: Value = serde_json::from_slice(&body).map_err(|error| {
            Error::Failed(format!("got an answer that is not a list of pods: {error}"))
        })?;
        self.select(list["items"].as_array().map_or(&[][..], Vec::as_slice))
    }

    fn select(&self, pods: &[Value]) -> Result<Pod, Error> {
        let (namespace, name) = self.key()?;
        let named = |pod: &&Value| text(&pod["metadata"]["name"]) == name;
        let found: Vec<&Value> = pods.iter().filter(named).collect();
        let of = |namespace: &str| {
            let is_in = |pod: &&&Value| text(&pod["metadata"]["namespace"]) == namespace;
            // While a pod is replaced there are two of a name; the server takes the newer one.
            found.iter().filter(is_in).max_by_key(|pod| text(&pod["metadata"]["creationTimestamp"]))
        };
        let several =
            super::list::several(found.iter().map(|pod| text(&pod["metadata"]["namespace"])));
        let pod = match namespace {
            Some(namespace) => of(namespace),
            None if several => of("default"),
            None => found.first().and_then(|pod| of(text(&pod["metadata"]["namespace"]))),
        };
        match pod {
            Some(pod) => Ok(Pod((**pod).clone())),
            None if several && namespace.is_none() => {
                let why =
                    format!("there are pods {name:?} in several namespaces: give one with -n");
                Err(Error::Failed(why))
            }
            None => Err(Error::Failed(format!("pods {name:?} not found"))),
        }
    }

    /// Namespace and name.
    fn key(&self) -> Result<(Option<&str>, &str), Error> {
        let usage = |why: String| Err(Error::Usage(why));
        let Some(pod) = &self.pod else { return usage("expected the name of a pod".to_owned()) };
        let given = self.namespace.as_deref();
        match pod.split_once('/') {
            None => Ok((given, pod)),
            // As kubectl takes it.
            Some(("pod" | "pods" | "po", name)) => Ok((given, name)),
            Some((namespace, name)) if given.is_none_or(|given| given == namespace) => {
                Ok((Some(namespace), name))
            }
            Some(_) => usage(format!("got {pod:?} and another namespace by -n, expected one")),
        }
    }
}

/// core/v1 `Pod`
#[derive(Clone, Debug)]
pub(super) struct Pod(pub Value);

impl Pod {
    pub(super) fn namespace(&self) -> &str {
        text(&self.0["metadata"]["namespace"])
    }

    pub(super) fn name(&self) -> &str {
        text(&self.0["metadata"]["name"])
    }

    pub(super) fn phase(&self) -> &str {
        text(&self.0["status"]["phase"])
    }

    /// The containers of one list of the spec.
    pub(super) fn containers(&self, list: &str) -> &[Value] {
        self.0["spec"][list].as_array().map_or(&[], Vec::as_slice)
    }

    /// The container of this name, in any list.
    fn container(&self, name: &str) -> Option<&Value> {
        let all = LISTS.iter().flat_map(|(list, _)| self.containers(list));
        all.into_iter().find(|container| container["name"] == name)
    }

    /// The container that is meant. Which one was chosen is printed where there is a choice.
    pub(super) fn choose(
        &self,
        wanted: Option<&str>,
        trouble: &mut dyn Write,
    ) -> Result<&Value, Error> {
        let name = self.name();
        if let Some(wanted) = wanted {
            let none = || Error::Failed(format!("container {wanted} not found in pod {name}"));
            return self.container(wanted).ok_or_else(none);
        }
        let annotations = &self.0["metadata"]["annotations"];
        let annotated = text(&annotations["kubectl.kubernetes.io/default-container"]);
        if let Some(container) = self.container(annotated) {
            return Ok(container);
        }
        let mut names = Vec::new();
        for (list, what) in LISTS {
            let of_list = self.containers(list).iter();
            names.extend(of_list.map(|it| format!("{}{what}", text(&it["name"]))));
        }
        let first = self.containers("containers").first();
        let first = first.ok_or_else(|| Error::Failed(format!("pod {name} has no container")))?;
        if names.len() > 1 {
            let (first, names) = (text(&first["name"]), names.join(", "));
            let line = format!("Defaulted container {first:?} out of: {names}");
            // Nobody may read it.
            let _ = writeln!(trouble, "{}", crate::io::log::printable(&line));
        }
        Ok(first)
    }

    /// `/exec/NAMESPACE/POD/CONTAINER` and the like.
    pub(super) fn path(
        &self,
        verb: &str,
        container: Option<&str>,
        query: &[(&str, &str)],
    ) -> String {
        let mut path = format!("/{verb}/{}/{}", escaped(self.namespace()), escaped(self.name()));
        if let Some(container) = container {
            path.extend(["/", &escaped(container)]);
        }
        for (at, (key, value)) in query.iter().enumerate() {
            path.push(if at == 0 { '?' } else { '&' });
            path.extend([key, "=", &escaped(value)]);
        }
        path
    }
}

/// The lists of containers in a spec, in kubectl's order, with its words for them.
const LISTS: [(&str, &str); 3] =
    [("containers", ""), ("ephemeralContainers", " (ephem)"), ("initContainers", " (init)")];

/// The query of `exec` and `attach`: only what is connected is in it.
pub(super) fn query(wanted: Wanted) -> Vec<(&'static str, &'static str)> {
    let Wanted { stdin, stdout, stderr, tty } = wanted;
    let all = [("input", stdin), ("output", stdout), ("error", stderr), ("tty", tty)];
    all.into_iter().filter(|(_, is_wanted)| *is_wanted).map(|(key, _)| (key, "1")).collect()
}

/// Opens a connection that speaks this protocol of SPDY streams.
pub(super) fn upgrade(agent: &Agent, path: &str, protocol: &str) -> Result<Connection, Error> {
    let head = format!(
        "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {protocol}\r\n\
         Content-Length: 0\r\n"
    );
    match agent.open("POST", path, &head, 101)? {
        Opened::Open(connection) => Ok(connection),
        Opened::Refused(answer) => {
            Err(Error::Failed(format!("unable to upgrade connection: {}", refusal(&answer))))
        }
    }
}

/// The same for a command in a container.
pub(super) fn upgrade_exec(agent: &Agent, path: &str) -> Result<Connection, Error> {
    upgrade(agent, path, exec::PROTOCOL)
}

/// Why a server refused a request.
pub(super) fn refusal(answer: &Answer) -> String {
    let why = answer.why();
    if why.is_empty() { format!("got status {}", answer.status) } else { why }
}

/// The exit code of a session.
pub(super) fn exit_code(end: End, trouble: &mut dyn Write) -> Result<u8, Error> {
    let mut say = |line: &str| {
        // If this cannot be printed either, only the exit code remains.
        let _ = writeln!(trouble, "{}", crate::io::log::printable(line));
    };
    match end {
        End::Outcome(Outcome::Exited(0)) => Ok(0),
        End::Outcome(Outcome::Exited(code)) => {
            say(&Outcome::Exited(code).to_string());
            Ok(u8::try_from(code).ok().filter(|code| *code > 0).unwrap_or(1))
        }
        End::Outcome(Outcome::Failed(why)) => Err(Error::Failed(why)),
        End::Outcome(Outcome::Lost) => {
            say(&format!("error: {}", Outcome::Lost));
            Ok(LOST)
        }
        End::Broken(why) => {
            say(&format!("error: lost connection to the pod: {why}"));
            Ok(LOST)
        }
        End::Input(error) => Err(Error::Failed(format!("standard input: {error}"))),
        End::Signal(signal) => Ok(128_u8.saturating_add(signal as u8)),
    }
}

/// A text in a path or a query, percent-encoded.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("memory takes what is written");
        }
    }
    out
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn target(pod: &str, namespace: Option<&str>) -> Target {
        let namespace = namespace.map(str::to_owned);
        Target { pod: Some(pod.to_owned()), namespace, ..Target::default() }
    }

    fn pod(namespace: &str, name: &str, uid: &str, at: &str) -> Value {
        let metadata =
            json!({"namespace": namespace, "name": name, "uid": uid, "creationTimestamp": at});
        json!({"metadata": metadata})
    }

    #[test]
    fn a_pod_is_found_by_its_name_and_namespace() {
        let pods = [
            pod("default", "web", "1", "2025-01-01T00:00:00Z"),
            pod("shop", "web", "3", "2025-01-02T00:00:00Z"),
            pod("shop", "web", "2", "2025-01-01T00:00:00Z"),
            pod("a", "db", "4", ""),
            pod("b", "db", "5", ""),
            pod("a", "one", "6", ""),
        ];
        for (name, namespace, expected) in [
            ("web", None, Ok("1")),
            // The newer one of two.
            ("web", Some("shop"), Ok("3")),
            ("shop/web", None, Ok("3")),
            ("shop/web", Some("shop"), Ok("3")),
            ("pod/web", Some("shop"), Ok("3")),
            ("one", None, Ok("6")),
            ("one", Some("b"), Err("pods \"one\" not found")),
            ("none", None, Err("pods \"none\" not found")),
            ("db", None, Err("there are pods \"db\" in several namespaces: give one with -n")),
            ("shop/web", Some("a"), Err("got \"shop/web\" and another namespace by -n")),
        ] {
            match (target(name, namespace).select(&pods), expected) {
                (Ok(Pod(got)), expected) => assert_eq!(Ok(text(&got["metadata"]["uid"])), expected),
                (Err(Error::Failed(why) | Error::Usage(why)), Err(expected)) => {
                    assert!(why.starts_with(expected), "{why}");
                }
                (got, _) => panic!("{name} {namespace:?}: {got:?}"),
            }
        }
        assert!(matches!(Target::default().select(&pods), Err(Error::Usage(_))));
    }

    #[test]
    fn the_container_is_the_named_the_annotated_or_the_first() {
        let mut pod = Pod(json!({
            "metadata": {"namespace": "d", "name": "web"},
            "spec": {
                "containers": [{"name": "a"}, {"name": "b"}],
                "initContainers": [{"name": "i"}],
                "ephemeralContainers": [{"name": "e"}],
            },
        }));
        let chosen = |pod: &Pod, wanted: Option<&str>| {
            let mut trouble = Vec::new();
            let name = pod.choose(wanted, &mut trouble).map(|it| text(&it["name"]).to_owned());
            (name.map_err(|error| format!("{error:?}")), String::from_utf8(trouble).expect("text"))
        };
        let line = "Defaulted container \"a\" out of: a, b, e (ephem), i (init)\n";
        assert_eq!(chosen(&pod, None), (Ok("a".to_owned()), line.to_owned()));
        assert_eq!(chosen(&pod, Some("i")), (Ok("i".to_owned()), String::new()));
        let none = "Failed(\"container x not found in pod web\")".to_owned();
        assert_eq!(chosen(&pod, Some("x")), (Err(none), String::new()));
        let key = "kubectl.kubernetes.io/default-container";
        pod.0["metadata"]["annotations"] = json!({key: "b"});
        assert_eq!(chosen(&pod, None), (Ok("b".to_owned()), String::new()));
        // An annotation that names none is ignored, as by kubectl.
        pod.0["metadata"]["annotations"] = json!({key: "x"});
        assert_eq!(chosen(&pod, None).0, Ok("a".to_owned()));
        let single = Pod(json!({"spec": {"containers": [{"name": "a"}]}}));
        assert_eq!(chosen(&single, None), (Ok("a".to_owned()), String::new()));
        assert!(chosen(&Pod(json!({})), None).0.is_err());
    }

    #[test]
    fn paths_are_the_kubelets() {
        let pod = Pod(json!({"metadata": {"namespace": "d", "name": "web"}}));
        let wanted = Wanted { stdin: true, stdout: true, stderr: false, tty: true };
        let mut all = vec![("command", "sh -c"), ("command", "a&b=é/\u{1b}")];
        all.extend(query(wanted));
        assert_eq!(
            pod.path("exec", Some("a"), &all),
            "/exec/d/web/a?command=sh%20-c&command=a%26b%3D%C3%A9%2F%1B&input=1&output=1&tty=1"
        );
        assert_eq!(pod.path("portForward", None, &[]), "/portForward/d/web");
    }

    #[test]
    fn exit_codes_are_those_of_the_command() {
        let code = |end: End| {
            let mut trouble = Vec::new();
            let code = exit_code(end, &mut trouble).map_err(|error| format!("{error:?}"));
            (code, String::from_utf8(trouble).expect("text"))
        };
        let exited = |code: i32| End::Outcome(Outcome::Exited(code));
        assert_eq!(code(exited(0)), (Ok(0), String::new()));
        let line = "command terminated with exit code 137\n".to_owned();
        assert_eq!(code(exited(137)), (Ok(137), line));
        // What does not fit into a byte is not a success.
        assert_eq!((code(exited(256)).0, code(exited(-1)).0), (Ok(1), Ok(1)));
        assert_eq!(code(End::Outcome(Outcome::Lost)).0, Ok(LOST));
        assert_eq!(code(End::Broken("why".to_owned())).0, Ok(LOST));
        assert_eq!(code(End::Signal(15)).0, Ok(143));
        let failed = code(End::Outcome(Outcome::Failed("why".to_owned())));
        assert_eq!(failed.0, Err("Failed(\"why\")".to_owned()));
    }
}
