//! The built-in runtime: the agent drives it as it drives containerd.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;

use crate::World;
use crate::support::agent::{KEEP_ALL, Pod, Site, binary, manifest, settings};
use crate::support::containerd::{Containerd, Kind, run};
use crate::support::port::free_port;
use crate::support::process;
use crate::support::registry::archive;
use crate::support::runtime_state;
use crate::support::wait::until;

crate::tests!(
    a_pod_lives_on_while_server_and_monitors_are_killed_and_leaves_nothing,
    containers_from_before_a_power_cut_are_begun_anew,
    an_image_in_a_folder_has_its_ordinary_name_and_people_see_it,
    a_pod_whose_process_namespace_is_gone_runs_again,
    what_an_oci_runtime_has_deleted_is_begun_anew_and_removed_once,
    what_stops_the_runtime_leaves_no_process_and_no_mount,
    pods_with_users_of_their_own_are_nobody_on_the_host,
    a_pod_whose_records_cannot_be_read_runs_on,
);

/// A shell that counts in tenths of a second, and ends at once when it is told to.
fn counter(network: &str) -> String {
    let command = "trap 'exit 42' TERM; i=0; while :; do echo line $i; i=$((i+1)); sleep 0.1; done";
    let container = format!("    command: [/bin/sh, -c, \"{command}\"]\n");
    manifest("count", network, &container)
}

fn site(world: &World, name: &str) -> (Containerd, Site) {
    let dir = world.folder(name);
    let runtime = Containerd::start_kind(dir.join("c"), Kind::Builtin);
    let site = Site::new(dir.join("s"), runtime.socket());
    (runtime, site)
}

/// The numbers that the pod has written, over all files of its log.
fn lines(site: &Site) -> Vec<u64> {
    let mut files: Vec<PathBuf> = Vec::new();
    let mut folders = vec![site.pod_logs.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of ours") {
            let path = entry.expect("a folder of ours").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    let text: String =
        files.iter().map(|file| fs::read_to_string(file).unwrap_or_default()).collect();
    let number = |line: &str| line.rsplit_once(" F line ").and_then(|(_, n)| n.parse().ok());
    text.lines().filter_map(number).collect()
}

/// The monitors of this runtime, by their arguments.
pub(crate) fn monitors(dir: &Path) -> Vec<u32> {
    processes_in(&dir.join("rt/c"))
}

/// Processes that have a folder in this one as an argument.
fn processes_in(folder: &Path) -> Vec<u32> {
    let is_one = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words
            .split(|byte| *byte == 0)
            .any(|word| Path::new(&*String::from_utf8_lossy(word)).parent() == Some(folder))
    };
    let entries = fs::read_dir("/proc").expect("it is mounted").flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(is_one).collect()
}

/// The process of the one container.
fn first_process(dir: &Path) -> i64 {
    let mut folders = fs::read_dir(dir.join("rt/c")).expect("a folder of ours");
    let folder = folders.next().expect("a container").expect("a folder of ours").path();
    let text = fs::read_to_string(folder.join("pid")).expect("it runs");
    // PID START BOOT CGROUP
    text.split(' ').next().expect("a word").parse().expect("a number")
}

fn written(site: &Site, more: usize) {
    let least = lines(site).len() + more;
    until("the pod goes on writing", || match lines(site).len() {
        count if count >= least => Ok(()),
        count => Err(format!("{count} lines of {least}")),
    });
}

fn a_pod_lives_on_while_server_and_monitors_are_killed_and_leaves_nothing(world: &World) {
    let (runtime, site) = site(world, "bk");
    site.put("count.yaml", &counter(""));
    let _agent = site.start();
    let pod = site.wait_running("count");
    written(&site, 5);
    for _ in 0..3 {
        runtime.restart();
        written(&site, 5);
        let all = monitors(runtime.dir());
        assert_eq!(all.len(), 1, "one monitor for each container: {all:?}");
        process::signal(all[0], Signal::SIGKILL);
        until("another monitor takes over", || match &monitors(runtime.dir())[..] {
            [one] if *one != all[0] => Ok(()),
            other => Err(format!("{other:?}")),
        });
        written(&site, 5);
    }
    let numbers = lines(&site);
    let expected: Vec<u64> = (0..numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "no line is missing, and none comes twice");
    let state = runtime_state::list(&site.runtime);
    assert_eq!(state.running("main").len(), 1, "{}", state.short());
    site.take("count.yaml");
    site.wait_gone(&pod);
    nothing_is_left(&runtime);
}

