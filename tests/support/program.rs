//! Programs that a test writes and then starts.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a program that can be started at once. A process of its own writes it: where this one
/// had the file open, a child that another test starts at that moment would have it open too until
/// it executes its program, and until then `execve` of the file fails with ETXTBSY ("Text file
/// busy").
pub fn write(path: &Path, content: &[u8]) {
    let mut install = Command::new("install");
    install.args(["-D", "-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut install = install.spawn().expect("coreutils");
    install.stdin.take().expect("it is piped").write_all(content).expect("it reads all");
    assert!(install.wait().expect("our child").success(), "{} cannot be written", path.display());
}
