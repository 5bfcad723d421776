//! Asks a running agent over its HTTP API, and waits for the answer: for the commands, not for the
//! loop.

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::clock;
use crate::config;
use crate::limits::{CLIENT_BYTES_MAX, CLIENT_CONNECT_MS, CLIENT_WAIT_MS};

/// Where the agent is.
#[derive(Clone, Copy, Debug)]
pub struct Agent {
    address: SocketAddr,
}

/// At `server`, else where edgecore.yaml says, else where it listens by default.
pub fn agent(server: Option<&str>) -> Result<Agent, String> {
    if let Some(server) = server {
        let address = server.strip_prefix("http://").unwrap_or(server).trim_end_matches('/');
        let expected = "an address and a port such as 127.0.0.1:10350";
        let address = address
            .parse()
            .map_err(|_| format!("--server: got {server:?}, expected {expected}"))?;
        return Ok(Agent { address });
    }
    configured(None).map_err(|error| match error {
        config::Error::Usage(why) | config::Error::File(why) => why,
    })
}

/// Where this edgecore.yaml says, or the one at the usual place; else where it listens by default.
pub fn configured(path: Option<&str>) -> Result<Agent, config::Error> {
    let flags: Vec<OsString> =
        path.map(|path| ["--config".into(), path.into()]).into_iter().flatten().collect();
    let config = match config::load(&flags, Some("unused".to_owned())) {
        Ok(loaded) => loaded.config,
        // By default another agent would be asked than the one that is meant.
        Err(error) if path.is_some() => return Err(error),
        // Whatever is wrong with the usual file, this is not the command to complain.
        Err(_) => config::Config::default(),
    };
    if config.listen.port() == 0 {
        let path = path.unwrap_or(config::PATH);
        let why = format!("{path} switches the API off (readOnlyPort: 0); is there a --server?");
        return Err(config::Error::Usage(why));
    }
    Ok(Agent { address: config.listen })
}

/// The controller at `server`, else where it listens by default.
#[cfg(feature = "controller")]
pub fn controller(server: Option<&str>) -> Result<Agent, String> {
    match server {
        Some(_) => agent(server),
        None => Ok(Agent { address: super::controller::settings::API }),
    }
}

impl Agent {
    /// The body of the answer to a request with a body, or why there is none.
    #[cfg(feature = "controller")]
    pub fn ask(&self, method: &str, path: &str, body: &[u8]) -> Result<Vec<u8>, String> {
        let head = format!("Content-Type: application/yaml\r\nContent-Length: {}\r\n", body.len());
        self.request(method, path, &head, body)
    }

    /// The body at `path`, or why there is none and what to do about it.
    pub fn get(&self, path: &str) -> Result<Vec<u8>, String> {
        self.request("GET", path, "", b"")
    }