fn nothing_is_left(runtime: &Containerd) {
    until("the runtime has nothing left of it", || {
        let left: Vec<_> = ["rt/c", "rt/sb", "rt/oci", "rt/rec", "data/c", "data/sb", "data/cni"]
            .iter()
            .flat_map(|folder| fs::read_dir(runtime.dir().join(folder)).into_iter().flatten())
            .flatten()
            .map(|entry| entry.path())
            .collect();
        let mounts = runtime.pod_mounts();
        if left.is_empty() && mounts.is_empty() && monitors(runtime.dir()).is_empty() {
            return Ok(());
        }
        Err(format!("{left:?} {mounts:?}"))
    });
}

/// Bad blocks under the records of what runs, found by the next server.
fn a_pod_whose_records_cannot_be_read_runs_on(world: &World) {
    let (runtime, site) = site(world, "br");
    site.put("count.yaml", &counter(""));
    let _agent = site.start();
    let pod = site.wait_running("count");
    written(&site, 5);
    let pid = first_process(runtime.dir());
    runtime.kill();
    let records = ["data/sb", "data/c"].map(|folder| {
        let entries = fs::read_dir(runtime.dir().join(folder)).expect("a folder of ours");
        let mut paths = entries.map(|entry| entry.expect("a folder of ours").path());
        paths.find(|path| path.extension().is_some_and(|end| end == "rec")).expect("a record")
    });
    for record in &records {
        fs::remove_file(record).expect("ours");
        // It fails when it is opened.
        symlink(record, record).expect("a folder of ours");
    }
    runtime.start_daemon();
    until("the records are saved again", || {
        let is_file = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|it| it.is_file());
        if records.iter().all(is_file) { Ok(()) } else { Err(format!("{records:?}")) }
    });
    written(&site, 5);
    let log = fs::read_to_string(runtime.log()).expect("it has a log");
    for record in &records {
        let line = format!("{} cannot be read, and is saved again", record.display());
        assert!(log.contains(&line), "{log}");
        assert!(!record.with_extension("bad").exists());
    }
    runtime.restart();
    written(&site, 5);
    assert_eq!(first_process(runtime.dir()), pid);
    let state = site.runtime_state().of(pod.uid());
    assert_eq!((state.ready().len(), state.running("main").len()), (1, 1), "{}", state.short());
    assert_eq!(site.pod("count").expect("it runs").restarts("main"), 0);
    site.take("count.yaml");
    site.wait_gone(&pod);
    nothing_is_left(&runtime);
}

fn containers_from_before_a_power_cut_are_begun_anew(world: &World) {
    let (runtime, site) = site(world, "bc");
    site.put("count.yaml", &counter("  hostNetwork: true\n"));
    let agent = site.start();
    site.wait_running("count");
    written(&site, 5);
    drop(agent);
    let pid = first_process(runtime.dir());
    runtime.cut();
    until("nothing lives on without power", || {
        match fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(stat) if !stat.contains(") Z ") => Err(stat),
            _ => Ok(()),
        }
    });
    runtime.start_daemon();
    let before = lines(&site).len();
    let _agent = site.start();
    site.wait_running("count");
    until("it begins again", || match &lines(&site)[before..] {
        [] => Err("no line".to_owned()),
        [first, ..] if *first == 0 => Ok(()),
        more => panic!("{more:?}"),
    });
    let state = runtime_state::list(&site.runtime);
    assert_eq!(state.running("main").len(), 1, "{}", state.short());
}

