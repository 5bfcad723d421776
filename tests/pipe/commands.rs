//! The commands as an operator types them: their arguments and their output. The test simulates the
//! agent that they call.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

fn edged(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_edged"));
    command.args(args).stdin(Stdio::null());
    command
}

/// Its error output, which is no panic, and its exit code.
fn error_of(done: &Output) -> (Option<i32>, String) {
    (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
}

/// Runs `edged pods` with this output; the list is answered once nobody reads any more.
#[cfg(feature = "api")]
fn pods_printed_to(out: Stdio) -> (Option<i32>, String) {
    use std::io::{Read, Write};

    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let server = listener.local_addr().expect("it listens").to_string();
    let child = edged(&["pods", "--server", &server]).stdout(out).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("it starts");
    drop(child.stdout.take());
    let (mut connection, _) = listener.accept().expect("it sends a request");
    let mut request = [0; 4_096];
    assert!(connection.read(&mut request).expect("it sends a request") > 0);
    let body = r#"{"kind": "PodList", "items": [{"metadata": {"name": "a"}}]}"#;
    write!(connection, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .expect("sent");
    drop(connection);
    error_of(&child.wait_with_output().expect("our child"))
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
        assert_eq!(error_of(&done), (Some(1), format!("edged: {why}")), "{command}");
        #[cfg(feature = "controller")]
        {
            let mut controller = Command::new(env!("CARGO_BIN_EXE_edgecontroller"));
            let done = controller.arg(command).stdout(full()).output().expect("it starts");
            assert_eq!(error_of(&done), (Some(1), format!("edgecontroller: {why}")), "{command}");
        }
    }
}

/// The output of `edged check` with these flags and one file below the test's folder.
#[cfg(feature = "api")]
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

#[cfg(feature = "api")]
#[test]
fn check_goes_by_its_flags_beside_a_broken_file() {
    let _alone = crate::jobs::alone();
    let output = checked("edgecore.yaml", "modules: [\n", |folder| {
        let file = folder.join("edgecore.yaml");
        let flags = ["--runtime", "/nowhere/x.sock", "--config"];
        let flags = flags.into_iter().map(str::to_owned);
        flags.chain([file.display().to_string()]).collect()
    });
    assert!(output.contains("edgecore.yaml:2:1: "), "{output}");
    assert!(output.contains(" /nowhere/x.sock: there is no such socket\n"), "{output}");
}

#[cfg(feature = "api")]
#[test]
fn check_reads_the_manifests_beside_one_that_cannot_be_read() {
    let _alone = crate::jobs::alone();
    let output = checked("web.yaml", "apiVersion: v1\nkind: Pod\nspec: 5\n", |folder| {
        std::os::unix::fs::symlink("loop.yaml", folder.join("loop.yaml"))
            .expect("a folder of ours");
        vec!["--manifests".to_owned(), folder.display().to_string()]
    });
    assert!(output.contains("/web.yaml:3:7: spec: got 5"), "{output}");
    assert!(output.contains("/loop.yaml: cannot be read: Too many levels"), "{output}");
    assert!(!output.contains("mkdir"), "{output}");
}

/// With 1: 2 would mean that there is nothing to call, and then an upgrade is trusted.
#[cfg(feature = "api")]
#[test]
fn status_asks_nobody_where_the_file_that_is_named_cannot_be_read() {
    let _alone = crate::jobs::alone();
    let done = edged(&["status", "--config", "/nowhere/edgecore.yaml"]).output();
    let (code, why) = error_of(&done.expect("it starts"));
    assert!(why.starts_with("edged status: cannot read /nowhere/edgecore.yaml: No such"), "{why}");
    assert_eq!(code, Some(1), "{why}");
}

#[cfg(feature = "api")]
#[test]
fn status_fails_where_the_runtime_is_not_ready() {
    use std::io::{Read, Write};

    let _alone = crate::jobs::alone();
    for (trouble, code) in [("null", 0), ("\"connection refused\"", 1)] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let server = listener.local_addr().expect("it listens").to_string();
        let mut command = edged(&["status", "--server", &server]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let (mut connection, _) = listener.accept().expect("it sends a request");
        assert!(connection.read(&mut [0; 4_096]).expect("it sends a request") > 0);
        let body = format!("{{\"runtimeTrouble\": {trouble}}}");
        let length = body.len();
        write!(connection, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")
            .expect("sent");
        drop(connection);
        let done = child.expect("it starts").wait_with_output().expect("our child");
        let output = String::from_utf8_lossy(&done.stdout).into_owned();
        assert_eq!(done.status.code(), Some(code), "{output}");
        assert_eq!(output.contains("NOT READY: connection refused"), code == 1, "{output}");
    }
}

#[test]
fn words_that_are_no_text_are_told_with_exit_code_2() {
    let _alone = crate::jobs::alone();
    let wrong = OsStr::from_bytes(b"caf\xe9");
    let mut commands = vec![&[][..], &["run"], &["run", "--manifests"]];
    if cfg!(feature = "api") {
        commands.extend([&["pods", "-n"][..], &["pods", "-o"], &["status", "--config"]]);
    }
    if cfg!(feature = "api") {
        commands.extend([&["check"][..], &["check", "--config"]]);
    }
    if cfg!(feature = "cloud") {
        commands.push(&["join", "--token"]);
    }
    for args in commands {
        let done = edged(args).arg(wrong).output().expect("it starts");
        let (code, why) = error_of(&done);
        assert_eq!(code, Some(2), "{args:?}: {why}");
        assert!(why.starts_with("edged") && why.contains("caf"), "{args:?}: {why}");
        assert!(!why.contains("panicked"), "{args:?}: {why}");
    }
}

#[cfg(feature = "images")]
#[test]
fn commands_about_images_say_what_is_wrong() {
    let _alone = crate::jobs::alone();
    let absent = "unix:///nowhere/x.sock: there is no such socket\n";
    let mut commands = vec![
        ("images", 2, "expected list, pull, rm, import or serve; "),
        ("images get", 2, "got \"get\", expected list, pull, rm, import or serve; "),
        ("images pull", 2, "pull: expected names of images; "),
        ("images pull a --force", 2, "invalid option '--force'; "),
        ("images pull a --username b", 2, "--username: got no password, expected one on "),
        ("images rm", 2, "rm: expected names of images; "),
        ("images import", 2, "import: expected archives; "),
        ("images list --config /nowhere", 1, "cannot read /nowhere: No such file"),
        ("images list --runtime /nowhere/x.sock", 1, absent),
        ("images pull a --runtime /nowhere/x.sock", 1, absent),
        ("images rm a --runtime /nowhere/x.sock", 1, absent),
    ];
    if cfg!(feature = "runtime") {
        commands.push(("runtime ps -o yaml", 2, "-o: got \"yaml\", expected json; "));
        commands.push(("runtime ps --runtime /nowhere/x.sock", 1, absent));
    }
    for (command, code, want) in commands {
        let words: Vec<&str> = command.split(' ').collect();
        let (got, why) = error_of(&edged(&words).output().expect("it starts"));
        let name = if words[0] == "runtime" { "runtime ps" } else { words[0] };
        assert_eq!(got, Some(code), "{command}: {why}");
        assert!(why.starts_with(&format!("edged {name}: {want}")), "{command}: {why}");
    }
}

/// The programs of this build.
fn programs() -> Vec<(&'static str, Vec<&'static str>)> {
    let edged = [
        &["run", "pods", "events", "devices", "describe", "logs", "exec", "attach"][..],
        &["port-forward", "cp", "top", "status", "check", "join", "images", "completion"],
    ]
    .concat();
    #[allow(unused_mut, reason = "the other has a feature of its own")]
    let mut programs = vec![(env!("CARGO_BIN_EXE_edged"), edged)];
    #[cfg(feature = "controller")]
    programs.push((
        env!("CARGO_BIN_EXE_edgecontroller"),
        vec!["run", "get", "apply", "delete", "token", "completion"],
    ));
    programs
}

#[test]
fn each_command_has_a_page_of_its_own() {
    let _alone = crate::jobs::alone();
    for (program, commands) in programs() {
        let run = |args: &[&str]| {
            let done = Command::new(program).args(args).output().expect("it starts");
            let output = String::from_utf8_lossy(&done.stdout).into_owned();
            (done.status.code(), output, String::from_utf8_lossy(&done.stderr).into_owned())
        };
        let (code, overview, nothing) = run(&[]);
        assert_eq!((code, &*nothing), (Some(0), ""));
        assert_eq!(run(&["--help"]).1, overview);
        for command in commands {
            assert!(overview.contains(&format!(" {command} ")), "{overview}");
            let (code, page, nothing) = run(&[command, "--help"]);
            assert_eq!((code, &*nothing), (Some(0), ""), "{command}");
            let name = program.rsplit('/').next().expect("a name");
            assert!(page.starts_with(&format!("usage: {name} {command} ")), "{page}");
            assert!(page.lines().all(|line| line.chars().count() <= 92), "{page}");
            assert_eq!(run(&[command, "x", "-h"]).1, page);
            assert_eq!(run(&["help", command]).1, page);
        }
        let (code, output, why) = run(&["completion", "fish"]);
        assert_eq!((code, &*output), (Some(2), ""), "{why}");
        assert!(why.contains("got \"fish\", expected bash"), "{why}");
    }
}

#[test]
fn bash_completes_commands_and_their_options() {
    let _alone = crate::jobs::alone();
    for (program, _) in programs() {
        let name = program.rsplit('/').next().expect("a name");
        let completed = |words: &str, at: usize| {
            let script = format!(
                "source <({program} completion bash) && COMP_WORDS=({name} {words}) && \
                 COMP_CWORD={at} && _{name} && echo \"${{COMPREPLY[*]}}\""
            );
            let done = Command::new("bash").args(["-c", &script]).output().expect("bash starts");
            assert!(done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
            String::from_utf8_lossy(&done.stdout).trim().to_owned()
        };
        assert_eq!(completed("com", 1), "completion");
        assert_eq!(completed("run --mani", 2), "--manifests");
        if name == "edgecontroller" {
            assert_eq!(completed("get no", 2), "nodes");
        } else {
            assert_eq!(completed("images imp", 2), "import");
        }
    }
}
