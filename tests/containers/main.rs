//! Containers of the built-in runtime with real OCI runtimes, crun and runc: the jobs that make and
//! end them, their monitors, and the server's side of those. Needs root, overlayfs, both programs
//! and Debian's `busybox-static`.
//!
//! Each test runs in a mount namespace of its own. There cgroup v1 is without the mount of v2 at
//! its side, which crun 1.8 refuses.

#![allow(clippy::disallowed_methods, reason = "these tests measure and wait for real programs")]
#![allow(clippy::print_stdout, reason = "the figures are for a person")]

#[path = "../support/exec.rs"]
#[expect(dead_code, reason = "shared with tests that go through the agent")]
mod exec_client;
mod features;
mod place;
#[path = "../support/program.rs"]
mod program;
mod sessions;

use std::fs;
use std::time::{Duration, Instant};

use edged::io::builtin::{container, exec, monitors};
use edged::limits::MONITOR_EXIT_WAIT_MS;
use edged::model::cri::PidNamespace;
use edged::model::runtime::{JobFault, JobReply, MonitorFact};
use edged::runtime::event::{Event, Found};
use place::{CRUN, Place, RUNC, in_namespace};

/// A container that counts lines until it gets SIGTERM, and then exits with 42.
const COUNTER: &str = "trap 'echo end; exit 42' TERM; i=0; \
                       while :; do i=$((i+1)); echo line $i; usleep 2000; done";

#[test]
fn a_container_runs_writes_its_log_and_ends() {
    in_namespace(|| {
        for oci in [CRUN, RUNC] {
            let mut place = Place::new("runs", oci);
            let script = "echo out; echo err >&2; pwd; id -u; printf rest; exit 7";
            let id = place.make('a', |config| {
                config.working_dir = "/srv/app".to_owned();
                config.command = vec!["sh".into(), "-c".into(), script.into()];
                config.security.user.uid = Some(1_000);
            });
            place.start(&id);
            let MonitorFact::Started { process, at } = place.fact(&id) else { panic!("{oci}") };
            assert!(process.pid > 1 && at > 1_767_225_600_000_000_000, "{process:?}");
            let fact = place.fact(&id);
            let MonitorFact::Exited { code: 7, oom_killed: false, at: end } = fact else {
                panic!("{oci}: {fact:?}")
            };
            assert!(end >= at);
            let log = place.log(&id);
            let lines: Vec<_> = log.lines().filter(|line| line.contains(" stdout ")).collect();
            let texts: Vec<_> = lines.iter().map(|line| &line[31..]).collect();
            let expected = ["stdout F out", "stdout F /srv/app", "stdout F 1000", "stdout P rest"];
            assert_eq!(texts, expected, "{oci}");
            assert!(log.contains("Z stderr F err\n"), "{log}");
            let folder = place.folder(&id);
            container::end(&place.settings, &folder).expect("ended");
            container::end(&place.settings, &folder).expect("nothing is left");
            container::remove(&place.settings, &id).expect("removed");
            container::remove(&place.settings, &id).expect("nothing is left");
            place.is_clean();
        }
    });
}

#[test]
fn a_monitor_that_is_killed_costs_neither_output_nor_exit_code() {
    in_namespace(|| {
        for oci in [CRUN, RUNC] {
            let mut place = Place::new("killed", oci);
            let id = place.shell('a', COUNTER);
            place.start(&id);
            let MonitorFact::Started { process, .. } = place.fact(&id) else { panic!("{oci}") };
            for _ in 0..3 {
                place.wait_for_lines(&id, 20);
                place.kill_monitor(&id);
                assert_eq!(place.fact(&id), MonitorFact::Gone, "{oci}");
                place.adopt(&id, &process);
                let MonitorFact::Started { process: again, .. } = place.fact(&id) else { panic!() };
                assert_eq!(again, process);
            }
            place.wait_for_lines(&id, 20);
            place.monitors.signal(&id, &process, 15);
            let fact = place.fact(&id);
            assert!(matches!(fact, MonitorFact::Exited { code: 42, .. }), "{oci}: {fact:?}");
            place.log_is_whole(&id);
            container::end(&place.settings, &place.folder(&id)).expect("ended");
        }
    });
}

#[test]
fn a_container_that_ends_without_its_monitor_has_its_exit_code() {
    in_namespace(|| {
        let mut place = Place::new("orphan", CRUN);
        let id = place.shell('a', COUNTER);
        place.start(&id);
        let MonitorFact::Started { process, .. } = place.fact(&id) else { panic!() };
        place.wait_for_lines(&id, 5);
        place.kill_monitor(&id);
        assert_eq!(place.fact(&id), MonitorFact::Gone);
        place.monitors.signal(&id, &process, 9);
        place.wait_for_end(&process);
        // The monitor that shall adopt it comes too late.
        place.adopt(&id, &process);
        let fact = place.fact(&id);
        assert!(matches!(fact, MonitorFact::Exited { code: 137, .. }), "{fact:?}");
        container::end(&place.settings, &place.folder(&id)).expect("ended");
    });
}