/// Its first process is one of ours: with it the kernel ends all others of the pod, and no further
/// one can be started there.
fn a_pod_whose_process_namespace_is_gone_runs_again(world: &World) {
    let (runtime, site) = site(world, "bp");
    site.put("count.yaml", &counter("  shareProcessNamespace: true\n"));
    let _agent = site.start();
    let pod = site.wait_running("count");
    written(&site, 5);
    let old = site.runtime_state().of(pod.uid()).ready()[0].id.clone();
    let [first] = processes_in(&runtime.dir().join("rt/sb"))[..] else { panic!("one holds it") };
    process::signal(first, Signal::SIGKILL);
    until("it runs in another sandbox", || {
        let state = site.runtime_state().of(pod.uid());
        match (&state.ready()[..], &state.running("main")[..]) {
            ([sandbox], [main]) if sandbox.id != old && main.pod_sandbox_id == sandbox.id => Ok(()),
            _ => Err(format!("{}\n{}", state.short(), site.log_tail())),
        }
    });
    written(&site, 5);
    site.take("count.yaml");
    site.wait_gone(&pod);
    assert!(processes_in(&runtime.dir().join("rt/sb")).is_empty());
}

/// The program that has made the containers is at hand for anybody.
fn what_an_oci_runtime_has_deleted_is_begun_anew_and_removed_once(world: &World) {
    let (runtime, site) = site(world, "bd");
    site.put("count.yaml", &counter(""));
    let agent = site.start();
    let pod = site.wait_running("count");
    written(&site, 5);
    let log = || fs::read_to_string(runtime.log()).expect("it has a log");
    let oci = log().split_once(" oci=").expect("it says which one").1.to_owned();
    let oci = oci.split(' ').next().expect("a path").to_owned();
    let delete = |id: &str| {
        let root = runtime.dir().join("rt/oci");
        run(Command::new(&oci).arg("--root").arg(&root).args(["delete", "--force", id]));
        assert!(!root.join(id).exists(), "{id} is still there");
    };
    let first = site.runtime_state().of(pod.uid()).running("main")[0].id.clone();
    delete(&first);
    let again = site.wait("count", "it runs again", |pod| pod.runs() && pod.restarts("main") == 1);
    let second = site.runtime_state().of(pod.uid()).running("main")[0].id.clone();
    assert_ne!(first, second);
    let last = again.container("main")["lastState"]["terminated"]["exitCode"].as_i64();
    assert_eq!(last, Some(137), "{}", again.0["status"]);
    // The same while no agent is there, and then the pod is unwanted.
    agent.kill();
    site.take("count.yaml");
    delete(&second);
    let _agent = site.start();
    site.wait_empty();
    let log = log();
    assert!(!log.contains(" ERROR "), "nothing of it is an error of the runtime: {log}");
}

/// `scripts/builtin stop`
fn what_stops_the_runtime_leaves_no_process_and_no_mount(world: &World) {
    let (runtime, site) = site(world, "bs");
    site.put("count.yaml", &counter("  shareProcessNamespace: true\n"));
    let agent = site.start();
    site.wait_running("count");
    drop(agent);
    let dir = runtime.dir();
    let pid = first_process(dir);
    let folders = ["rt/c", "rt/sb"].map(|folder| dir.join(folder));
    let of_it = || folders.iter().flat_map(|folder| processes_in(folder)).collect::<Vec<_>>();
    assert_eq!(of_it().len(), 2, "a monitor, and what holds the process namespace");
    runtime.cut();
    until("no process of it is left", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let lives = !stat.is_empty() && !stat.contains(") Z ");
        if !lives && of_it().is_empty() { Ok(()) } else { Err(format!("{stat} {:?}", of_it())) }
    });
    let mounts = fs::read_to_string("/proc/self/mounts").expect("it is mounted");
    let below = format!(" {}/", dir.display());
    let left: Vec<&str> = mounts.lines().filter(|line| line.contains(&below)).collect();
    assert!(left.is_empty() && !dir.join("rt").exists(), "{left:?}");
    runtime.start_daemon();
}

