//! URLs of HTTP probes (RFC 3986).

use std::fmt;

use crate::model::net::HttpQuery;

/// `http://10.0.0.5:80/path`
pub(super) fn url(query: &HttpQuery) -> String {
    let scheme = if query.tls { "https" } else { "http" };
    format!("{scheme}://{}{}", host_port(&query.host, query.port), query.target)
}

/// `10.0.0.5:80`, `[fd00::5]:80`
pub(super) fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Why a `Location` cannot be followed; shown in Go's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadLocation {
    /// Neither http nor https.
    Scheme(String),
    /// No host.
    NoHost,
    /// A host without a bracket, or with a port that is none.
    Host(String),
}

impl fmt::Display for BadLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme(scheme) => write!(f, "unsupported protocol scheme {scheme:?}"),
            Self::NoHost => f.write_str("http: no Host in request URL"),
            Self::Host(got) => {
                write!(f, "got host {got:?} in a redirect, expected one with a valid port")
            }
        }
    }
}

/// The query for a `Location`.
pub fn resolve(from: &HttpQuery, location: &str) -> Result<HttpQuery, BadLocation> {
    let location = location.split('#').next().unwrap_or_default();
    let mut next = from.clone();
    let (tls, rest) = match location.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, Some(rest)),
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, Some(rest)),
        Some((scheme, _)) if is_scheme(scheme) => {
            return Err(BadLocation::Scheme(scheme.to_owned()));
        }
        Some(_) | None => (from.tls, location.strip_prefix("//")),
    };
    if let Some(rest) = rest {
        next.tls = tls;
        absolute(&mut next, rest)?;
        // The caller's Host was for the first address.
        next.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("host"));
        return Ok(next);
    }
    let base = from.target.split('?').next().unwrap_or_default();
    next.target = if location.is_empty() {
        from.target.clone()
    } else if location.starts_with('?') {
        format!("{base}{location}")
    } else {
        let (path, query) = match location.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (location, None),
        };
        let whole = match path.strip_prefix('/') {
            Some(_) => path.to_owned(),
            None => format!("{}/{path}", base.rsplit_once('/').map_or("", |(folder, _)| folder)),
        };
        let path = without_dots(&whole);
        query.map_or(path.clone(), |query| format!("{path}?{query}"))
    };
    next.target = escaped(&next.target);
    Ok(next)
}

fn is_scheme(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

/// Host, port and target of the part after `//`.
fn absolute(next: &mut HttpQuery, rest: &str) -> Result<(), BadLocation> {
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let bad = || BadLocation::Host(authority.to_owned());
    let (host, port) = match authority.strip_prefix('[') {
        Some(inner) => {
            let (host, after) = inner.split_once(']').ok_or_else(bad)?;
            (host, after.strip_prefix(':'))
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err(BadLocation::NoHost);
    }
    next.port = match port.filter(|port| !port.is_empty()) {
        Some(port) => port.parse().ok().filter(|&port| port > 0).ok_or_else(bad)?,
        None if next.tls => 443,
        None => 80,
    };
    next.host = host.into();
    next.target = match target.strip_prefix('/') {
        Some(_) => target.to_owned(),
        None => format!("/{target}"),
    };
    next.target = escaped(&next.target);
    Ok(())
}

/// Removes `.` and `..` (RFC 3986 section 5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if last {
                    kept.push("");
                }
            }
            other => kept.push(other),
        }
    }
    format!("/{}", kept.join("/"))
}

/// Escapes everything that would end the request line.
pub(super) fn escaped(target: &str) -> String {
    let mut out = String::with_capacity(target.len());
    for byte in target.bytes() {
        if byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`') {
            out.push(char::from(byte));
        } else {
            use std::fmt::Write;
            write!(out, "%{byte:02X}").expect("memory takes what is written");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::net::Expects;

    fn query(tls: bool, target: &str) -> HttpQuery {
        HttpQuery {
            tls,
            host: "10.0.0.5".into(),
            port: 8080,
            target: target.to_owned(),
            headers: vec![("Host".to_owned(), "a".to_owned())],
            expects: Expects::Success,
        }
    }

    #[test]
    fn locations_are_resolved_as_a_browser_does() {
        for (target, location, expected) in [
            ("/a/b?x=1", "/c", "http://10.0.0.5:8080/c"),
            ("/a/b?x=1", "c", "http://10.0.0.5:8080/a/c"),
            ("/a/b?x=1", "?y=2", "http://10.0.0.5:8080/a/b?y=2"),
            ("/a/b?x=1", "", "http://10.0.0.5:8080/a/b?x=1"),
            ("/a/b", "../c/./d/..?z#f", "http://10.0.0.5:8080/c/?z"),
            ("/a/b", "../../../c", "http://10.0.0.5:8080/c"),
            ("/a", "http://10.0.0.5:8081", "http://10.0.0.5:8081/"),
            ("/a", "HTTPS://user:pw@h.example?q", "https://h.example:443/?q"),
            ("/a", "//other/x y", "http://other:80/x%20y"),
            ("/a", "http://[fd00::1]:81/", "http://[fd00::1]:81/"),
            ("/a", "/to?u=http://x/", "http://10.0.0.5:8080/to?u=http://x/"),
        ] {
            let next = resolve(&query(false, target), location).expect(location);
            assert_eq!(url(&next), expected, "{target} {location}");
        }
        for location in ["ftp://x/", "http://", "http://h:0/", "http://h:99999/", "http://[::1/"] {
            assert!(resolve(&query(false, "/"), location).is_err(), "{location}");
        }
    }

    #[test]
    fn a_host_of_the_callers_goes_with_relative_redirects_only() {
        let relative = resolve(&query(true, "/"), "/x").expect("a path");
        assert_eq!((relative.headers.len(), relative.tls), (1, true));
        let absolute = resolve(&query(true, "/"), "http://10.0.0.5:1/").expect("an address");
        assert_eq!((absolute.headers.len(), absolute.tls), (0, false));
    }

    #[test]
    fn nothing_ends_the_request_line() {
        assert_eq!(escaped("/a b\r\nX: y\u{e9}%41"), "/a%20b%0D%0AX:%20y%C3%A9%41");
    }
}
