//! Calls of the OCI runtime, crun or runc: a program that runs for some milliseconds. Both take the
//! same arguments and write the same log; what they say of a failure is in the log's last error.

use std::fs;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::statfs::statfs;
use serde::Deserialize;

use super::layout::Settings;
use super::process::{self, PidFd};
use super::{cgroup, program, read_only};
use crate::io::clock;
use crate::limits::{CRI_STATUS_TEXT_BYTES_MAX, RUNTIME_OCI_LOG_BYTES_MAX, RUNTIME_RUN_BYTES_MIN};
use crate::model::error::System;

/// A call, without the words that are its own. Its log is `log`, which is emptied.
pub fn command(settings: &Settings, log: &Path) -> Command {
    let _ = fs::remove_file(log);
    let mut command = program::unbounded(read_only::path(&settings.layout, &settings.oci));
    command.arg("--root").arg(settings.layout.oci());
    command.arg("--log").arg(log).args(["--log-format", "json"]);
    // Variables such as LISTEN_FDS would change what it does.
    command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Runs it to its end; at the deadline it is killed. The error is its text.
pub fn run(command: Command, log: &Path, max: Duration) -> Result<(), System> {
    run_while(command, log, max, || ())
}

/// The same for a call that puts a process into cgroups.
pub fn run_joining(command: Command, log: &Path, max: Duration) -> Result<(), System> {
    run_while(command, log, max, cgroup::begin_grace_period)
}

fn run_while(
    mut command: Command,
    log: &Path,
    max: Duration,
    meanwhile: impl FnOnce(),
) -> Result<(), System> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |why: &dyn std::fmt::Display| System::at(&name, why);
    let child = command.spawn().map_err(|error| failed(&format_args!("not started: {error}")))?;
    meanwhile();
    match wait(child, max) {
        Ok(Some(status)) if status.success() => Ok(()),
        Ok(Some(status)) => {
            Err(explained(last_error(log).map_or_else(|| failed(&status), System::new), log))
        }
        Ok(None) => Err(failed(&format_args!("not ended within {} s", max.as_secs()))),
        Err(error) => Err(failed(&error)),
    }
}

/// What an OCI runtime does not always say: there was no room for the files that it writes.
fn explained(why: System, log: &Path) -> System {
    let folder = log.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize().unwrap_or_default();
    let Ok(on) = statfs(&folder) else { return why };
    let bytes = on.blocks_available().saturating_mul(on.block_size() as u64);
    if bytes >= RUNTIME_RUN_BYTES_MIN {
        return why;
    }
    let folder = folder.display();
    System::new(format!("{why}: no space left on device: {bytes} bytes for {folder}"))
}

/// `None`: it was killed at its deadline.
pub fn wait(mut child: Child, max: Duration) -> io::Result<Option<ExitStatus>> {
    let handle = PidFd::open(child.id() as i32)?;
    let until = clock::precise() + max;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        let left = until.saturating_sub(clock::precise());
        if left.is_zero() {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        // Without a handle it is asked again and again.
        let most = if handle.readable().is_some() { 10_000 } else { 10 };
        if !handle.has_ended(left.as_millis().clamp(1, most) as u16) && most == 10 {
            process::pause(1);
        }
    }
}

/// One line of the log.
#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    msg: String,
    #[serde(default)]
    level: String,
}

/// The last error in a log of an OCI runtime, as much of it as a status may have.
pub fn last_error(log: &Path) -> Option<String> {
    let text = tail(log).ok()?;
    let lines =
        text.lines().rev().filter_map(|line| serde_json::from_slice::<Line>(line.as_bytes()).ok());
    let mut errors = lines.filter(|line| matches!(&*line.level, "error" | "fatal"));
    errors.next().map(|line| shortened(line.msg))
}