/// `hostUsers: false`
fn pods_with_users_of_their_own_are_nobody_on_the_host(world: &World) {
    const SCRIPT: &str = "id -u; cat /proc/self/uid_map; echo own > /v/file; echo own > /etc/own; \
                          echo too >> /etc/hosts; cat /c/key; echo; echo again > /dev/stdout; \
                          stat -c %u:%g / /v /v/file /etc/hosts /c/key; \
                          trap 'exit 0' TERM; sleep 100000 & wait";
    let (runtime, site) = site(world, "bu");
    let text = |name: &str, more: &str| {
        let spec = format!(
            "  hostUsers: false\n{more}  terminationGracePeriodSeconds: 5\n  volumes:\n  - {{name: \
             v, emptyDir: {{}}}}\n  - {{name: c, configMap: {{name: own}}}}\n"
        );
        let container = format!(
            "    command: [/bin/sh, -c, {SCRIPT:?}]\n    volumeMounts:\n    \
             - {{name: v, mountPath: /v}}\n    - {{name: c, mountPath: /c}}\n"
        );
        manifest(name, &spec, &container)
    };
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\ndata: {key: value}\n";
    site.put("map.yaml", map);
    site.put("one.yaml", &text("one", ""));
    let agent = site.start();
    let one = site.wait_running("one");
    let lines = until("all is written", || {
        let all = logged(&site, &one);
        if all.len() >= 9 { Ok(all) } else { Err(format!("{all:?}\n{}", site.log_tail())) }
    });
    assert_eq!(lines[..1], ["0"]);
    let mapped: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!((mapped[0], mapped[2]), ("0", "65536"));
    let first: u32 = mapped[1].parse().expect("a user");
    assert!(first >= 65_536, "{first} is the host's own");
    assert_eq!(lines[2..4], ["value", "again"]);
    assert_eq!(lines[4..], ["0:0"; 5], "the root, volumes, and what is made in them");
    let owner = |path: &Path| fs::metadata(path).expect("it is there").uid();
    let process = format!("/proc/{}", first_process(runtime.dir()));
    assert_eq!(owner(Path::new(&process)), first, "nobody on the host");
    let volumes = site.root.join("pods").join(one.uid()).join("volumes");
    let file = volumes.join("kubernetes.io~empty-dir/v/file");
    assert_eq!(owner(&file), 0, "what is on the disk does not depend on the range");
    // Commands as well, and a stream that the command opens by name.
    let server = format!("unix://{}/edged.sock", site.root.display());
    let exec =
        ["exec", "one-gw", "--server", &server, "--", "sh", "-c", "id -u; echo x >/dev/stdout"];
    let output = Command::new(binary()).args(exec).output().expect("the program of this build");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\nx\n", "{output:?}");

    // After a restart of the agent another pod has other users, also with shared processes.
    drop(agent);
    let _agent = site.start();
    site.put("two.yaml", &text("two", "  shareProcessNamespace: true\n"));
    let two = site.wait_running("two");
    let lines = until("the second has written", || {
        let all = logged(&site, &two);
        if all.len() >= 9 { Ok(all) } else { Err(format!("{all:?}\n{}", site.log_tail())) }
    });
    let other = lines[1].split_whitespace().nth(1).and_then(|word| word.parse::<u32>().ok());
    assert!(other.is_some_and(|other| other.abs_diff(first) >= 65_536), "{lines:?}");
    assert_eq!(site.pod("one").expect("it runs").restarts("main"), 0);
    for (name, pod) in [("one.yaml", &one), ("two.yaml", &two)] {
        site.take(name);
        site.wait_gone(pod);
    }
    assert!(!volumes.exists(), "nothing is left of it");
    nothing_is_left(&runtime);
}

/// What a pod's first container has written.
fn logged(site: &Site, pod: &Pod) -> Vec<String> {
    let entries = fs::read_dir(&site.pod_logs).expect("a folder of ours").flatten();
    let is_its = |path: &PathBuf| path.to_string_lossy().ends_with(pod.uid());
    let folder = entries.map(|entry| entry.path()).find(is_its);
    let log = folder.map(|folder| folder.join("main/0.log"));
    let text = log.and_then(|log| fs::read_to_string(log).ok()).unwrap_or_default();
    text.lines().filter_map(|line| Some(line.split_once(" F ")?.1.to_owned())).collect()
}

/// An image that lasts until SIGTERM, in a folder of its own.
fn plant(dir: &Path, seconds: u32) -> PathBuf {
    let script = format!("trap 'exit 0' TERM; sleep {seconds} & wait");
    archive(dir, "plant", "[]", &format!("[\"/bin/sh\", \"-c\", \"{script}\"]"))
}

