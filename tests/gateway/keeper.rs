//! `edged-run`: restarts, slots, upgrades that hold and such that do not.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{Scratch, until};

const SCRIPT: &str = "config/init/edged-run";

/// An edged that writes its name where the test reads it, runs until TERM, and answers.
pub fn good(name: &str) -> String {
    format!(
        "#!/bin/sh
case $1 in
version) echo edged {name} ;;
status) exit 0 ;;
run)
    echo {name} >$RAN
    trap 'exit 0' TERM
    while :; do sleep 1 & wait $!; done
    ;;
esac
"
    )
}

/// One that ends at once.
const BROKEN: &str = "#!/bin/sh
case $1 in
version) echo edged broken ;;
run) echo broken >$RAN; exit 1 ;;
esac
";

/// A zombie does not live. One that is about to execute a program does, and has no words then.
pub fn lives(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which may have any characters.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

pub struct Gateway {
    pub scratch: Scratch,
    pub keeper: Option<Child>,
    pub trial_s: &'static str,
    pub flags: &'static str,
    memory_kb: &'static str,
}

impl Gateway {
    pub fn new() -> Self {
        let scratch = Scratch::new();
        scratch.program("edged-flashed", &good("flashed"));
        Self { scratch, keeper: None, trial_s: "2", flags: "", memory_kb: "" }
    }

    pub fn command(&self) -> Command {
        let mut command = self.scratch.sh(SCRIPT);
        command
            .env("EDGED_DEFAULTS", "/nowhere")
            .env("EDGED_HOME", self.scratch.path("home"))
            .env("EDGED_RUN", self.scratch.path("run"))
            .env("EDGED_FACTORY", self.scratch.path("edged-flashed"))
            .env("EDGED_RELEASE_KEY", self.scratch.path("release.pub"))
            .env("EDGED_TRIAL_S", self.trial_s)
            .env("EDGED_LINK_S", "1")
            .env("EDGED_MEMORY_KB", self.memory_kb)
            .env("EDGED_FLAGS", self.flags)
            .env("RAN", self.scratch.path("ran"))
            .env("TOP", &self.scratch.0);
        command
    }

    pub fn start(&mut self) {
        let _ = fs::remove_file(self.scratch.path("ran"));
        self.keeper = Some(self.command().spawn().expect("busybox runs"));
    }

    pub fn runs(&self, name: &str) {
        until(&format!("{name} runs"), || self.scratch.read("ran") == name);
    }

    pub fn pid(&self) -> Pid {
        until("edged runs", || !self.scratch.read("run/edged.pid").is_empty());
        Pid::from_raw(self.scratch.read("run/edged.pid").parse().expect("a pid"))
    }

    /// To an unsigned release: `signed` has the other tests.
    pub fn upgrade(&self, file: &PathBuf) -> Output {
        self.command().args(["upgrade", "--unsigned"]).arg(file).output().expect("busybox runs")
    }

    pub fn current(&self) -> String {
        self.scratch.read("home/current")
    }

    pub fn is_trusted(&self) -> bool {
        !self.scratch.path("home/trial").exists()
    }

    pub fn stop(&mut self) {
        let Some(mut keeper) = self.keeper.take() else { return };
        let _ = kill(Pid::from_raw(keeper.id() as i32), Signal::SIGTERM);
        keeper.wait().expect("it is our child");
    }

    /// As in a power failure: everything at once.
    fn cut(&mut self) {
        let mut keeper = self.keeper.take().expect("it runs");
        let edged = self.pid();
        keeper.kill().expect("it is our child");
        keeper.wait().expect("it is our child");
        let _ = kill(edged, Signal::SIGKILL);
        // Files in memory are gone.
        let _ = fs::remove_dir_all(self.scratch.path("run"));
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn what_dies_is_started_again_and_term_ends_both() {
    let mut gateway = Gateway::new();
    gateway.start();
    gateway.runs("flashed");
    let first = gateway.pid();
    kill(first, Signal::SIGKILL).expect("it runs");
    until("another runs", || {
        let now = gateway.scratch.read("run/edged.pid");
        !now.is_empty() && now != first.to_string()
    });
    let second = gateway.pid();
    gateway.stop();
    assert!(!lives(second), "edged outlives its keeper");
}

/// Otherwise an error of it would let the kernel end pods instead.
#[test]
fn its_memory_is_bounded_whatever_init_starts_it() {
    for (memory_kb, expected) in
        [("", None), ("70000", Some("70000")), ("unlimited", Some("unlimited"))]
    {
        let mut gateway = Gateway::new();
        let bound = gateway.scratch.path("bound").display().to_string();
        let flashed = good("flashed").replacen("run)", &format!("run) ulimit -d >{bound}"), 1);
        gateway.scratch.program("edged-flashed", &flashed);
        gateway.memory_kb = memory_kb;
        gateway.start();
        gateway.runs("flashed");
        let bound = gateway.scratch.read("bound");
        let Some(expected) = expected else {
            let meminfo = fs::read_to_string("/proc/meminfo").expect("proc");
            let total = meminfo.split_ascii_whitespace().nth(1).expect("MemTotal");
            let half = total.parse::<u64>().expect("a number") / 2;
            assert_eq!(bound, half.min(512 << 10).to_string());
            continue;
        };
        assert_eq!(bound, expected);
    }
}

#[test]
fn a_keeper_that_was_killed_leaves_no_second_edged() {
    let mut gateway = Gateway::new();
    gateway.start();
    gateway.runs("flashed");
    let left = gateway.pid();
    let mut keeper = gateway.keeper.take().expect("it runs");
    keeper.kill().expect("it is our child");
    keeper.wait().expect("it is our child");
    assert!(lives(left));
    gateway.start();
    gateway.runs("flashed");
    assert!(!lives(left), "two of them");
}

#[test]
fn an_upgrade_that_holds_is_trusted() {
    let mut gateway = Gateway::new();
    gateway.start();
    gateway.runs("flashed");
    let new = gateway.scratch.program("new", &good("new"));
    assert!(gateway.upgrade(&new).status.success());
    gateway.runs("new");
    assert_eq!(gateway.current(), "a");
    until("it is trusted", || gateway.is_trusted());
    let newer = gateway.scratch.program("newer", &good("newer"));
    assert!(gateway.upgrade(&newer).status.success());
    gateway.runs("newer");
    assert_eq!(gateway.current(), "b");
}

#[test]
fn an_upgrade_that_ends_again_and_again_is_left() {
    let mut gateway = Gateway::new();
    gateway.start();
    gateway.runs("flashed");
    let broken = gateway.scratch.program("broken", BROKEN);
    assert!(gateway.upgrade(&broken).status.success());
    gateway.runs("broken");
    gateway.runs("flashed");
    assert!(gateway.is_trusted());
    assert_eq!(gateway.current(), "");
}

#[test]
fn an_upgrade_that_does_not_answer_is_left_for_the_slot_before() {
    let mut gateway = Gateway::new();
    gateway.start();
    gateway.runs("flashed");
    let old = gateway.scratch.program("old", &good("old"));
    assert!(gateway.upgrade(&old).status.success());
    gateway.runs("old");
    until("it is trusted", || gateway.is_trusted());
    let mute = good("mute").replace("status) exit 0", "status) exit 1");
    let mute = gateway.scratch.program("mute", &mute);
    assert!(gateway.upgrade(&mute).status.success());
    gateway.runs("mute");
    gateway.runs("old");
    assert_eq!(gateway.current(), "a");
    assert!(gateway.is_trusted());
}

#[test]
fn an_upgrade_under_which_the_power_fails_three_times_is_left() {
    let mut gateway = Gateway::new();
    gateway.start();
    gateway.runs("flashed");
    let new = gateway.scratch.program("new", &good("new"));
    assert!(gateway.upgrade(&new).status.success());
    gateway.runs("new");
    for _ in 0..2 {
        gateway.cut();
        gateway.start();
        gateway.runs("new");
    }
    gateway.cut();
    gateway.start();
    gateway.runs("flashed");
    assert!(gateway.is_trusted());
}

#[test]
fn what_does_not_run_here_is_refused() {
    let gateway = Gateway::new();
    let other = gateway.scratch.program("other", "\u{7f}ELF of another machine");
    let refused = gateway.upgrade(&other);
    assert!(!refused.status.success());
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("does not run here"), "{why}");
    assert_eq!(gateway.current(), "");
    assert!(gateway.is_trusted());
}

#[test]
fn one_may_go_back_by_hand() {
    let mut gateway = Gateway::new();
    gateway.start();
    gateway.runs("flashed");
    let new = gateway.scratch.program("new", &good("new"));
    assert!(gateway.upgrade(&new).status.success());
    gateway.runs("new");
    assert!(gateway.command().arg("back").status().expect("busybox runs").success());
    gateway.runs("flashed");
}

#[test]
fn while_an_upgrade_is_tried_another_one_is_refused() {
    let mut gateway = Gateway::new();
    gateway.trial_s = "6";
    gateway.start();
    gateway.runs("flashed");
    let new = gateway.scratch.program("new", &good("new"));
    assert!(gateway.upgrade(&new).status.success());
    gateway.runs("new");
    let broken = gateway.scratch.program("broken", BROKEN);
    let refused = gateway.upgrade(&broken);
    assert!(!refused.status.success());
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("edged new is tried in slot a, for 6 s"), "{why}");
    assert!(why.contains("edged-run back"), "{why}");
    until("it is trusted", || gateway.is_trusted());
    assert!(gateway.upgrade(&broken).status.success());
    gateway.runs("broken");
    gateway.runs("new");
    until("it is trusted", || gateway.is_trusted());
}

#[test]
fn a_bad_upgrade_is_left_before_a_good_one_is_tried() {
    let mut gateway = Gateway::new();
    gateway.start();
    gateway.runs("flashed");
    let broken = gateway.scratch.program("broken", BROKEN);
    let new = gateway.scratch.program("new", &good("new"));
    assert!(gateway.upgrade(&broken).status.success());
    assert!(!gateway.upgrade(&new).status.success(), "the slot of what ran would be lost");
    gateway.runs("broken");
    gateway.runs("flashed");
    until("the trial is over", || gateway.is_trusted());
    assert!(gateway.upgrade(&new).status.success());
    gateway.runs("new");
    until("it is trusted", || gateway.is_trusted());
}

#[test]
fn what_did_not_hold_is_not_gone_back_to() {
    let mut gateway = Gateway::new();
    gateway.start();
    gateway.runs("flashed");
    let new = gateway.scratch.program("new", &good("new"));
    assert!(gateway.upgrade(&new).status.success());
    gateway.runs("new");
    until("it is trusted", || gateway.is_trusted());
    let broken = gateway.scratch.program("broken", BROKEN);
    assert!(gateway.upgrade(&broken).status.success());
    gateway.runs("broken");
    gateway.runs("new");
    assert!(gateway.command().arg("back").status().expect("busybox runs").success());
    gateway.runs("flashed");
}

#[test]
fn an_upgrade_that_the_power_cut_short_is_no_trial() {
    let mut gateway = Gateway::new();
    gateway.start();
    gateway.runs("flashed");
    let new = gateway.scratch.program("new", &good("new"));
    assert!(gateway.upgrade(&new).status.success());
    gateway.runs("new");
    until("it is trusted", || gateway.is_trusted());
    gateway.cut();
    // The state at that point: the running slot is still the other one.
    gateway.scratch.program("home/b/edged", BROKEN);
    fs::write(gateway.scratch.path("home/trial"), "b 0\n").expect("a file of ours");
    gateway.start();
    gateway.runs("new");
    until("it is no trial", || gateway.is_trusted());
    assert!(!gateway.scratch.path("home/b/edged").exists(), "it was never tried");
    gateway.cut();
    fs::write(gateway.scratch.path("home/trial"), "b 0\n").expect("a file of ours");
    let newer = gateway.scratch.program("newer", &good("newer"));
    assert!(gateway.upgrade(&newer).status.success(), "it must not be locked for ever");
    gateway.start();
    gateway.runs("newer");
}

/// Whether an edged whose `status` does this is trusted when it is started with these flags.
fn holds(flags: &'static str, status: &str) -> bool {
    let mut gateway = Gateway::new();
    gateway.flags = flags;
    gateway.start();
    gateway.runs("flashed");
    let new = good("new").replace("status) exit 0", &format!("status) shift; {status}"));
    let new = gateway.scratch.program("new", &new);
    assert!(gateway.upgrade(&new).status.success());
    gateway.runs("new");
    until("the trial is over", || gateway.is_trusted());
    gateway.current() == "a"
}

#[test]
fn it_is_asked_where_its_flags_say_that_it_listens() {
    let status = "[ \"$*\" = '--server 127.0.0.1:7' ] || exit 1";
    assert!(holds("--config /etc/other.yaml --listen 127.0.0.1:8 --listen=127.0.0.1:7", status));
    assert!(!holds("--listen 127.0.0.1:8", status));
    let status = "[ \"$*\" = '--config /etc/other.yaml' ] || exit 1";
    assert!(holds("--log warn --config=/etc/other.yaml --node-name gw", status));
    assert!(holds("--config /etc/other.yaml", status));
}

#[test]
fn one_that_cannot_be_asked_is_trusted_if_it_lives() {
    assert!(holds("--listen off", "exit 1"));
    assert!(holds("--listen 127.0.0.1:0", "exit 1"));
    let not_built_in =
        "echo 'edged status: `status` is not built into this edged (feature `api`)' >&2; exit 1";
    assert!(holds("", not_built_in));
    // `readOnlyPort: 0`, or an edged that does not know the flag.
    assert!(holds("--config /etc/other.yaml", "exit 2"));
    // It answers; a failing runtime is not its fault.
    assert!(holds("", "echo 'node       gw'; echo 'runtime    NOT READY: gone'; exit 1"));
    assert!(!holds("", "echo 'edged status: nothing listens on 127.0.0.1:10350' >&2; exit 1"));
}

#[test]
#[expect(clippy::zombie_processes, reason = "it is a child of a waiting process, or has ended")]
fn a_second_keeper_ends_and_leaves_the_first_alone() {
    let mut gateway = Gateway::new();
    gateway.start();
    gateway.runs("flashed");
    let edged = gateway.pid();
    let mut second = gateway.command().spawn().expect("busybox runs");
    let mut ended = None;
    let begun = std::time::Instant::now();
    while ended.is_none() && begun.elapsed().as_secs() < 10 {
        ended = second.try_wait().expect("it is our child");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    if ended.is_none() {
        let _ = kill(Pid::from_raw(second.id() as i32), Signal::SIGTERM);
        second.wait().expect("it is our child");
    }
    assert!(ended.is_some_and(|code| !code.success()), "two keepers");
    assert_eq!(gateway.pid(), edged);
    assert!(lives(edged), "the first one's edged was ended");
    // A leftover of a power cut or a kill, even if its pid belongs to another process now.
    gateway.stop();
    fs::write(gateway.scratch.path("run/keeper.pid"), "1\n").expect("a file of ours");
    gateway.start();
    gateway.runs("flashed");
}

/// As one that is sent between the fork and the exec of a child.
#[test]
fn a_signal_that_is_lost_on_its_way_is_sent_again() {
    let mut gateway = Gateway::new();
    let deaf = good("flashed").replace("trap 'exit 0' TERM", "trap \"trap 'exit 0' TERM\" TERM");
    gateway.scratch.program("edged-flashed", &deaf);
    gateway.start();
    gateway.runs("flashed");
    let edged = gateway.pid();
    gateway.stop();
    assert!(!lives(edged));
}

/// busybox does not identify a script by its name: a second `start` was a second keeper.
#[test]
fn buildroots_script_starts_one_keeper_and_ends_it() {
    let gateway = Gateway::new();
    let run = gateway.scratch.path("run").display().to_string();
    let keeper = gateway.scratch.path("edged-run").display().to_string();
    let text = fs::read_to_string(SCRIPT).expect(SCRIPT).replace("#!/bin/sh", "#!/bin/busybox sh");
    gateway.scratch.program("edged-run", &text);
    let init = fs::read_to_string("config/init/S90edged").expect("it is there");
    let init = init.replace("/usr/sbin/edged-run", &keeper).replace("/run/edged", &run);
    let init = gateway.scratch.program("S90edged", &init);
    let succeeds = |what: &str| {
        let mut command = Command::new("/bin/busybox");
        let vars = gateway.command();
        for (name, value) in vars.get_envs() {
            command.env(name, value.expect("it is set"));
        }
        command.arg("sh").arg(&init).arg(what).status().expect("busybox runs").success()
    };
    assert!(succeeds("start"));
    gateway.runs("flashed");
    let (first, edged) = (gateway.scratch.read("run/keeper.pid"), gateway.pid());
    assert!(succeeds("start"), "it runs already");
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(gateway.scratch.read("run/keeper.pid"), first);
    assert!(lives(edged), "ended by a second keeper");
    assert!(succeeds("restart"));
    until("another runs", || {
        !["", &*edged.to_string()].contains(&&*gateway.scratch.read("run/edged.pid"))
    });
    let edged = gateway.pid();
    assert!(succeeds("stop"));
    until("it ends", || !lives(edged));
}

#[test]
fn where_nobody_reads_standard_error_the_log_goes_to_syslog() {
    let to_syslog = |stderr: Stdio, log: &str| {
        let mut gateway = Gateway::new();
        let mut command = gateway.command();
        command.env("EDGED_LOG", log).stderr(stderr);
        gateway.keeper = Some(command.spawn().expect("busybox runs"));
        gateway.runs("flashed");
        // The output of edged goes through it to logger(1), which is busybox's own here.
        let pipe = gateway.scratch.path("run/edged.log").exists();
        gateway.stop();
        pipe
    };
    // As start-stop-daemon and supervise-daemon leave it.
    assert!(to_syslog(Stdio::null(), ""));
    assert!(!to_syslog(Stdio::null(), "stderr"));
    assert!(!to_syslog(Stdio::piped(), ""), "it has a reader");
    assert!(to_syslog(Stdio::piped(), "syslog"));
}

/// An edged whose status says with this exit code whether it has reached its cloud.
fn linked(name: &str, code: &str) -> String {
    good(name).replacen(
        "status) exit 0 ;;",
        &format!("status)\n    case \" $* \" in *' --connected '*) exit {code} ;; esac\n    ;;"),
        1,
    )
}

#[test]
fn an_upgrade_that_must_reach_its_cloud_and_does_not_is_left_with_the_reason() {
    let mut gateway = Gateway::new();
    gateway.start();
    gateway.runs("flashed");
    let away = gateway.scratch.program("away", &linked("away", "3"));
    let mut command = gateway.command();
    command.args(["upgrade", "--unsigned", "--connected"]).arg(&away);
    assert!(command.output().expect("busybox runs").status.success());
    gateway.runs("away");
    let trial = gateway.scratch.read("home/trial");
    assert!(trial.ends_with(" connected"), "{trial}");
    gateway.runs("flashed");
    until("it is left", || gateway.is_trusted());
    assert_eq!(gateway.current(), "");
    assert_eq!(gateway.scratch.read("home/left"), "has not reached its cloud in 3 s");
    // Without the demand it holds, and the reason of the one before is gone.
    assert!(gateway.upgrade(&away).status.success());
    gateway.runs("away");
    until("it is trusted", || gateway.is_trusted());
    assert_eq!(gateway.scratch.read("home/left"), "");
}

#[test]
fn an_upgrade_that_reaches_its_cloud_or_cannot_say_so_is_trusted() {
    for (name, code) in [("here", "0"), ("older", "2"), ("unready", "1")] {
        let mut gateway = Gateway::new();
        gateway.start();
        gateway.runs("flashed");
        let new = gateway.scratch.program(name, &linked(name, code));
        let mut command = gateway.command();
        command.args(["upgrade", "--connected", "--unsigned"]).arg(&new);
        assert!(command.output().expect("busybox runs").status.success());
        gateway.runs(name);
        until("it is trusted", || gateway.is_trusted());
        assert_eq!(gateway.current(), "a");
    }
}

#[test]
fn edged_knows_its_keeper_and_its_slots() {
    let mut gateway = Gateway::new();
    let known = gateway.scratch.path("known").display().to_string();
    let tell = format!("run)\n    echo $EDGED_KEEPER $EDGED_HOME >{known}\n");
    gateway.scratch.program("edged-flashed", &good("flashed").replacen("run)\n", &tell, 1));
    gateway.start();
    gateway.runs("flashed");
    let keeper = fs::canonicalize(std::path::Path::new(crate::TOP).join(SCRIPT)).expect("a file");
    let home = gateway.scratch.path("home");
    let expected = format!("{} {}", keeper.display(), home.display());
    assert_eq!(gateway.scratch.read("known"), expected);
    let first = gateway.pid();
    assert!(gateway.command().arg("restart").status().expect("busybox runs").success());
    until("another runs", || {
        let now = gateway.scratch.read("run/edged.pid");
        !now.is_empty() && now != first.to_string()
    });
}
