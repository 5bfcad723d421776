//! What containers may ask for beside a command: resources that change, devices, mounts that are
//! read-only throughout, groups, seccomp filters that are kept, and another OCI runtime's program.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use edged::io::builtin::{container, exec, update};
use edged::model::cri::{Device, Mount, Profile, Resources};
use edged::model::runtime::{ContainerId, Handler, JobFault, JobReply, MonitorFact};
use nix::mount::{MsFlags, mount};

use crate::place::{CRUN, Place, RUNC, in_namespace};

fn sleeping(place: &mut Place, letter: char, resources: Resources) -> ContainerId {
    let id = place.make(letter, |config| {
        config.command = vec!["sleep".into(), "600".into()];
        config.resources = resources;
    });
    place.start(&id);
    assert!(matches!(place.fact(&id), MonitorFact::Started { .. }));
    id
}

/// What a command in the container says.
fn said(place: &Place, id: &ContainerId, script: &str) -> String {
    let command = ["sh", "-c", script].map(str::to_owned);
    match exec::exec(&place.settings, &place.folder(id), &command, 9) {
        Ok(JobReply::Exec(output)) => {
            let all = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&all).into_owned()
        }
        other => panic!("{script}: {other:?}"),
    }
}

#[test]
fn resources_of_a_running_container_are_changed() {
    in_namespace(|| {
        for oci in [CRUN, RUNC] {
            let mut place = Place::new("update", oci);
            let mut wanted = Resources {
                cpu_shares: 512,
                cpu_period: 100_000,
                cpu_quota: 50_000,
                memory_limit: 64 << 20,
                ..Resources::default()
            };
            let id = sleeping(&mut place, 'a', wanted.clone());
            let cgroup = place.folder(&id).cgroup;
            let of = |controller: &str, file: &str| {
                let path = format!("/sys/fs/cgroup/{controller}{cgroup}/{file}");
                fs::read_to_string(&path).unwrap_or_else(|why| panic!("{path}: {why}"))
            };
            let is = |wanted: &Resources| {
                let found = [
                    of("cpu", "cpu.shares"),
                    of("cpu", "cpu.cfs_quota_us"),
                    of("memory", "memory.limit_in_bytes"),
                    of("cpuset", "cpuset.cpus"),
                ];
                let cpus = if wanted.cpuset_cpus.is_empty() { "0-1" } else { &wanted.cpuset_cpus };
                let expected = [
                    wanted.cpu_shares.to_string(),
                    wanted.cpu_quota.to_string(),
                    wanted.memory_limit.to_string(),
                    cpus.to_owned(),
                ];
                assert_eq!(found.map(|text| text.trim().to_owned()), expected, "{oci}");
            };
            is(&wanted);
            // More, then less, then only one of them.
            for (memory_limit, cpu_quota, cpus) in
                [(128 << 20, 80_000, ""), (32 << 20, 20_000, "0"), (48 << 20, 20_000, "0")]
            {
                wanted.cpuset_cpus = cpus.to_owned();
                (wanted.memory_limit, wanted.cpu_quota) = (memory_limit, cpu_quota);
                let done = update::update(&place.settings, &place.folder(&id), &wanted);
                assert_eq!(done, Ok(JobReply::Done), "{oci}: {memory_limit}");
                is(&wanted);
            }
            assert_eq!(said(&place, &id, "echo it lives"), "it lives\n");
            // Less than it uses, and a processor that there is not.
            let refused = Resources { cpuset_cpus: "4000".to_owned(), ..wanted };
            let refused = update::update(&place.settings, &place.folder(&id), &refused);
            assert!(matches!(refused, Err(JobFault::Failed(_))), "{oci}: {refused:?}");
            container::end(&place.settings, &place.folder(&id)).expect("ended");
            let gone = update::update(&place.settings, &place.folder(&id), &Resources::default());
            assert!(matches!(gone, Err(JobFault::Failed(_))), "{oci}: {gone:?}");
        }
    });
}

#[test]
fn a_device_is_there_with_what_may_be_done_with_it() {
    in_namespace(|| {
        for oci in [CRUN, RUNC] {
            let mut place = Place::new("devices", oci);
            let id = place.make('a', |config| {
                config.command = vec!["sleep".into(), "600".into()];
                let device = |host_path: &str, container_path: &str, permissions: &str| Device {
                    host_path: host_path.to_owned(),
                    container_path: container_path.to_owned(),
                    permissions: permissions.into(),
                };
                config.devices = vec![
                    device("/dev/loop-control", "/dev/deep/control", "r"),
                    device("/dev/full", "/dev/none", "rw"),
                ];
            });
            place.start(&id);
            assert!(matches!(place.fact(&id), MonitorFact::Started { .. }));
            let text = said(&place, &id, "ls -l /dev/deep/control");
            assert!(text.starts_with('c') && text.contains("10, 237"), "{oci}: {text}");
            // It is opened, and has nothing to read.
            let text = said(&place, &id, "cat /dev/deep/control");
            assert!(text.contains("Invalid argument"), "{oci}: {text}");
            let text = said(&place, &id, "echo x >/dev/deep/control");
            assert!(text.contains("Operation not permitted"), "{oci}: {text}");
            let text = said(&place, &id, "echo x >/dev/none");
            assert!(text.contains("No space left"), "{oci}: {text}");
            container::end(&place.settings, &place.folder(&id)).expect("ended");
        }
    });
}

