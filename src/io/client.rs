//! HTTP client of the commands: sends a request to a running edged or edgecontroller, and waits for
//! the answer. The event loop does not use it.

#[cfg(feature = "streams")]
mod connection;
#[cfg(feature = "streams")]
pub mod copy;
#[cfg(feature = "streams")]
pub mod forward;
#[cfg(feature = "streams")]
pub mod logs;
#[cfg(feature = "streams")]
pub mod session;
#[cfg(feature = "streams")]
pub mod terminal;

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
#[cfg(feature = "controller")]
use std::path::{Path, PathBuf};
use std::time::Duration;

#[cfg(feature = "streams")]
pub use connection::{Connection, Opened};

use super::clock;
use super::socket::Address;
use crate::config;
#[cfg(feature = "streams")]
use crate::limits::CLIENT_STREAM_WAIT_MS;
use crate::limits::{CLIENT_BYTES_MAX, CLIENT_CONNECT_MS, CLIENT_WAIT_MS};
use crate::model::error::{Error, Input, Peer, System};
use crate::wire::http1::response::{Piece, Reader};

/// The address of a running program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// The program's name.
    program: &'static str,
    address: Address,
    /// Used if no process listens at `address`, or this user may not open it.
    fallback: Option<Address>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The whole body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The reason of a refusal for the user: the message of a `Status`, or the first line.
    pub fn why(&self) -> String {
        let status: Option<serde_json::Value> = serde_json::from_slice(&self.body).ok();
        let message = status.as_ref().and_then(|status| status["message"].as_str());
        let text = String::from_utf8_lossy(&self.body);
        message.unwrap_or_else(|| text.lines().next().unwrap_or_default()).to_owned()
    }
}

/// edged at `server`, else at the address in this edgecore.yaml, or in the one at the default path;
/// else at the default address.
pub fn agent(server: Option<&str>, config: Option<&str>) -> Result<Agent, config::Error> {
    match server {
        Some(server) => {
            at(server, "edged").map_err(|wrong| config::Error::Usage(wrong.to_string()))
        }
        None => configured(config),
    }
}

fn at(server: &str, program: &'static str) -> Result<Agent, Input> {
    let path = server.strip_prefix("unix://").unwrap_or(server);
    let address = if path.starts_with('/') {
        Address::Socket(path.into())
    } else {
        let place = server.strip_prefix("http://").unwrap_or(server).trim_end_matches('/');
        let expected = "127.0.0.1:10350 or the like, or unix:///PATH";
        let place = place.parse();
        Address::Port(place.map_err(|_| Input::quoted(server, expected).at("--server"))?)
    };
    Ok(Agent { program, address, fallback: None })
}

fn configured(path: Option<&str>) -> Result<Agent, config::Error> {
    let flags: Vec<OsString> =
        path.map(|path| ["--config".into(), path.into()]).into_iter().flatten().collect();
    let config = match config::load(&flags, Some("unused".to_owned())) {
        Ok(loaded) => loaded.config,
        // The default address could be that of another agent.
        Err(error) if path.is_some() => return Err(error),
        // An error in the default file is not this command's to report.
        Err(_) => config::Config::default(),
    };
    if config.listen.port() == 0 {
        let path = path.unwrap_or(config::PATH);
        let why = format!("{path} switches the API off (readOnlyPort: 0); is there a --server?");
        return Err(config::Error::Usage(why));
    }
    let (address, fallback) = (Address::Socket(config.socket()), Address::Port(config.listen));
    Ok(Agent { program: "edged", address, fallback: Some(fallback) })
}

/// The controller at `server`, else the one with this data folder, or the default one.
#[cfg(feature = "controller")]
pub fn controller(server: Option<&str>, data: Option<&Path>) -> Result<Agent, Input> {
    use super::controller::settings::Settings;
    if let Some(server) = server {
        return at(server, "edgecontroller");
    }
    let mut settings = Settings::default();
    if let Some(data) = data {
        data.clone_into(&mut settings.data);
    }
    let address = Address::Socket(settings.socket());
    Ok(Agent { program: "edgecontroller", address, fallback: None })
}