#[test]
fn a_process_whose_end_nobody_saw_has_ended_with_255() {
    in_namespace(|| {
        let mut place = Place::new("lost", CRUN);
        let id = place.shell('a', "true");
        let mut process = Place::process_of(std::process::id());
        process.start_time += 1;
        let began = Instant::now();
        place.adopt(&id, &process);
        assert!(matches!(place.fact(&id), MonitorFact::Started { .. }));
        assert!(matches!(place.fact(&id), MonitorFact::Exited { code: 255, .. }));
        assert!(began.elapsed() >= Duration::from_millis(MONITOR_EXIT_WAIT_MS));
        container::end(&place.settings, &place.folder(&id)).expect("ended");
    });
}

#[test]
fn a_new_server_finds_what_the_old_one_left() {
    in_namespace(|| {
        let mut place = Place::new("server", CRUN);
        let lives = place.shell('a', COUNTER);
        let ends = place.shell('b', "sleep 0.3; exit 3");
        let alone = place.shell('c', COUNTER);
        let never = place.shell('d', "true");
        let mut process = None;
        for id in [&lives, &ends, &alone] {
            place.start(id);
            let MonitorFact::Started { process: of, .. } = place.fact(id) else { panic!("{id}") };
            process = Some(of);
        }
        place.kill_monitor(&alone);
        place.new_server();
        place.wait_for_file(&ends, "exit");
        let boot = process.clone().expect("started").boot;
        let found = place.monitors.adopt_all(&boot).expect("readable");
        let of = |id| found.iter().find(|(of, _)| of == id).map(|(_, found)| found.clone());
        assert_eq!(of(&lives), Some(Found::Monitored));
        let Some(Found::Ended(MonitorFact::Exited { code: 3, .. })) = of(&ends) else {
            panic!("{:?}", of(&ends))
        };
        assert!(
            matches!(of(&alone), Some(Found::Alone(of, Some(_)))  if Some(&of) == process.as_ref())
        );
        assert_eq!((of(&never), found.len()), (Some(Found::Remains), 4));
        // A monitor tells a new connection the last fact.
        let MonitorFact::Started { process, .. } = place.fact(&lives) else { panic!() };
        place.monitors.signal(&lives, &process, 15);
        let fact = place.fact(&lives);
        assert!(matches!(fact, MonitorFact::Exited { code: 42, .. }), "{fact:?}");
        place.log_is_whole(&lives);
        for id in [&lives, &ends, &alone, &never] {
            container::end(&place.settings, &place.folder(id)).expect("ended");
        }
        assert!(place.monitors.adopt_all(&boot).expect("readable").is_empty());
    });
}

#[test]
fn a_log_is_opened_again_without_a_gap() {
    in_namespace(|| {
        let mut place = Place::new("reopen", CRUN);
        let id = place.shell('a', COUNTER);
        place.start(&id);
        let MonitorFact::Started { process, .. } = place.fact(&id) else { panic!() };
        place.wait_for_lines(&id, 10);
        let (log, old) = (place.log_path(&id), place.log_path(&id) + ".old");
        fs::rename(&log, &old).expect("ours");
        place.monitors.reopen(&id, &mut place.events);
        assert_eq!(place.fact(&id), MonitorFact::Reopened(Ok(())));
        place.wait_for_lines(&id, 10);
        place.monitors.signal(&id, &process, 15);
        place.fact(&id);
        let text = fs::read_to_string(&old).expect("there") + &place.log(&id);
        fs::write(&log, text).expect("ours");
        place.log_is_whole(&id);
        place.monitors.reopen(&id, &mut place.events);
        assert!(matches!(place.fact(&id), MonitorFact::Reopened(Err(_))), "it has ended");
        container::end(&place.settings, &place.folder(&id)).expect("ended");
    });
}

#[test]
fn a_container_that_cannot_start_says_why() {
    in_namespace(|| {
        for oci in [CRUN, RUNC] {
            let mut place = Place::new("fails", oci);
            let id = place.make('a', |config| config.command = vec!["/none".into()]);
            place.start(&id);
            let MonitorFact::Failed(why) = place.fact(&id) else { panic!("{oci}") };
            assert!(why.contains("/none") && why.contains("o such file"), "{oci}: {why}");
            container::end(&place.settings, &place.folder(&id)).expect("ended");
            container::remove(&place.settings, &id).expect("removed");
            place.is_clean();
        }
        let mut place = Place::new("nolog", CRUN);
        let id = place.shell('a', "true");
        fs::remove_dir_all(place.top.join("log")).expect("ours");
        place.start(&id);
        let MonitorFact::Failed(why) = place.fact(&id) else { panic!() };
        assert!(why.starts_with("open ") && why.contains("No such file"), "{why}");
    });
}

