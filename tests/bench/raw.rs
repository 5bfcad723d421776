//! The minimum of HTTP/2 for a client, written by hand: recorded requests, with another stream id
//! each, and frames read until the stream ends. Replies are not decoded.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use edged::wire::grpc::{CallKey, Client};
use edged::wire::h2;

const HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const ACK: u8 = 1;
/// After this many bytes the connection's window is opened again: half of the announced size.
const CREDIT: u32 = edged::limits::CRI_WINDOW_BYTES / 2;

/// A connection that repeats one call.
pub struct Raw {
    socket: UnixStream,
    /// The frames of the request.
    request: Vec<u8>,
    stream: u32,
    buffer: Vec<u8>,
    filled: usize,
    spent: u32,
}

impl Raw {
    /// Connects and sends the preface as the project's client does, and records its request.
    pub fn connect(path: &Path, rpc_path: &'static str, message: &[u8]) -> Raw {
        let mut socket = UnixStream::connect(path).expect("the runtime listens");
        let mut client = Client::new(h2::Config::default());
        let greeting = client.output().len();
        client.unary(CallKey(1), rpc_path, message).expect("a fresh connection takes calls");
        socket.write_all(&client.output()[..greeting]).expect("it takes a greeting");
        let request = client.output()[greeting..].to_vec();
        Raw { socket, request, stream: 1, buffer: vec![0; 64 << 10], filled: 0, spent: 0 }
    }

    /// Makes the call; returns the bytes of DATA.
    pub fn exchange(&mut self) -> usize {
        let mut at = 0;
        while at < self.request.len() {
            self.request[at + 5..at + HEAD].copy_from_slice(&self.stream.to_be_bytes());
            at += HEAD + length(&self.request[at..]);
        }
        self.socket.write_all(&self.request).expect("the runtime takes requests");
        let mut bytes = 0;
        loop {
            let mut taken = 0;
            let mut ended = false;
            while self.filled - taken >= HEAD {
                let length = length(&self.buffer[taken..]);
                if self.filled - taken < HEAD + length {
                    break;
                }
                ended |= self.frame(taken, length, &mut bytes);
                taken += HEAD + length;
            }
            self.buffer.copy_within(taken..self.filled, 0);
            self.filled -= taken;
            if ended {
                self.stream += 2;
                return bytes;
            }
            let count = self.socket.read(&mut self.buffer[self.filled..]).expect("an answer");
            assert!(count > 0, "the runtime hung up");
            self.filled += count;
        }
    }

    /// Whether it ends our stream.
    fn frame(&mut self, at: usize, length: usize, bytes: &mut usize) -> bool {
        let (kind, flags) = (self.buffer[at + 3], self.buffer[at + 4]);
        match kind {
            DATA => {
                *bytes += length;
                self.spent += length as u32;
                if self.spent >= CREDIT {
                    let mut update = vec![0, 0, 4, 8, 0, 0, 0, 0, 0];
                    update.extend_from_slice(&self.spent.to_be_bytes());
                    self.socket.write_all(&update).expect("it takes credit");
                    self.spent = 0;
                }
            }
            SETTINGS if flags & ACK == 0 => {
                self.socket.write_all(&[0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0]).expect("an ACK");
            }
            PING if flags & ACK == 0 => {
                let mut pong = vec![0, 0, 8, PING, ACK, 0, 0, 0, 0];
                pong.extend_from_slice(&self.buffer[at + HEAD..at + HEAD + length]);
                self.socket.write_all(&pong).expect("an ACK");
            }
            GOAWAY => panic!("the runtime says goodbye"),
            _ => {}
        }
        let stream = &self.buffer[at + 5..at + HEAD];
        [DATA, HEADERS].contains(&kind)
            && flags & END_STREAM != 0
            && stream == self.stream.to_be_bytes()
    }
}

fn length(head: &[u8]) -> usize {
    usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])
}