fn an_image_in_a_folder_has_its_ordinary_name_and_people_see_it(world: &World) {
    let dir = world.folder("bi");
    let stick = plant(&dir, 100_000);
    // The same file for both programs.
    let keys = format!("imageMirrorPort: {}\nimageFolders: [{}]\n", free_port(), stick.display());
    let config = dir.join("c/edgecore.yaml");
    fs::create_dir_all(dir.join("c")).expect("a folder of ours");
    fs::write(&config, settings(&keys, KEEP_ALL)).expect("a file of ours");
    let runtime = Containerd::start_kind(dir.join("c"), Kind::Builtin);
    let mut site = Site::new(dir.join("s"), runtime.socket());
    site.config = Some(config);
    let text = |name: &str, policy: &str| {
        manifest(name, "  hostNetwork: true\n", &format!("    imagePullPolicy: {policy}\n"))
            .replace("localhost/edged-demo:1", NAME)
    };
    site.put("one.yaml", &text("one", "IfNotPresent"));
    let _agent = site.start();
    let pod = site.wait_running("one");
    assert_eq!(pod.restarts("main"), 0);
    assert!(!site.log().contains("ErrImagePull"), "the first pull waits: {}", site.log_tail());
    let (done, list) = of(&runtime, &["runtime", "ps"]);
    let row = list.lines().find(|row| row.contains(" main ")).expect(&list);
    let words: Vec<&str> = row.split_whitespace().collect();
    assert!(done && words[1..6] == ["default", "one-gw", "main", "0", "Running"], "{list}");
    assert_eq!((words[0].len(), words[7]), (12, NAME), "{list}");
    assert!(list.contains(" (sandbox) "), "{list}");
    let (done, why) = of(&runtime, &["images", "rm", NAME]);
    assert!(!done && why.contains("(main) uses it"), "{why}");

    // A newer image in the folder, as with containerd: for who always pulls.
    let first = image(&runtime).expect("the runtime has it");
    let newer = plant(&dir.join("s"), 99_999).join("plant.tar");
    fs::rename(newer, stick.join("plant.tar")).expect("files of ours");
    until("the folder's newer image is pulled by name", || {
        let (done, text) = of(&runtime, &["images", "pull", NAME]);
        let now = image(&runtime);
        if done && now.as_ref() != Some(&first) { Ok(()) } else { Err(format!("{text} {now:?}")) }
    });
    site.put("two.yaml", &text("two", "Always"));
    site.wait_running("two");
    for file in ["one.yaml", "two.yaml"] {
        site.take(file);
    }
    site.wait_empty();
    images_are_removed_and_missed(&runtime);
}

fn images_are_removed_and_missed(runtime: &Containerd) {
    until("ended containers are listed with their code, or gone", || {
        let (_, list) = of(runtime, &["runtime", "ps", "-a"]);
        let ended = list.lines().skip(1).all(|row| !row.contains(" Running "));
        if ended { Ok(()) } else { Err(list) }
    });
    let (done, text) = of(runtime, &["images", "rm", "--force", NAME]);
    assert!(done && image(runtime).is_none(), "{text}");
    let (done, why) = of(runtime, &["images", "rm", NAME]);
    assert!(!done && why.contains(&format!("{NAME}: there is no such image")), "{why}");
    let (done, why) = of(runtime, &["images", "pull", "localhost/absent:1"]);
    assert!(!done && why.contains("localhost/absent:1: "), "{why}");
}

const NAME: &str = "localhost/plant:1";

/// What `edged` prints about this runtime, and whether it succeeds.
fn of(runtime: &Containerd, arguments: &[&str]) -> (bool, String) {
    let endpoint = format!("ttrpc://{}", runtime.socket().display());
    let mut command = Command::new(binary());
    let output = command.args(arguments).args(["--runtime", &endpoint]).output();
    let output = output.expect("the binary was built beside this test");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// The id of the image with this name.
fn image(runtime: &Containerd) -> Option<String> {
    let (done, list) = of(runtime, &["images", "list"]);
    assert!(done, "{list}");
    let row = list.lines().find(|row| row.split_whitespace().next() == Some(NAME))?;
    row.split_whitespace().nth(2).map(str::to_owned)
}
