//! Admission of probes and hooks: validation in Kubernetes' own words, and whether this build
//! supports them.

use core::net::IpAddr;

use super::Findings;
use crate::model::names::cut;
use crate::model::pod::Container;
use crate::model::probe::{Handler, HttpGet, Port, Probe};

/// The place of a handler, which decides which kinds are allowed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Probe,
    Hook,
}

impl Findings {
    /// Unsupported and unknown fields.
    pub(super) fn probe_fields(&mut self, path: &str, container: &Container) {
        for (name, probe) in probes(container) {
            self.handler_fields(&format!("{path}.{name}"), &probe.handler);
        }
        let Some(lifecycle) = &container.lifecycle else { return };
        let path = format!("{path}.lifecycle");
        for (name, value) in &lifecycle.rest {
            let path = format!("{path}.{}", cut(name));
            // Of Kubernetes 1.33; the image's own is used.
            if name == "stopSignal" && !value.is_null() {
                self.features.push(path);
            } else if name != "stopSignal" {
                self.unknown.push(path);
            }
        }
        for (name, handler) in hooks(container) {
            self.handler_fields(&format!("{path}.{name}"), handler);
        }
    }

    /// HTTPS if TLS is not built in, and hosts by name: the agent does not look up names.
    fn handler_fields(&mut self, path: &str, handler: &Handler) {
        self.unknown(path, &handler.rest);
        if !cfg!(feature = "probes") {
            self.features.push(path.to_owned());
            return;
        }
        let hosts = [
            ("httpGet", handler.http_get.as_ref().map(|get| &get.host)),
            ("tcpSocket", handler.tcp_socket.as_ref().map(|tcp| &tcp.host)),
        ];
        for (name, host) in hosts {
            let Some(host) = host.filter(|host| !host.is_empty() && !is_address(host)) else {
                continue;
            };
            let got = cut(host);
            let expected = "expected an address or localhost";
            self.features.push(format!("{path}.{name}.host (got {got:?}, {expected})"));
        }
        let tls = handler.http_get.as_ref().is_some_and(|get| get.scheme == "HTTPS");
        if tls && !cfg!(feature = "probe-https") {
            self.features.push(format!("{path}.httpGet.scheme (got \"HTTPS\", expected HTTP)"));
        }
    }

    pub(super) fn probes(&mut self, path: &str, container: &Container) {
        for (name, probe) in probes(container) {
            self.probe(&format!("{path}.{name}"), name, probe);
        }
        for (name, hook) in hooks(container) {
            self.handler(&format!("{path}.lifecycle.{name}"), hook, Place::Hook);
        }
    }

    /// Init containers that are not sidecars have neither probes nor hooks.
    pub(super) fn no_probes(&mut self, path: &str, container: &Container) {
        for (name, _) in probes(container) {
            self.problem(&format!("{path}.{name}"), PLAIN_INIT);
        }
        if container.lifecycle.is_some() {
            self.problem(&format!("{path}.lifecycle"), PLAIN_INIT);
        }
    }

    fn probe(&mut self, path: &str, name: &str, probe: &Probe) {
        self.handler(path, &probe.handler, Place::Probe);
        for (field, value) in [
            ("initialDelaySeconds", probe.initial_delay_seconds),
            ("timeoutSeconds", probe.timeout_seconds),
            ("periodSeconds", probe.period_seconds),
            ("successThreshold", probe.success_threshold),
            ("failureThreshold", probe.failure_threshold),
        ] {
            if value < 0 {
                let expected = "must be greater than or equal to 0";
                self.invalid(&format!("{path}.{field}"), value, expected);
            }
        }
        let readiness = name == "readinessProbe";
        if !readiness && probe.success_threshold > 1 {
            self.invalid(&format!("{path}.successThreshold"), probe.success_threshold, "must be 1");
        }
        let path = format!("{path}.terminationGracePeriodSeconds");
        match probe.termination_grace_period_seconds {
            Some(value) if readiness => {
                self.invalid(&path, value, "must not be set for readinessProbes");
            }
            Some(value) if value <= 0 => self.invalid(&path, value, "must be greater than 0"),
            Some(_) | None => {}
        }
    }

