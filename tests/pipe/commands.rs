//! The commands as they are typed: what becomes of their words, and of what they print. The agent
//! that they ask is played by the test.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

fn edged(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_edged"));
    command.args(args).stdin(Stdio::null());
    command
}

/// What it says against it, which is no panic, and its exit code.
fn told(done: &Output) -> (Option<i32>, String) {
    (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
}

/// Runs `edged pods` with this to print to; the list is answered once nobody reads any more.
#[cfg(feature = "api")]
fn pods_printed_to(out: Stdio) -> (Option<i32>, String) {
    use std::io::{Read, Write};

    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().expect("it listens").to_string();
    let child = edged(&["pods", "--server", &server]).stdout(out).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("it starts");
    drop(child.stdout.take());
    let (mut asked, _) = listener.accept().expect("it asks");
    let mut request = [0; 4_096];
    assert!(asked.read(&mut request).expect("it asks") > 0);
    let body = r#"{"kind": "PodList", "items": [{"metadata": {"name": "a"}}]}"#;
    write!(asked, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).expect("sent");
    drop(asked);
    told(&child.wait_with_output().expect("our child"))
}

#[cfg(feature = "api")]
#[test]
fn who_closes_the_pipe_early_ends_a_command_quietly() {
    let _alone = crate::jobs::alone();
    assert_eq!(pods_printed_to(Stdio::piped()), (Some(0), String::new()));
}

#[test]
fn what_cannot_be_printed_is_an_error() {
    let _alone = crate::jobs::alone();
    let full = || File::options().write(true).open("/dev/full").expect("Linux has it");
    let why = "cannot print: No space left on device (os error 28)\n";
    #[cfg(feature = "api")]
    assert_eq!(pods_printed_to(full().into()), (Some(1), format!("edged pods: {why}")));
    for command in ["help", "version"] {
        let done = edged(&[command]).stdout(full()).output().expect("it starts");
        assert_eq!(told(&done), (Some(1), format!("edged: {why}")), "{command}");
        #[cfg(feature = "controller")]
        {
            let mut controller = Command::new(env!("CARGO_BIN_EXE_edgecontroller"));
            let done = controller.arg(command).stdout(full()).output().expect("it starts");
            assert_eq!(told(&done), (Some(1), format!("edgecontroller: {why}")), "{command}");
        }
    }
}

/// What `edged check` prints with these flags and one file below a folder of the test's own.
#[cfg(feature = "check")]
fn checked(file: &str, text: &str, flags: impl Fn(&std::path::Path) -> Vec<String>) -> String {
    let folder = format!("edged-commands-{}-{file}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).expect("a folder of ours");
    std::fs::write(folder.join(file), text).expect("a file of ours");
    let flags = flags(&folder);
    let done = edged(&["check"]).args(flags).output().expect("it starts");
    std::fs::remove_dir_all(&folder).expect("a folder of ours");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[cfg(feature = "check")]
#[test]
fn check_goes_by_its_flags_beside_a_broken_file() {
    let _alone = crate::jobs::alone();
    let said = checked("edgecore.yaml", "modules: [\n", |folder| {
        let file = folder.join("edgecore.yaml");
        let flags = ["--runtime", "/nowhere/x.sock", "--config"];
        let flags = flags.into_iter().map(str::to_owned);
        flags.chain([file.display().to_string()]).collect()
    });
    assert!(said.contains("edgecore.yaml:2:1: "), "{said}");
    assert!(said.contains(" /nowhere/x.sock: there is no such socket\n"), "{said}");
}

#[cfg(feature = "check")]
#[test]
fn check_reads_the_manifests_beside_one_that_cannot_be_read() {
    let _alone = crate::jobs::alone();
    let said = checked("web.yaml", "apiVersion: v1\nkind: Pod\nspec: 5\n", |folder| {
        std::os::unix::fs::symlink("loop.yaml", folder.join("loop.yaml"))
            .expect("a folder of ours");
        vec!["--manifests".to_owned(), folder.display().to_string()]
    });
    assert!(said.contains("/web.yaml:3:7: spec: got 5"), "{said}");
    assert!(said.contains("/loop.yaml: cannot be read: Too many levels"), "{said}");
    assert!(!said.contains("mkdir"), "{said}");
}

/// With 1: 2 would be that there is nothing to ask, and an upgrade is trusted then.
#[cfg(feature = "api")]
#[test]
fn status_asks_nobody_where_the_file_that_is_named_cannot_be_read() {
    let _alone = crate::jobs::alone();
    let done = edged(&["status", "--config", "/nowhere/edgecore.yaml"]).output();
    let (code, why) = told(&done.expect("it starts"));
    assert!(why.starts_with("edged status: cannot read /nowhere/edgecore.yaml: No such"), "{why}");
    assert_eq!(code, Some(1), "{why}");
}

#[test]
fn words_that_are_no_text_are_told_with_exit_code_2() {
    let _alone = crate::jobs::alone();
    let wrong = OsStr::from_bytes(b"caf\xe9");
    let mut commands = vec![&[][..], &["run"], &["run", "--manifests"]];
    if cfg!(feature = "api") {
        commands.extend([&["pods", "-n"][..], &["pods", "-o"], &["status", "--config"]]);
    }
    if cfg!(feature = "check") {
        commands.extend([&["check"][..], &["check", "--config"]]);
    }
    if cfg!(feature = "cloud") {
        commands.push(&["join", "--token"]);
    }
    for args in commands {
        let done = edged(args).arg(wrong).output().expect("it starts");
        let (code, why) = told(&done);
        assert_eq!(code, Some(2), "{args:?}: {why}");
        assert!(why.starts_with("edged") && why.contains("caf"), "{args:?}: {why}");
        assert!(!why.contains("panicked"), "{args:?}: {why}");
    }
}