#[test]
fn a_request_that_cannot_be_fulfilled_leaves_nothing() {
    in_namespace(|| {
        let place = Place::new("invalid", CRUN);
        let refused = |letter, change: &dyn Fn(&mut edged::model::cri::ContainerConfig)| {
            let Err(JobFault::Invalid(why)) = place.try_make(letter, change) else {
                panic!("{letter}")
            };
            place.is_clean();
            why
        };
        let why = refused('a', &|config| config.security.user.name = "nobody-there".into());
        assert!(why.contains("expected a user in the image's /etc/passwd"), "{why}");
        let why = refused('b', &|config| {
            let path = "/none.json".to_owned();
            config.security.seccomp = edged::model::cri::Profile::Localhost(path);
        });
        assert!(why.starts_with("seccomp: /none.json: No such file"), "{why}");
        let why = refused('c', &|config| {
            config.namespaces.pid = PidNamespace::Target(place::id('e'));
        });
        assert!(why.starts_with("target_id: got"), "{why}");
        let why = refused('d', &|config| {
            config.security.add_capabilities = vec!["FLY".into()];
        });
        assert!(why.starts_with("add_capabilities: got \"FLY\""), "{why}");
    });
}

#[test]
fn commands_run_in_a_container() {
    in_namespace(|| {
        for oci in [CRUN, RUNC] {
            let mut place = Place::new("exec", oci);
            let id = place.make('a', |config| {
                config.command = vec!["sleep".into(), "600".into()];
                config.envs = vec![("COLOR".into(), "blue".into())];
                config.security.user.uid = Some(1_000);
                config.working_dir = "/tmp".to_owned();
            });
            let run = |place: &Place, script: &str, timeout_s| {
                let command = ["sh", "-c", script].map(str::to_owned);
                exec::exec(&place.settings, &place.folder(&id), &command, timeout_s)
            };
            let refused = run(&place, "true", 0);
            assert!(matches!(refused, Err(JobFault::Failed(_))), "{oci}: it does not run yet");
            place.start(&id);
            assert!(matches!(place.fact(&id), MonitorFact::Started { .. }));
            let Ok(JobReply::Exec(output)) =
                run(&place, "echo $COLOR $(id -u) $(pwd); echo e >&2; exit 5", 9)
            else {
                panic!("{oci}")
            };
            assert_eq!(String::from_utf8_lossy(&output.stdout), "blue 1000 /tmp\n", "{oci}");
            assert_eq!((&*output.stderr, output.exit_code), (&b"e\n"[..], 5));
            // It would last for a day.
            let slow = run(&place, "sleep 86477 & sleep 86477", 1);
            assert_eq!(slow, Err(JobFault::TimedOut("timeout 1s exceeded".to_owned())));
            let Ok(JobReply::Exec(output)) = run(&place, "ps | grep -c 'sleep 86477$'", 9) else {
                panic!("{oci}")
            };
            assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n", "the session is killed");
            let none = ["/none".to_owned()];
            let none = exec::exec(&place.settings, &place.folder(&id), &none, 9);
            let Err(JobFault::Failed(why)) = none else { panic!("{oci}: {none:?}") };
            assert!(why.contains("exec failed") && why.contains("o such file"), "{oci}: {why}");
            let nothing = exec::exec(&place.settings, &place.folder(&id), &[], 9);
            assert!(matches!(nothing, Err(JobFault::Invalid(_))));
            // A command that was killed is a child of the server then, and its namespace waits.
            place.turn();
            container::end(&place.settings, &place.folder(&id)).expect("ended");
            let fact = place.fact(&id);
            assert!(matches!(fact, MonitorFact::Exited { code: 137, .. }), "{fact:?}");
        }
    });
}

#[test]
fn a_container_beyond_its_memory_is_told_of() {
    in_namespace(|| {
        let mut place = Place::new("oom", CRUN);
        let id = place.make('a', |config| {
            config.command =
                ["sh", "-c", "x=x; while :; do x=$x$x; done"].map(str::to_owned).into();
            config.resources.memory_limit = 16 << 20;
        });
        place.start(&id);
        assert!(matches!(place.fact(&id), MonitorFact::Started { .. }));
        let fact = place.fact(&id);
        assert!(
            matches!(fact, MonitorFact::Exited { code: 137, oom_killed: true, .. }),
            "{fact:?}"
        );
        container::end(&place.settings, &place.folder(&id)).expect("ended");
    });
}