    fn handler(&mut self, path: &str, handler: &Handler, place: Place) {
        let mut kinds = Kinds { path, count: 0 };
        if let Some(exec) = &handler.exec
            && kinds.begin("exec", true, self)
            && exec.command.is_empty()
        {
            self.problem(&format!("{path}.exec.command"), "Required value");
        }
        if let Some(get) = &handler.http_get
            && kinds.begin("httpGet", true, self)
        {
            self.http_get(&format!("{path}.httpGet"), get, place);
        }
        if let Some(tcp) = &handler.tcp_socket
            && kinds.begin("tcpSocket", true, self)
        {
            self.port(&format!("{path}.tcpSocket.port"), &tcp.port);
        }
        if let Some(grpc) = &handler.grpc
            && kinds.begin("grpc", place == Place::Probe, self)
        {
            self.port(&format!("{path}.grpc.port"), &Port::Number(grpc.port.into()));
        }
        if let Some(sleep) = &handler.sleep
            && kinds.begin("sleep", place == Place::Hook, self)
            && sleep.seconds < 0
        {
            let expected = "must be greater than or equal to 0";
            self.invalid(&format!("{path}.sleep.seconds"), sleep.seconds, expected);
        }
        if kinds.count == 0 {
            self.problem(path, "Required value: must specify a handler type");
        }
    }

    fn http_get(&mut self, path: &str, get: &HttpGet, place: Place) {
        let unnamed = place == Place::Hook && get.port == Port::Name(String::new());
        if !unnamed {
            self.port(&format!("{path}.port"), &get.port);
        }
        if !matches!(&*get.scheme, "" | "HTTP" | "HTTPS") {
            let got = cut(&get.scheme);
            let problem =
                format!("Unsupported value: {got:?}: supported values: \"HTTP\", \"HTTPS\"");
            self.problem(&format!("{path}.scheme"), &problem);
        }
        for (index, header) in get.http_headers.iter().enumerate() {
            let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            if header.name.is_empty() || !header.name.bytes().all(fits) {
                let path = format!("{path}.httpHeaders[{index}].name");
                self.invalid(&path, cut(&header.name), HEADER_NAME);
            }
        }
    }

    fn port(&mut self, path: &str, port: &Port) {
        match port {
            Port::Number(number) if !(1..=65_535).contains(number) => {
                self.invalid(path, number, "must be between 1 and 65535, inclusive");
            }
            Port::Name(name) if !is_port_name(name) => self.invalid(path, cut(name), PORT_NAME),
            Port::Number(_) | Port::Name(_) => {}
        }
    }
}

/// The kinds of one handler: only the first counts.
struct Kinds<'a> {
    path: &'a str,
    count: usize,
}

impl Kinds<'_> {
    /// Whether this kind is to be checked.
    fn begin(&mut self, field: &str, allowed: bool, found: &mut Findings) -> bool {
        self.count += 1;
        let path = format!("{}.{field}", self.path);
        if self.count > 1 {
            found.problem(&path, "Forbidden: may not specify more than 1 handler type");
        } else if !allowed {
            found.problem(&path, "Forbidden: may not be set here");
        }
        self.count == 1 && allowed
    }
}

const PORT_NAME: &str = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-), \
    at most 15 of them, and a letter";
const HEADER_NAME: &str = "a valid HTTP header must consist of alphanumeric characters or '-' \
    (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
const PLAIN_INIT: &str =
    "Forbidden: may not be set for init containers without restartPolicy=Always";

fn probes(container: &Container) -> impl Iterator<Item = (&'static str, &Probe)> {
    let all = [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ];
    all.into_iter().filter_map(|(name, probe)| Some((name, &**probe.as_ref()?)))
}

fn hooks(container: &Container) -> impl Iterator<Item = (&'static str, &Handler)> {
    let lifecycle = container.lifecycle.as_deref();
    let all = [
        ("postStart", lifecycle.and_then(|it| it.post_start.as_ref())),
        ("preStop", lifecycle.and_then(|it| it.pre_stop.as_ref())),
    ];
    all.into_iter().filter_map(|(name, hook)| Some((name, hook?)))
}

fn is_address(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
}

