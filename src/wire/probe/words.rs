//! The kubelet's messages for probe failures, which are those of Go's network library.

use super::url::{host_port, url};
use crate::model::net::{Finding, HttpQuery, Query};
use crate::wire::http1::response::Fault;

/// The connection failed: `why` as in `connection refused`.
pub fn dial_failed(query: &Query, now: Option<&HttpQuery>, why: &str) -> Finding {
    match (query, now) {
        (_, Some(http)) => Finding::Bad(get_failed(http, &dial(&http.host, http.port, why))),
        (Query::Http(http), None) => {
            Finding::Bad(get_failed(http, &dial(&http.host, http.port, why)))
        }
        (Query::Tcp { host, port }, None) => Finding::Bad(dial(host, *port, why)),
        (Query::Grpc { host, port, timeout_s, .. }, None) => {
            let address = host_port(host, *port);
            let dial = dial(host, *port, why);
            Finding::Bad(format!(
                "timeout: failed to connect service {address:?} within {timeout_s}s: connection \
                 error: desc = \"transport: Error while dialing: {dial}\""
            ))
        }
    }
}

fn dial(host: &str, port: u16, why: &str) -> String {
    format!("dial tcp {}: {why}", host_port(host, port))
}

/// The timeout is over; `stands`: there is a connection.
pub fn timed_out(query: &Query, now: Option<&HttpQuery>, stands: bool) -> Finding {
    let http = match query {
        Query::Http(http) => Some(now.unwrap_or(http)),
        Query::Tcp { .. } | Query::Grpc { .. } => None,
    };
    match (query, http, stands) {
        (_, Some(http), true) => {
            Finding::Bad(get_failed(http, &format!("context deadline exceeded {AWAITING}")))
        }
        (_, Some(http), false) => {
            let dial = dial(&http.host, http.port, &format!("i/o timeout {AWAITING}"));
            Finding::Bad(get_failed(http, &dial))
        }
        (Query::Grpc { timeout_s, .. }, _, true) => {
            Finding::Bad(format!("timeout: health rpc did not complete within {timeout_s}s"))
        }
        (Query::Grpc { host, port, timeout_s, .. }, _, false) => {
            let address = host_port(host, *port);
            Finding::Bad(format!(
                "timeout: failed to connect service {address:?} within {timeout_s}s: context \
                 deadline exceeded"
            ))
        }
        (Query::Tcp { .. } | Query::Http(_), _, _) => dial_failed(query, None, "i/o timeout"),
    }
}

/// TLS was requested, and the answer came without.
pub fn not_tls(query: &HttpQuery) -> Finding {
    Finding::NotTls(get_failed(query, "http: server gave HTTP response to HTTPS client"))
}

/// `Get "http://10.0.0.5:80/": why`
pub(super) fn get_failed(query: &HttpQuery, why: &str) -> String {
    format!("Get {:?}: {why}", url(query))
}

pub(super) fn unreadable(query: &HttpQuery, fault: &Fault) -> Finding {
    let why = match fault {
        Fault::NotHttp(line, _) => format!("malformed HTTP response {line:?}"),
        Fault::Length(_) => "bad Content-Length".to_owned(),
        Fault::ChunkLine => "header line too long".to_owned(),
        Fault::ChunkSize => "invalid byte in chunk length".to_owned(),
        Fault::ChunkEnd => "malformed chunked encoding".to_owned(),
        Fault::HeadTooLarge | Fault::Trailer => fault.to_string(),
    };
    let broken = "net/http: HTTP/1.x transport connection broken";
    Finding::Bad(get_failed(query, &format!("{broken}: {why}")))
}

const AWAITING: &str = "(Client.Timeout exceeded while awaiting headers)";