    fn request(
        &self,
        method: &str,
        path: &str,
        head: &str,
        body: &[u8],
    ) -> Result<Vec<u8>, String> {
        let address = self.address;
        let cannot = |error: &std::io::Error| match error.kind() {
            ErrorKind::ConnectionRefused => format!(
                "nobody listens on {address}: is edged running (`edged run`)? If it listens \
                 elsewhere, say where with --server ADDR:PORT"
            ),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("no answer from {address}: whoever listens there hangs, or is not edged")
            }
            _ => format!("cannot ask edged on {address}: {error}"),
        };
        let line = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n{head}\r\n");
        let bytes = [line.as_bytes(), body].concat();
        let bytes = self.exchange(&bytes).map_err(|error| cannot(&error))?;
        answer(&bytes).map_err(|why| format!("{address}{path}: {why}"))
    }

    fn exchange(&self, request: &[u8]) -> std::io::Result<Vec<u8>> {
        let connect = Duration::from_millis(CLIENT_CONNECT_MS);
        let mut stream = TcpStream::connect_timeout(&self.address, connect)?;
        let wait = Some(Duration::from_millis(CLIENT_WAIT_MS));
        stream.set_read_timeout(wait)?;
        stream.set_write_timeout(wait)?;
        stream.write_all(request)?;
        let mut bytes = Vec::new();
        stream.take(CLIENT_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// The body of a whole answer that went well.
fn answer(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Err("the answer was cut off".to_owned()),
        Err(error) => return Err(format!("expected an HTTP answer: {error}")),
    };
    let body = &bytes[length..];
    let said = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"));
    let said = said.and_then(|header| str::from_utf8(header.value).ok()?.trim().parse().ok());
    if said.is_some_and(|said: usize| said != body.len()) {
        return Err("the answer was cut off".to_owned());
    }
    match response.code {
        Some(200) => Ok(body.to_vec()),
        code => {
            let text = String::from_utf8_lossy(body);
            let line = text.lines().next().unwrap_or_default();
            Err(format!("got status {}, expected 200: {line}", code.unwrap_or(0)))
        }
    }
}

const HEADERS_MAX: usize = 32;

/// Wall-clock seconds since 1970; unknown while the clock is not set.
pub fn wall_s() -> Option<i64> {
    clock::now().timestamp().map(|at| at.0)
}

/// A file, or standard input (`-`), as a whole.
#[cfg(feature = "controller")]
pub fn read_whole(path: &std::ffi::OsStr) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let most = crate::limits::FRONT_BODY_BYTES_MAX as u64;
    let read = if path == "-" {
        std::io::stdin().lock().take(most).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes))
    };
    read.map(|_| bytes).map_err(|error| format!("{}: {error}", path.display()))
}

/// Waits.
#[expect(clippy::disallowed_methods, reason = "a command has nothing else to do meanwhile")]
pub fn pause(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_whole_or_not_at_all() {
        let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        assert_eq!(answer(ok), Ok(b"{}".to_vec()));
        for end in 0..ok.len() {
            assert_eq!(answer(&ok[..end]), Err("the answer was cut off".to_owned()), "{end}");
        }
        let missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot here\n";
        assert_eq!(answer(missing), Err("got status 404, expected 200: not here".to_owned()));
        assert!(answer(b"SSH-2.0-OpenSSH\r\n").is_err());
    }

    #[test]
    fn servers_are_named_as_people_name_them() {
        for server in ["127.0.0.1:1", "http://127.0.0.1:1/", "http://127.0.0.1:1"] {
            assert_eq!(agent(Some(server)).map(|agent| agent.address.port()), Ok(1), "{server}");
        }
        let error = agent(Some("localhost")).expect_err("no port");
        assert!(error.starts_with("--server: got \"localhost\", expected"), "{error}");
    }

    #[test]
    fn an_agent_is_where_its_own_file_says() {
        let name = format!("edged-client-{}.yaml", std::process::id());
        let path = std::env::temp_dir().join(name);
        let there = |port: u16| {
            let kubelet = format!("tailoredKubeletConfig: {{readOnlyPort: {port}}}");
            let text = format!("modules: {{edged: {{{kubelet}}}}}\n");
            std::fs::write(&path, text).expect("a file of ours");
            configured(path.to_str()).map(|agent| agent.address.port())
        };
        assert_eq!(there(7), Ok(7));
        let Err(config::Error::Usage(off)) = there(0) else { panic!("it is off") };
        std::fs::remove_file(&path).expect("a file of ours");
        let none = configured(path.to_str()).map(|agent| agent.address);
        assert!(none.is_err(), "got the default, {none:?}, expected that there is no such file");
        assert!(off.contains("edged-client-") && off.contains("switches the API off"), "{off}");
    }

    #[test]
    fn an_agent_that_is_not_there_is_said_to_be_so() {
        // Of tcpmux, which nobody has served for long; one of the kernel's may be another test's.
        let agent = Agent { address: (std::net::Ipv4Addr::LOCALHOST, 1).into() };
        let error = agent.get("/pods").expect_err("nobody listens");
        assert!(error.contains("nobody listens on 127.0.0.1:"), "{error}");
        assert!(error.contains("`edged run`") && error.contains("--server"), "{error}");
    }
}