/// A service name (RFC 6335), or digits, which the agent accepts too.
fn is_port_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=15).contains(&name.len()) && name.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::admit::review;
    use crate::agent::admit::tests::pod;

    /// The review of a container with these fields.
    fn review_of(fields: &str) -> String {
        let pod = pod(&format!(
            r#"{{"metadata": {{"name": "a"}}, "spec": {{"containers": [
                 {{"name": "c", "image": "i", {fields}}}]}}}}"#
        ));
        let review = review(&pod);
        let refused = review.refused.map(|refused| refused.message).unwrap_or_default();
        let unknown = review.unknown.join(",");
        format!("{refused}{unknown}").replace("spec.containers[0].", "")
    }

    #[test]
    #[cfg(feature = "probes")]
    fn what_makes_sense_passes() {
        for fields in [
            r#""livenessProbe": {"exec": {"command": ["a"]}, "terminationGracePeriodSeconds": 1}"#,
            r#""readinessProbe": {"httpGet": {"port": "web", "host": "::1"}}"#,
            r#""startupProbe": {"grpc": {"port": 1}}, "livenessProbe": {"tcpSocket": {"port": 1}}"#,
            r#""lifecycle": {"postStart": {"sleep": {"seconds": 0}},
                "preStop": {"httpGet": {"port": "", "httpHeaders": [{"name": "X-a"}]}}}"#,
            r#""lifecycle": {"postStart": {"tcpSocket": {"port": 1}}, "stopSignal": null}"#,
        ] {
            assert_eq!(review_of(fields), "", "{fields}");
        }
    }

    #[test]
    #[cfg(feature = "probes")]
    fn what_makes_no_sense_is_named_in_kubernetes_words() {
        for (fields, expected) in [
            (
                r#""livenessProbe": {}"#,
                "livenessProbe: Required value: must specify a handler type",
            ),
            (r#""livenessProbe": {"exec": {}}"#, "livenessProbe.exec.command: Required value"),
            (
                r#""livenessProbe": {"tcpSocket": {"port": 1}, "exec": {"command": ["a"]}}"#,
                "livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
            ),
            (
                r#""livenessProbe": {"tcpSocket": {"port": 65536}, "periodSeconds": -1}"#,
                "livenessProbe.tcpSocket.port: Invalid value: 65536: must be between 1 and 65535, \
                 inclusive; livenessProbe.periodSeconds: Invalid value: -1: must be greater than \
                 or equal to 0",
            ),
            (
                r#""startupProbe": {"tcpSocket": {"port": 1}, "successThreshold": 2}"#,
                "startupProbe.successThreshold: Invalid value: 2: must be 1",
            ),
            (
                r#""readinessProbe": {"tcpSocket": {"port": 1},
                                      "terminationGracePeriodSeconds": 3}"#,
                "readinessProbe.terminationGracePeriodSeconds: Invalid value: 3: must not be set \
                 for readinessProbes",
            ),
            (
                r#""livenessProbe": {"sleep": {"seconds": 1}}"#,
                "livenessProbe.sleep: Forbidden: may not be set here",
            ),
            (
                r#""lifecycle": {"preStop": {"sleep": {"seconds": -1}}}"#,
                "lifecycle.preStop.sleep.seconds: Invalid value: -1: must be greater than or \
                 equal to 0",
            ),
            (
                r#""livenessProbe": {"tcpSocket": {"port": 1}, "timeout": 3}"#,
                "livenessProbe.timeout",
            ),
            (
                r#""livenessProbe": {"tcpSocket": {"port": 1, "host": "db.example"}}"#,
                "not built into this edged: livenessProbe.tcpSocket.host (got \"db.example\", \
                 expected an address or localhost)",
            ),
            (
                r#""lifecycle": {"stopSignal": "SIGUSR1"}"#,
                "not built into this edged: lifecycle.stopSignal",
            ),
        ] {
            assert_eq!(review_of(fields), expected, "{fields}");
        }
    }

    #[test]
    fn plain_init_containers_have_neither() {
        let pod = pod(r#"{"metadata": {"name": "a"}, "spec": {
            "initContainers": [{"name": "i", "image": "i", "lifecycle": {},
                                "livenessProbe": {"tcpSocket": {"port": 1}}}],
            "containers": [{"name": "c", "image": "i"}]}}"#);
        let message = review(&pod).refused.expect("refused").message;
        for field in ["livenessProbe", "lifecycle"] {
            let problem = format!("spec.initContainers[0].{field}: {PLAIN_INIT}");
            assert!(message.contains(&problem), "{message}");
        }
    }

    #[test]
    #[cfg(not(feature = "probes"))]
    fn what_is_left_out_is_named() {
        let fields = r#""livenessProbe": {"tcpSocket": {"port": 1}},
                        "lifecycle": {"preStop": {"exec": {"command": ["a"]}}}"#;
        assert_eq!(
            review_of(fields),
            "not built into this edged: livenessProbe, lifecycle.preStop"
        );
    }

    #[test]
    #[cfg(all(feature = "probes", not(feature = "probe-https")))]
    fn https_is_refused_where_it_is_left_out() {
        let get = r#"{"httpGet": {"port": 1, "scheme": "HTTPS"}}"#;
        let fields = format!(r#""livenessProbe": {get}, "lifecycle": {{"preStop": {get}}}"#);
        let scheme = "httpGet.scheme (got \"HTTPS\", expected HTTP)";
        assert_eq!(
            review_of(&fields),
            format!(
                "not built into this edged: livenessProbe.{scheme}, lifecycle.preStop.{scheme}"
            )
        );
    }
}
