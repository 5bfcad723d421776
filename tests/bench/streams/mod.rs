//! What people's requests cost: the speed of logs, the latency of commands, the memory of many
//! streams at once, and what a stream at full speed costs the pods beside it.

mod exec;
mod log;
mod memory;

use std::fs::OpenOptions;
use std::io::{BufWriter, Read, Write};
use std::path::PathBuf;

use crate::support::agent::{KEEP_ALL, Pod, Site};

pub use exec::{NAMES as EXEC, latency};
pub use log::{BESIDE, NAMES as LOG, beside, throughput};
pub use memory::{NAMES as MEMORY, growth};

/// The pod that people look into.
const POD: &str = "seen";

/// Its manifest: it does nothing, and has a shell.
fn manifest() -> String {
    crate::support::agent::sleeper(POD)
}

/// A path of the API for its container, with this query.
fn path(verb: &str, query: &str) -> String {
    format!("/{verb}/default/{POD}-{}/main?{query}", crate::support::agent::NODE)
}

fn socket(site: &Site) -> PathBuf {
    site.root.join("edged.sock")
}

/// Logs are on the port too, and none is rotated, however large.
fn open_logs(site: &Site) {
    site.set("openStreams: true", &format!("containerLogMaxSize: 4Gi\n{KEEP_ALL}"));
}

/// Waits until the pod runs, and fills its log with lines of 20 to 179 bytes. Returns the file.
fn fill(site: &Site, bytes: usize) -> PathBuf {
    let pod: Pod = site.wait_running(POD);
    let path = site.log_file(&pod, "main", 0);
    let file = OpenOptions::new().append(true).open(&path).expect("the runtime has made it");
    let mut file = BufWriter::with_capacity(1 << 20, file);
    let text = "the quick brown fox jumps over the lazy dog; ".repeat(4);
    let (mut written, mut length) = (0, 20);
    while written < bytes {
        let line = format!("2026-11-25T10:00:00.123456789Z stdout F {}\n", &text[..length]);
        file.write_all(line.as_bytes()).expect("the disk has room");
        written += line.len();
        // Each length in turn, the long and the short ones mixed.
        length = 20 + (length - 20 + 67) % 160;
    }
    file.flush().expect("the disk has room");
    path
}

/// Sends a request for a log; the answer is read by the caller.
fn ask<S: Write>(mut stream: S, path: &str) -> S {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    stream
}

/// Reads to the end; returns the number of bytes, and the last of them.
fn drain(stream: &mut impl Read) -> (usize, Vec<u8>) {
    let mut buffer = vec![0; 128 << 10];
    let (mut all, mut last) = (0, Vec::new());
    loop {
        let count = stream.read(&mut buffer).expect("it goes on");
        if count == 0 {
            return (all, last);
        }
        all += count;
        last.clear();
        last.extend_from_slice(&buffer[count.saturating_sub(16)..count]);
    }
}