#[test]
fn a_mount_is_read_only_with_what_is_mounted_in_it() {
    in_namespace(|| {
        for oci in [CRUN, RUNC] {
            let mut place = Place::new("rro", oci);
            let volume = place.top.join("volume");
            fs::create_dir_all(volume.join("inner")).expect("folders");
            let none = None::<&str>;
            mount(Some("t"), &volume.join("inner"), Some("tmpfs"), MsFlags::empty(), none)
                .expect("root may");
            let make = |place: &Place, letter, recursive_read_only| {
                place.try_make(letter, |config| {
                    let script = "touch /v/a; touch /v/inner/a; true";
                    config.command = ["sh", "-c", script].map(str::to_owned).into();
                    config.mounts = vec![Mount {
                        container_path: "/v".to_owned(),
                        host_path: volume.to_str().expect("text").to_owned(),
                        readonly: true,
                        recursive_read_only,
                        ..Mount::default()
                    }];
                })
            };
            let refused = make(&place, 'a', true);
            let Err(JobFault::Invalid(why)) = refused else { panic!("{oci}: {refused:?}") };
            assert!(why.starts_with("recursive_read_only: the kernel or the OCI"), "{why}");
            place.settings.handlers = vec![Handler {
                name: "".into(),
                program: oci.into(),
                recursive_read_only: true,
                user_namespaces: false,
            }];
            for (letter, recursive, refusals) in [('b', false, 1), ('c', true, 2)] {
                make(&place, letter, recursive).expect("it is made");
                let id = crate::place::id(letter);
                place.start(&id);
                assert!(matches!(place.fact(&id), MonitorFact::Started { .. }));
                assert!(matches!(place.fact(&id), MonitorFact::Exited { code: 0, .. }));
                let log = place.log(&id);
                assert_eq!(log.matches("Read-only file system").count(), refusals, "{oci}: {log}");
                container::end(&place.settings, &place.folder(&id)).expect("ended");
            }
        }
    });
}

#[test]
fn groups_of_the_image_count_unless_the_pod_says_otherwise() {
    in_namespace(|| {
        for oci in [CRUN, RUNC] {
            let mut place = Place::new("groups", oci);
            let etc = place.settings.layout.layer(&place.image.layers[1]).join("fs/etc");
            fs::write(etc.join("passwd"), "web:x:33:34::/:/bin/sh\n").expect("ours");
            fs::write(etc.join("group"), "www:x:34:\naudio:x:63:web\n").expect("ours");
            for (letter, strict_groups, expected) in
                [('a', false, "Groups:\t34 63 77 \n"), ('b', true, "Groups:\t34 77 \n")]
            {
                let id = place.make(letter, |config| {
                    config.command =
                        ["grep", "Groups", "/proc/self/status"].map(str::to_owned).into();
                    let user = &mut config.security.user;
                    (user.uid, user.groups) = (Some(33), vec![77]);
                    user.strict_groups = strict_groups;
                });
                place.start(&id);
                assert!(matches!(place.fact(&id), MonitorFact::Started { .. }));
                assert!(matches!(place.fact(&id), MonitorFact::Exited { code: 0, .. }));
                let log = place.log(&id);
                assert!(log.ends_with(expected), "{oci}: {log}");
                container::end(&place.settings, &place.folder(&id)).expect("ended");
            }
        }
    });
}

/// Prints what a start costs with and without a filter that is ready, in turns.
#[test]
fn a_seccomp_filter_is_made_once() {
    in_namespace(|| {
        for oci in [CRUN, RUNC] {
            let mut place = Place::new("seccomp", oci);
            let kept = place.settings.layout.seccomp();
            let (mut without, mut with) = (Vec::new(), Vec::new());
            for turn in 0..16 {
                if turn % 2 == 0 {
                    let _ = fs::remove_dir_all(&kept);
                }
                let id = place.make('a', |config| {
                    config.command = vec!["sleep".into(), "600".into()];
                    config.security.seccomp = Profile::RuntimeDefault;
                });
                let config = place.settings.layout.container(&id).join("config.json");
                let config = fs::read_to_string(config).expect("it was made");
                let began = Instant::now();
                place.start(&id);
                assert!(matches!(place.fact(&id), MonitorFact::Started { .. }));
                if turn % 2 == 0 { &mut without } else { &mut with }.push(began.elapsed());
                let is_ready = oci == CRUN && turn % 2 == 1;
                assert_eq!(config.contains("run.oci.seccomp_bpf_data"), is_ready, "{oci}");
                // The container and each command in it are confined.
                let script = "grep Seccomp: /proc/1/status /proc/self/status; \
                              mount -t tmpfs none /tmp";
                let text = said(&place, &id, script);
                assert_eq!(text.matches("Seccomp:\t2").count(), 2, "{oci}: {text}");
                assert!(text.contains("ermi"), "{oci}: {text}");
                container::end(&place.settings, &place.folder(&id)).expect("ended");
                container::remove(&place.settings, &id).expect("removed");
            }
            let count = fs::read_dir(&kept).map_or(0, Iterator::count);
            assert_eq!(count, usize::from(oci == CRUN), "{oci}");
            let median = |all: &mut Vec<Duration>| {
                all.sort();
                all[all.len() / 2]
            };
            let (without, with) = (median(&mut without), median(&mut with));
            println!("{oci}: start {without:?}, with a filter that is kept {with:?}");
        }
    });
}

#[test]
fn what_another_program_has_made_is_ended_as_well() {
    in_namespace(|| {
        for (one, other) in [(CRUN, RUNC), (RUNC, CRUN), (RUNC, "/none")] {
            let mut place = Place::new("other", one);
            let id = sleeping(&mut place, 'a', Resources::default());
            place.settings.oci = other.into();
            container::end(&place.settings, &place.folder(&id)).expect("ended");
            assert!(matches!(place.fact(&id), MonitorFact::Exited { code: 137, .. }));
            container::remove(&place.settings, &id).expect("removed");
            assert!(Path::new(one).exists());
            place.is_clean();
        }
    });
}
