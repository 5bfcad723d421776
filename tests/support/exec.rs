//! A client of the runtimes' websockets (`v4.channel.k8s.io`), through the agent.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A connection to a container: messages of a channel and its bytes.
pub struct Exec<S = UnixStream> {
    pub stream: S,
    came: Vec<u8>,
}

impl Exec {
    /// Opens it through the agent's unix socket.
    pub fn open(socket: &Path, path: &str) -> Self {
        let stream = UnixStream::connect(socket).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        Self::over(stream, path)
    }
}

impl<S: Read + Write> Exec<S> {
    /// Opens it over a connection.
    pub fn over(mut stream: S, path: &str) -> Self {
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: \
             websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \
             Rn99mgcZpb7CS/0BjOAd4A==\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("written");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            assert_eq!(stream.read(&mut byte).expect("an answer"), 1, "{head:?}");
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).expect("text");
        assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
        Self { stream, came: Vec::new() }
    }

    /// Sends up to 124 bytes.
    pub fn send(&mut self, channel: u8, bytes: &[u8]) {
        assert!(bytes.len() < 125, "a short frame");
        let mut frame = vec![0x82, 0x80 | (bytes.len() + 1) as u8, 0, 0, 0, 0, channel];
        frame.extend_from_slice(bytes);
        self.stream.write_all(&frame).expect("written");
    }

    /// The next message; `None`: the other end closes.
    pub fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let [opcode, length, rest @ ..] = &self.came[..] {
                let (start, length) = match length {
                    126 if rest.len() >= 2 => (2, usize::from(rest[0]) << 8 | usize::from(rest[1])),
                    126 => (usize::MAX, 0),
                    short => (0, usize::from(*short)),
                };
                if start != usize::MAX && rest.len() >= start + length {
                    let message = rest[start..start + length].to_vec();
                    let closes = opcode & 0x0f == 8;
                    self.came.drain(..2 + start + length);
                    return (!closes).then(|| (message[0], message[1..].to_vec()));
                }
            }
            let mut buffer = [0; 4_096];
            match self.stream.read(&mut buffer).expect("it answers") {
                0 => return None,
                count => self.came.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// What comes up to the end: on the channels 0 to 3.
    pub fn rest(mut self) -> [String; 4] {
        let mut channels: [Vec<u8>; 4] = Default::default();
        while let Some((channel, bytes)) = self.next() {
            channels[usize::from(channel)].extend_from_slice(&bytes);
        }
        channels.map(|bytes| String::from_utf8(bytes).expect("text"))
    }
}