impl Agent {
    /// Sends a request with a body; returns the answer, or an error.
    #[cfg(feature = "controller")]
    pub fn send(&self, method: &str, path: &str, body: &[u8]) -> Result<Answer, Error> {
        let head = format!("Content-Type: application/yaml\r\nContent-Length: {}\r\n", body.len());
        self.request(method, path, (&head, body), CLIENT_WAIT_MS)
    }

    /// Sends a request without a body that changes something; returns the answer's first line.
    #[cfg(feature = "node-jobs")]
    pub fn post(&self, path: &str) -> Result<String, Error> {
        let answer = self.request("POST", path, ("Content-Length: 0\r\n", b""), CLIENT_WAIT_MS)?;
        let why = answer.why();
        if answer.status == 200 { Ok(why) } else { Err(Peer::new(why).into()) }
    }

    /// The body at `path`, or an error with a remedy.
    pub fn get(&self, path: &str) -> Result<Vec<u8>, Error> {
        self.body(path, CLIENT_WAIT_MS)
    }

    /// The same, of what the runtime must answer first.
    #[cfg(feature = "streams")]
    pub fn get_usage(&self, path: &str) -> Result<Vec<u8>, Error> {
        self.body(path, CLIENT_STREAM_WAIT_MS)
    }

    fn body(&self, path: &str, wait_ms: u64) -> Result<Vec<u8>, Error> {
        let answer = self.request("GET", path, ("", b""), wait_ms)?;
        match answer.status {
            200 => Ok(answer.body),
            404 if answer.body.starts_with(b"{") => Err(Input::other(answer.why()).into()),
            code => {
                let why = format_args!("got status {code}, expected 200: {}", answer.why());
                Err(Peer::at(format_args!("{}{path}", self.address), why).into())
            }
        }
    }

    /// `head` has further lines.
    fn request(
        &self,
        method: &str,
        path: &str,
        (head, body): (&str, &[u8]),
        wait_ms: u64,
    ) -> Result<Answer, Error> {
        let line = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{head}\r\n");
        let request = [line.as_bytes(), body].concat();
        let mut address = &self.address;
        let mut done = exchange(address, &request, wait_ms);
        if let (Err(error), Some(fallback)) = (&done, &self.fallback)
            && may_use_fallback(error)
        {
            address = fallback;
            done = exchange(address, &request, wait_ms);
        }
        let bytes = done.map_err(|error| self.cannot(address, &error))?;
        if bytes.len() as u64 >= CLIENT_BYTES_MAX {
            let why = format!("{address}{path}: got {CLIENT_BYTES_MAX} bytes, expected fewer");
            return Err(Peer::new(why).into());
        }
        answer(&bytes).map_err(|broken| Error::from(broken).at(format_args!("{address}{path}")))
    }

