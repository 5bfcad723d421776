//! A command in a container, or the container's own process, as a client of `v4.channel.k8s.io`:
//! standard input, both outputs, the size of a terminal, and how it ended.

use std::fmt;

use serde_json::Value;

use super::{Client, Incoming, Violation};
use crate::limits::SPDY_STATUS_BYTES_MAX;

/// The version of the protocol, for `X-Stream-Protocol-Version`.
pub const PROTOCOL: &str = "v4.channel.k8s.io";

/// What is connected. It must be what the runtime was asked for: the server waits for exactly these
/// streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub stdin: bool,
    pub stdout: bool,
    pub stderr: bool,
    /// Its size is sent.
    pub tty: bool,
}

/// A command that runs.
#[derive(Debug)]
pub struct Exec {
    client: Client,
    error: u32,
    /// `None`: not connected, or ended.
    stdin: Option<u32>,
    stdout: Option<u32>,
    stderr: Option<u32>,
    resize: Option<u32>,
    status: Vec<u8>,
    /// The status is complete, or none will come.
    error_ended: bool,
}

/// Bytes of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<'a> {
    Stdout(&'a [u8]),
    Stderr(&'a [u8]),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With this code.
    Exited(i32),
    /// It could not be run; the runtime's reason.
    Failed(String),
    /// The connection ended, and nothing is known.
    Lost,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "command terminated with exit code {code}"),
            Self::Failed(why) => f.write_str(why),
            Self::Lost => {
                f.write_str("the connection ended before the exit code came, which is not known")
            }
        }
    }
}

impl Exec {
    /// Opens the streams.
    pub fn new(wanted: Wanted) -> Self {
        let mut client = Client::default();
        let mut open = |name: &str| client.open(&[("streamtype", name)], false);
        let error = open("error");
        let stdin = wanted.stdin.then(|| open("stdin"));
        let stdout = wanted.stdout.then(|| open("stdout"));
        let stderr = wanted.stderr.then(|| open("stderr"));
        let resize = wanted.tty.then(|| open("resize"));
        let (status, error_ended) = (Vec::new(), false);
        Self { client, error, stdin, stdout, stderr, resize, status, error_ended }
    }

    /// Sends standard input.
    pub fn input(&mut self, bytes: &[u8]) {
        if let Some(id) = self.stdin {
            self.client.data(id, bytes);
        }
    }

    /// Ends standard input: the process reads its end.
    pub fn end_input(&mut self) {
        if let Some(id) = self.stdin.take() {
            self.client.end(id);
        }
    }

    /// Whether standard input is still taken.
    pub fn takes_input(&self) -> bool {
        self.stdin.is_some()
    }

    /// Sends the size of the terminal.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        if let Some(id) = self.resize {
            let size = format!("{{\"Width\":{columns},\"Height\":{rows}}}");
            self.client.data(id, size.as_bytes());
        }
    }

    /// The bytes that are to be sent.
    pub fn output(&self) -> &[u8] {
        self.client.output()
    }

    /// So many of them were sent.
    pub fn sent(&mut self, count: usize) {
        self.client.sent(count);
    }

    /// Takes these bytes up to the end of what they complete. Returns how many it took, and output
    /// if they have some; call again with the rest, until all are taken and nothing comes.
    pub fn receive<'a>(
        &mut self,
        bytes: &'a [u8],
    ) -> Result<(usize, Option<Output<'a>>), Violation> {
        let mut taken = 0;
        loop {
            let (count, incoming) = self.client.receive(&bytes[taken..])?;
            taken += count;
            let Some(incoming) = incoming else { return Ok((taken, None)) };
            match incoming {
                Incoming::Data(id, piece) if id == self.error => self.add_status(piece),
                Incoming::Data(id, piece) if self.stdout == Some(id) => {
                    return Ok((taken, Some(Output::Stdout(piece))));
                }
                Incoming::Data(id, piece) if self.stderr == Some(id) => {
                    return Ok((taken, Some(Output::Stderr(piece))));
                }
                // No other stream has data for us.
                Incoming::Data(..) => {}
                Incoming::End(id) => self.ended(id),
                Incoming::Reset(id, _) => {
                    self.ended(id);
                    let input = [&mut self.stdin, &mut self.resize];
                    input.into_iter().filter(|it| **it == Some(id)).for_each(|it| *it = None);
                }
                Incoming::GoAway(_) => {}
            }
        }
    }

    fn ended(&mut self, id: u32) {
        self.error_ended |= id == self.error;
        let outputs = [&mut self.stdout, &mut self.stderr];
        outputs.into_iter().filter(|it| **it == Some(id)).for_each(|it| *it = None);
    }

    /// What is too long is no JSON in the end.
    fn add_status(&mut self, piece: &[u8]) {
        let room = SPDY_STATUS_BYTES_MAX - self.status.len();
        self.status.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    /// Whether nothing more comes: the outputs have ended, and it is known how the command did.
    pub fn is_finished(&self) -> bool {
        self.error_ended && self.stdout.is_none() && self.stderr.is_none()
    }

    /// How the command ended, as far as that is known.
    pub fn outcome(&self) -> Outcome {
        let Some(status) = self.parsed() else { return Outcome::Lost };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if status["status"] == "Success" {
            return Outcome::Exited(0);
        }
        let causes = status["details"]["causes"].as_array().map_or(&[][..], Vec::as_slice);
        let code = causes.iter().find(|cause| cause["reason"] == "ExitCode");
        let code = code.and_then(|cause| cause["message"].as_str()?.parse().ok());
        match code {
            Some(code) if status["reason"] == "NonZeroExitCode" => Outcome::Exited(code),
            _ if status["status"] == "Failure" => Outcome::Failed(text(&status["message"])),
            _ => Outcome::Lost,
        }
    }

    /// meta/v1 `Status`
    fn parsed(&self) -> Option<Value> {
        serde_json::from_slice(&self.status).ok()
    }
}