fn shortened(mut text: String) -> String {
    let mut end = CRI_STATUS_TEXT_BYTES_MAX.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

/// The end of a file that may be long: containers do not write it, but a runtime that is told to
/// say more does.
fn tail(path: &Path) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(RUNTIME_OCI_LOG_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(RUNTIME_OCI_LOG_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether the runtime has something of this name, so that a call for nothing is saved.
pub fn knows(settings: &Settings, id: &str) -> bool {
    let state = fs::symlink_metadata(settings.layout.oci().join(id));
    !matches!(state, Err(error) if error.kind() == ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::io::builtin::layout::Layout;
    use crate::model::builtin::Registries;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("edged-oci-{name}-{}", std::process::id()))
    }

    #[test]
    fn the_last_error_of_the_log_is_the_text() {
        let log = place("log");
        for (text, expected) in [
            (r#"{"msg":"a","level":"error"}{"#, None),
            (
                "{\"msg\":\"a\",\"level\":\"error\"}\n{\"msg\":\"b\",\"level\":\"warning\"}\n",
                Some("a"),
            ),
            (
                "{\"msg\":\"a\",\"level\":\"error\"}\nx\n{\"msg\":\"b\",\"level\":\"error\"}",
                Some("b"),
            ),
            ("", None),
        ] {
            fs::write(&log, text).expect("a file of ours");
            assert_eq!(last_error(&log).as_deref(), expected, "{text}");
        }
        // Of a long log the end is read, and of a long text the beginning is taken.
        let error = |letter: char, count: usize| {
            let msg = letter.to_string().repeat(count);
            format!("{{\"level\":\"error\",\"msg\":\"{msg}\"}}\n")
        };
        let text = error('a', 5) + &error('é', RUNTIME_OCI_LOG_BYTES_MAX as usize / 2 - 100);
        fs::write(&log, text).expect("a file of ours");
        assert_eq!(last_error(&log).map(|text| text.len()), Some(CRI_STATUS_TEXT_BYTES_MAX));
        let text = error('a', 5) + &error('b', RUNTIME_OCI_LOG_BYTES_MAX as usize);
        fs::write(&log, text).expect("a file of ours");
        assert_eq!(last_error(&log), None);
        fs::remove_file(&log).expect("ours");
        assert_eq!(last_error(&log), None);
    }

    #[test]
    fn a_call_has_an_empty_log_and_no_variables_of_ours() {
        let log = place("begin");
        fs::write(&log, r#"{"level":"error","msg":"of an earlier call"}"#).expect("ours");
        let settings = Settings {
            layout: Layout::new("/none/run".into(), "/none/data".into()),
            oci: "/none/crun".into(),
            handlers: Vec::new(),
            cni_conf_dir: PathBuf::new(),
            cni_bin_dir: PathBuf::new(),
            registries: Registries::default(),
        };
        let call = command(&settings, &log);
        assert!(!log.exists());
        let names: Vec<_> = call.get_envs().map(|(name, _)| name.to_owned()).collect();
        assert_eq!(names, ["PATH"]);
    }

    #[test]
    fn a_failure_where_there_is_no_room_says_so() {
        let top = place("room");
        fs::create_dir_all(&top).expect("a folder of ours");
        for (bytes, is_said) in [(RUNTIME_RUN_BYTES_MIN - 4_096, true), (1 << 20, false)] {
            let options = format!("size={bytes}");
            let (none, flags) = (None::<&str>, nix::mount::MsFlags::empty());
            nix::mount::mount(none, &top, Some("tmpfs"), flags, Some(&*options)).expect("root may");
            let why = run(Command::new("false"), &top.join("log"), Duration::from_secs(9));
            nix::mount::umount(&top).expect("ours");
            let why = why.expect_err("it fails").to_string();
            assert!(why.starts_with("false: exit status: 1"), "{why}");
            let end = format!(": no space left on device: {bytes} bytes for {}", top.display());
            assert_eq!(why.ends_with(&end), is_said, "{why}");
        }
        fs::remove_dir(&top).expect("ours");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let log = place("slow");
        let mut sleep = Command::new("sleep");
        // Longer than any test may take.
        sleep.arg("100000");
        let why = run(sleep, &log, Duration::from_millis(50)).expect_err("it takes too long");
        assert_eq!(why.to_string(), "sleep: not ended within 0 s");
        let why = run(Command::new("false"), &log, Duration::from_secs(9)).expect_err("it fails");
        assert_eq!(why.to_string(), "false: exit status: 1");
        let why = run(Command::new("/none"), &log, Duration::from_secs(9)).expect_err("absent");
        assert!(why.to_string().starts_with("/none: not started: No such file"), "{why}");
        assert_eq!(run(Command::new("true"), &log, Duration::from_secs(9)), Ok(()));
        // A job that makes one call has a minute.
        const { assert!(crate::limits::RUNTIME_OCI_CALL_MS_MAX < 60_000) }
    }
}