    fn cannot(&self, address: &Address, error: &std::io::Error) -> System {
        let program = self.program;
        System::new(match error.kind() {
            ErrorKind::ConnectionRefused | ErrorKind::NotFound => {
                let other = match (program, address) {
                    ("edged", _) => "--server ADDR:PORT",
                    (_, Address::Port(_)) => "--server PLACE",
                    (_, Address::Socket(_)) => "--data DIR, as that of its `run`",
                };
                format!(
                    "nothing listens on {address}: is {program} running (`{program} run`)? If it \
                     listens on another address, give it with {other}"
                )
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => format!(
                "no answer from {address}: the program that listens there hangs, or is not \
                 {program}"
            ),
            _ => format!("cannot connect to {program} on {address}: {error}"),
        })
    }
}

/// Whether the port may be tried in place of the socket.
fn may_use_fallback(error: &std::io::Error) -> bool {
    use ErrorKind::{ConnectionRefused, NotADirectory, NotFound, PermissionDenied};
    matches!(error.kind(), ConnectionRefused | NotADirectory | NotFound | PermissionDenied)
        // The path is too long for the address of a socket.
        || error.kind() == ErrorKind::InvalidInput
}

fn exchange(address: &Address, request: &[u8], wait_ms: u64) -> std::io::Result<Vec<u8>> {
    talk(connect(address, wait_ms)?, request)
}

/// Its reads and writes fail if nothing moves for so long.
fn connect(address: &Address, wait_ms: u64) -> std::io::Result<File> {
    let wait = Some(Duration::from_millis(wait_ms));
    Ok(File::from(match address {
        Address::Port(address) => {
            let connect = Duration::from_millis(CLIENT_CONNECT_MS);
            let stream = TcpStream::connect_timeout(address, connect)?;
            stream.set_read_timeout(wait)?;
            stream.set_write_timeout(wait)?;
            OwnedFd::from(stream)
        }
        Address::Socket(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(wait)?;
            stream.set_write_timeout(wait)?;
            OwnedFd::from(stream)
        }
    }))
}

fn talk(mut stream: impl Read + Write, request: &[u8]) -> std::io::Result<Vec<u8>> {
    // A server that refuses a request early may not read all of it, but still sends the reason.
    let written = stream.write_all(request);
    let mut bytes = Vec::new();
    let read = stream.take(CLIENT_BYTES_MAX).read_to_end(&mut bytes);
    if bytes.is_empty() {
        written?;
    }
    read?;
    Ok(bytes)
}

/// Parses a whole answer.
fn answer(bytes: &[u8]) -> Result<Answer, Peer> {
    let (mut reader, mut answer) = (Reader::default(), None);
    reader.receive(bytes);
    while let Some(piece) = reader.piece().map_err(|fault| Peer::new(fault.to_string()))? {
        match (piece, &mut answer) {
            (Piece::Head(head), None) => {
                answer = Some(Answer { status: head.status, body: Vec::new() });
            }
            (Piece::Body(part), Some(answer)) => answer.body.extend_from_slice(part),
            (Piece::End, _) => {}
            (piece, _) => return Err(Peer::new(format!("got {piece:?}, expected one answer"))),
        }
    }
    answer.filter(|_| reader.closed()).ok_or_else(|| Peer::new("the answer was cut off"))
}

/// Wall-clock seconds since 1970; unknown while the clock is not set.
pub fn wall_s() -> Option<i64> {
    clock::now().timestamp().map(|at| at.0)
}

/// A file, or standard input (`-`), as a whole.
#[cfg(feature = "controller")]
pub fn read_whole(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let bytes_max = crate::limits::CONTROLLER_API_BODY_BYTES_MAX;
    let limit = bytes_max as u64 + 1;
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes))
    };
    read?;
    if bytes.len() > bytes_max {
        let got = format_args!("more than {bytes_max} bytes");
        return Err(Input::new(got, "fewer").into());
    }
    Ok(bytes)
}

