//! A minimal HTTP/1.1 client.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// 200 and the like.
    pub code: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// As text.
    pub body: String,
}

impl Answer {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Gets a path.
pub fn get(to: SocketAddr, path: &str) -> io::Result<Answer> {
    send(to, format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n").as_bytes())
}

/// Sends a request of this method, with a body of JSON, to this port on loopback.
pub fn ask(port: u16, method: &str, target: &str, body: &str) -> Result<Answer, String> {
    let request = format!(
        "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    send(SocketAddr::from(([127, 0, 0, 1], port)), request.as_bytes())
        .map_err(|error| error.to_string())
}

/// Sends these bytes and reads to the end.
pub fn send(to: SocketAddr, request: &[u8]) -> io::Result<Answer> {
    let mut stream = connect(to)?;
    stream.write_all(request)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    parse(&bytes).ok_or_else(|| io::Error::other(format!("no answer in {} bytes", bytes.len())))
}

/// Gets a path from a unix socket.
pub fn get_of(socket: &Path, path: &str) -> io::Result<Answer> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    send_to(socket, request.as_bytes())
}

/// Sends these bytes to a unix socket and reads to the end.
pub fn send_to(socket: &Path, request: &[u8]) -> io::Result<Answer> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.write_all(request)?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    parse(&bytes).ok_or_else(|| io::Error::other(format!("no answer in {} bytes", bytes.len())))
}

/// A connection whose reads time out.
pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, Duration::from_secs(10))?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    stream.set_write_timeout(Some(Duration::from_secs(60)))?;
    Ok(stream)
}

/// Parses an answer that was read to its end.
pub fn parse(bytes: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let code = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    let headers: Vec<_> = lines.filter_map(header).collect();
    let chunked =
        headers.iter().any(|(name, value)| name == "transfer-encoding" && value == "chunked");
    let body = if chunked { unchunk(body)? } else { body.to_owned() };
    Some(Answer { code, headers, body })
}

fn unchunk(mut body: &str) -> Option<String> {
    let mut whole = String::new();
    loop {
        let (length, rest) = body.split_once("\r\n")?;
        let length = usize::from_str_radix(length.trim(), 16).ok()?;
        if length == 0 {
            return Some(whole);
        }
        whole.push_str(rest.get(..length)?);
        body = rest.get(length + 2..)?;
    }
}