#[test]
fn without_overlayfs_the_layers_are_copied() {
    in_namespace(|| {
        let mut place = Place::new("copy", CRUN);
        place.data_on_overlay();
        let id = place.shell('a', "cat /etc/layer; test -e /etc/gone || echo whiteout");
        place.start(&id);
        assert!(matches!(place.fact(&id), MonitorFact::Started { .. }));
        assert!(matches!(place.fact(&id), MonitorFact::Exited { code: 0, .. }));
        let log = place.log(&id);
        assert!(log.contains("F upper\n") && log.contains("F whiteout\n"), "{log}");
        container::end(&place.settings, &place.folder(&id)).expect("ended");
        container::remove(&place.settings, &id).expect("removed");
        place.is_clean();
    });
}

#[test]
fn volumes_of_an_image_have_its_content() {
    in_namespace(|| {
        let mut place = Place::new("volumes", CRUN);
        place.image.config.volumes = vec!["/etc".into(), "/made".into(), "/tmp".into()];
        let id = place.make('a', |config| {
            config.security.readonly_rootfs = true;
            let script = "cat /etc/layer; echo x > /made/x; touch /no 2>/dev/null || echo ro";
            config.command = ["sh", "-c", script].map(str::to_owned).into();
        });
        place.start(&id);
        assert!(matches!(place.fact(&id), MonitorFact::Started { .. }));
        let fact = place.fact(&id);
        assert!(matches!(fact, MonitorFact::Exited { code: 0, .. }), "{fact:?} {}", place.log(&id));
        let log = place.log(&id);
        assert!(log.contains("F upper\n") && log.contains("F ro\n"), "{log}");
        container::end(&place.settings, &place.folder(&id)).expect("ended");
    });
}

#[test]
fn a_terminal_is_one_stream() {
    in_namespace(|| {
        for oci in [CRUN, RUNC] {
            let mut place = Place::new("tty", oci);
            let id = place.make('a', |config| {
                config.terminal.tty = true;
                let script = "test -t 1 && echo terminal; echo $TERM >&2";
                config.command = ["sh", "-c", script].map(str::to_owned).into();
            });
            place.start(&id);
            assert!(matches!(place.fact(&id), MonitorFact::Started { .. }), "{oci}");
            assert!(matches!(place.fact(&id), MonitorFact::Exited { code: 0, .. }));
            let log = place.log(&id);
            assert!(log.contains("stdout F terminal\r\n"), "{log}");
            assert!(log.contains("stdout F xterm\r\n"), "{log}");
            container::end(&place.settings, &place.folder(&id)).expect("ended");
        }
    });
}

/// Prints how long the two steps of a start take, and what a monitor costs.
#[test]
fn figures() {
    in_namespace(|| {
        for oci in [CRUN, RUNC] {
            let mut place = Place::new("figures", oci);
            let (mut makes, mut starts, mut execs) = (Vec::new(), Vec::new(), Vec::new());
            for letter in "0123456789".chars() {
                let began = Instant::now();
                let id = place.make(letter, |config| {
                    config.command = vec!["sleep".into(), "600".into()];
                });
                makes.push(began.elapsed());
                let began = Instant::now();
                place.start(&id);
                assert!(matches!(place.fact(&id), MonitorFact::Started { .. }));
                starts.push(began.elapsed());
                let began = Instant::now();
                let done = exec::exec(&place.settings, &place.folder(&id), &["true".to_owned()], 9);
                assert!(done.is_ok(), "{done:?}");
                execs.push(began.elapsed());
            }
            let median = |all: &mut Vec<Duration>| {
                all.sort();
                all[all.len() / 2]
            };
            println!(
                "{oci}: make {:?}, start {:?}, exec {:?}; PSS, private of a monitor: {:?} kB",
                median(&mut makes),
                median(&mut starts),
                median(&mut execs),
                place.memory(&place::id('0'))
            );
            for letter in "0123456789".chars() {
                let id = place::id(letter);
                container::end(&place.settings, &place.folder(&id)).expect("ended");
            }
        }
    });
}

/// That a fact is one of a container's, and not another event.
fn fact_of(event: Event) -> Option<(edged::model::runtime::ContainerId, MonitorFact)> {
    match event {
        Event::Monitor(id, fact) => Some((id, fact)),
        _ => None,
    }
}

/// How the tests see an ended child.
fn ended(status: nix::sys::wait::WaitStatus) -> Option<(i32, monitors::Ended)> {
    use nix::sys::wait::WaitStatus;
    match status {
        WaitStatus::Exited(pid, code) => Some((pid.as_raw(), monitors::Ended::Exited(code))),
        WaitStatus::Signaled(pid, signal, _) => {
            Some((pid.as_raw(), monitors::Ended::Killed(signal as i32)))
        }
        _ => None,
    }
}