/// The file itself, or the files of the folder by name, as kubectl takes them.
#[cfg(feature = "controller")]
pub fn files_of(path: &Path) -> Result<Vec<PathBuf>, Error> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let at = |error: std::io::Error| System::at(path.display(), error);
    let entries =
        std::fs::read_dir(path).map_err(at)?.collect::<Result<Vec<_>, _>>().map_err(at)?;
    let is_manifest = |path: &PathBuf| {
        let ends = ["yaml", "yml", "json"];
        path.extension().is_some_and(|end| ends.iter().any(|known| end == *known)) && path.is_file()
    };
    let mut files: Vec<_> =
        entries.iter().map(std::fs::DirEntry::path).filter(is_manifest).collect();
    files.sort();
    if files.is_empty() {
        let wrong = Input::new("no .yaml, .yml or .json file", "one");
        return Err(wrong.at(path.display()).into());
    }
    Ok(files)
}

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
        assert_eq!(answer(ok), Ok(Answer { status: 200, body: b"{}".to_vec() }));
        for end in 0..ok.len() {
            assert_eq!(answer(&ok[..end]), Err(Peer::new("the answer was cut off")), "{end}");
        }
        let missing = b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot here\n";
        let why = answer(missing).map(|answer| (answer.status, answer.why()));
        assert_eq!(why, Ok((404, "not here".to_owned())));
        assert!(answer(b"SSH-2.0-OpenSSH\r\n").is_err());
        let body = br#"{"kind":"Status","message":"pods \"x\" not found"}"#.to_vec();
        assert_eq!(Answer { status: 404, body }.why(), "pods \"x\" not found");
    }

    #[test]
    fn servers_are_named_as_people_name_them() {
        let port = |port: u16| Address::Port(([127, 0, 0, 1], port).into());
        for (server, expected) in [
            ("127.0.0.1:1", port(1)),
            ("http://127.0.0.1:1/", port(1)),
            ("unix:///run/a.sock", Address::Socket("/run/a.sock".into())),
            ("/run/a.sock", Address::Socket("/run/a.sock".into())),
        ] {
            assert_eq!(at(server, "edged").map(|agent| agent.address), Ok(expected), "{server}");
        }
        let error = at("localhost", "edged").expect_err("no port").to_string();
        assert!(error.starts_with("--server: got \"localhost\", expected"), "{error}");
    }

    #[test]
    fn an_agent_is_where_its_own_file_says() {
        let name = format!("edged-client-{}.yaml", std::process::id());
        let path = std::env::temp_dir().join(name);
        let there = |port: u16| {
            let kubelet = format!("tailoredKubeletConfig: {{readOnlyPort: {port}}}");
            let text = format!("modules: {{edged: {{rootDirectory: /r, {kubelet}}}}}\n");
            std::fs::write(&path, text).expect("a file of ours");
            agent(None, path.to_str())
        };
        let agent_of = there(7).expect("it is on");
        assert_eq!(agent_of.address, Address::Socket("/r/edged.sock".into()));
        assert_eq!(agent_of.fallback, Some(Address::Port(([127, 0, 0, 1], 7).into())));
        let Err(config::Error::Usage(off)) = there(0) else { panic!("it is off") };
        std::fs::remove_file(&path).expect("a file of ours");
        let none = agent(None, path.to_str());
        assert!(none.is_err(), "got the default, {none:?}, expected that there is no such file");
        assert!(off.contains("edged-client-") && off.contains("switches the API off"), "{off}");
    }

    #[test]
    fn who_is_not_there_is_named_with_the_remedy() {
        // The port of tcpmux, which is unused; a port from the kernel may belong to another test.
        let place: std::net::SocketAddr = (std::net::Ipv4Addr::LOCALHOST, 1).into();
        let port = Address::Port(place);
        let fallback = Some(port.clone());
        let address = Address::Socket("/nowhere/edged.sock".into());
        let agent = Agent { program: "edged", address, fallback };
        let error = agent.get("/pods").expect_err("nobody listens").to_string();
        assert!(error.contains("nothing listens on 127.0.0.1:1: is edged running"), "{error}");
        assert!(error.contains("`edged run`") && error.contains("--server"), "{error}");
        let agent = Agent { program: "edgecontroller", address: port, fallback: None };
        let error = agent.get("/").expect_err("nobody listens").to_string();
        assert!(error.contains("`edgecontroller run`") && !error.contains("edged run"), "{error}");
    }
    #[test]
    #[expect(clippy::disallowed_methods, reason = "the other end lives beside the test")]
    fn an_answer_has_a_bound() {
        let head = "HTTP/1.1 200 OK\r\n\r\n";
        for (bytes, fits) in [(CLIENT_BYTES_MAX - 1, true), (CLIENT_BYTES_MAX, false)] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback");
            let address = Address::Port(listener.local_addr().expect("an address"));
            let served = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().expect("it is asked");
                assert!(stream.read(&mut [0; 1 << 10]).is_ok_and(|count| count > 0));
                stream.write_all(head.as_bytes()).expect("it is taken");
                let part = vec![b'x'; 1 << 20];
                let mut left = bytes as usize - head.len();
                while left > 0 {
                    let count = left.min(part.len());
                    stream.write_all(&part[..count]).expect("it is taken");
                    left -= count;
                }
            });
            let agent = Agent { program: "edged", address, fallback: None };
            let done = agent.get("/pods").map(|body| body.len() as u64);
            served.join().expect("it served");
            assert_eq!(done.is_ok(), fits, "{done:?}");
            match done {
                Ok(length) => assert_eq!(length, bytes - head.len() as u64),
                Err(error) => {
                    let why = format!("got {bytes} bytes, expected fewer");
                    assert!(error.to_string().ends_with(&why), "{error}");
                }
            }
        }
    }
}
