//! Volumes that are folders: emptyDir, hostPath, and parts of them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::Entry;
use crate::case::{Case, QUICK_END, SLEEP, quoted};
use crate::support::agent::manifest;
use crate::support::wait::until;

const EMPTY_DIR: &str = "EmptyDir volumes";
const HOST_PATH: &str = "HostPath";
const EXPANSION: &str = "Variable Expansion";

pub(crate) const ROWS: &[Entry] = &[
    (EMPTY_DIR, "volume on tmpfs should have the correct mode", folder::<true>),
    (EMPTY_DIR, "should support (root,0644,tmpfs)", file::<0, 0o644, true>),
    (EMPTY_DIR, "should support (root,0666,tmpfs)", file::<0, 0o666, true>),
    (EMPTY_DIR, "should support (root,0777,tmpfs)", file::<0, 0o777, true>),
    (EMPTY_DIR, "should support (non-root,0644,tmpfs)", file::<1001, 0o644, true>),
    (EMPTY_DIR, "should support (non-root,0666,tmpfs)", file::<1001, 0o666, true>),
    (EMPTY_DIR, "should support (non-root,0777,tmpfs)", file::<1001, 0o777, true>),
    (EMPTY_DIR, "volume on default medium should have the correct mode", folder::<false>),
    (EMPTY_DIR, "should support (root,0644,default)", file::<0, 0o644, false>),
    (EMPTY_DIR, "should support (root,0666,default)", file::<0, 0o666, false>),
    (EMPTY_DIR, "should support (root,0777,default)", file::<0, 0o777, false>),
    (EMPTY_DIR, "should support (non-root,0644,default)", file::<1001, 0o644, false>),
    (EMPTY_DIR, "should support (non-root,0666,default)", file::<1001, 0o666, false>),
    (EMPTY_DIR, "should support (non-root,0777,default)", file::<1001, 0o777, false>),
    (EMPTY_DIR, "pod should support shared volumes between containers", shared),
    (EMPTY_DIR, "pod should support memory backed volumes of specified size", sized),
    (
        EMPTY_DIR,
        "new files should be created with FSGroup ownership when container is root",
        |case| group_file(case, 0),
    ),
    (
        EMPTY_DIR,
        "new files should be created with FSGroup ownership when container is non-root",
        |case| group_file(case, 1001),
    ),
    (
        EMPTY_DIR,
        "nonexistent volume subPath should have the correct mode and owner using FSGroup",
        group_sub_path,
    ),
    (EMPTY_DIR, "files with FSGroup ownership should support (root,0644,tmpfs)", group_read),
    (EMPTY_DIR, "volume on default medium should have the correct mode using FSGroup", |case| {
        group_folder(case, false);
    }),
    (EMPTY_DIR, "volume on tmpfs should have the correct mode using FSGroup", |case| {
        group_folder(case, true);
    }),
    ("Kubelet Volume Manager", "should remove the volume from the node", removed),
    (HOST_PATH, "should give a volume the correct mode", host_mode),
    (HOST_PATH, "should support r/w", host_written),
    (HOST_PATH, "should support subPath", host_sub_path),
    (EXPANSION, "should allow substituting values in a volume subpath", expanded),
    (EXPANSION, "should fail substituting values in a volume subpath with backticks", back_steps),
    (
        EXPANSION,
        "should fail substituting values in a volume subpath with absolute path",
        absolute_path,
    ),
    (
        EXPANSION,
        "should verify that a failing subpath expansion can be modified during the lifecycle of a \
         container",
        mended,
    ),
    (EXPANSION, "should succeed in writing subpaths in container", written),
];

const MOUNT: &str = "    volumeMounts: [{name: v, mountPath: /v}]\n";

fn empty_dir(memory: bool) -> &'static str {
    if memory {
        "  volumes: [{name: v, emptyDir: {medium: Memory}}]\n"
    } else {
        "  volumes: [{name: v, emptyDir: {}}]\n"
    }
}

/// The type of the file system there, as the kernel reports it.
const KIND: &str = "grep ' /v ' /proc/mounts | cut -d' ' -f3";

fn check_kind(kind: &str, memory: bool) {
    assert_eq!(kind == "tmpfs", memory, "the file system is {kind}");
}

fn folder<const MEMORY: bool>(case: &Case<'_>) {
    let output = case.output_of(empty_dir(MEMORY), MOUNT, &format!("{KIND}; stat -c %a /v"));
    check_kind(&output[0], MEMORY);
    assert_eq!(output[1], "777");
}

fn file<const USER: u32, const MODE: u32, const MEMORY: bool>(case: &Case<'_>) {
    let spec = format!("{}  securityContext: {{runAsUser: {USER}}}\n", empty_dir(MEMORY));
    let script = format!(
        "set -e; {KIND}; echo content > /v/f; chmod {MODE:o} /v/f; stat -c '%a %u' /v/f; cat /v/f"
    );
    let output = case.output_of(&spec, MOUNT, &script);
    check_kind(&output[0], MEMORY);
    assert_eq!(output[1..], [format!("{MODE:o} {USER}"), "content".to_owned()]);
}

fn shared(case: &Case<'_>) {
    let second = "  - name: second\n    image: localhost/edged-demo:1\n    \
                  imagePullPolicy: Never\n    \
                  command: [sh, -c, 'echo hello > /w/f; exec sleep 3600']\n    \
                  volumeMounts: [{name: v, mountPath: /w}]\n";
    let main = format!("{SLEEP}{MOUNT}{second}");
    let pod = case.run(empty_dir(false), &main);
    let read = "until test -s /v/f; do sleep 0.1; done; cat /v/f";
    assert_eq!(case.sh(&pod, read).trim(), "hello");
}

fn sized(case: &Case<'_>) {
    let spec = "  volumes: [{name: v, emptyDir: {medium: Memory, sizeLimit: 10Mi}}]\n";
    let script = "df -k /v | tail -n 1 | awk '{print $2}'";
    assert_eq!(case.output_of(spec, MOUNT, script), ["10240"]);
}

fn group(user: u32) -> String {
    format!("  securityContext: {{runAsUser: {user}, fsGroup: 123}}\n")
}

fn group_file(case: &Case<'_>, user: u32) {
    let spec = format!("{}{}", empty_dir(true), group(user));
    let script =
        format!("{KIND}; umask 0; echo new > /v/f; chmod 660 /v/f; stat -c '%a %g' /v/f; cat /v/f");
    assert_eq!(case.output_of(&spec, MOUNT, &script), ["tmpfs", "660 123", "new"]);
}

fn group_sub_path(case: &Case<'_>) {
    let spec = format!("{}{}", empty_dir(true), group(1001));
    let mount = "    volumeMounts: [{name: v, mountPath: /v, subPath: test-sub}]\n";
    let script = format!("{KIND}; stat -c '%a %u %g' /v");
    assert_eq!(case.output_of(&spec, mount, &script), ["tmpfs", "2777 0 123"]);
}

fn group_read(case: &Case<'_>) {
    let spec = format!("{}{}", empty_dir(true), group(0));
    let script =
        format!("{KIND}; umask 0; echo new > /v/f; chmod 644 /v/f; stat -c %a /v/f; cat /v/f");
    assert_eq!(case.output_of(&spec, MOUNT, &script), ["tmpfs", "644", "new"]);
}

fn group_folder(case: &Case<'_>, memory: bool) {
    let spec = format!("{}{}", empty_dir(memory), group(0));
    let output = case.output_of(&spec, MOUNT, &format!("{KIND}; stat -c %A /v"));
    check_kind(&output[0], memory);
    assert!(output[1].starts_with("drwxrw") && output[1].contains("rwx"), "{output:?}");
    assert_eq!(output[1].replace('s', "x").trim_end_matches('t'), "drwxrwxrwx", "{output:?}");
}

/// A volume in memory is removed when its pod has ended, though the pod still exists.
fn removed(case: &Case<'_>) {
    let pod = case.run_script(empty_dir(true), MOUNT, "echo > /v/f");
    assert_eq!(pod.phase(), "Succeeded");
    let pods = case.node.site.root.join("pods");
    let volume = pods.join(pod.uid()).join("volumes/kubernetes.io~empty-dir/v");
    until("the volume is gone", || {
        if volume.exists() { Err(format!("{}", volume.display())) } else { Ok(()) }
    });
    assert_eq!(case.pod().phase(), "Succeeded");
}

/// A folder of the node that only this case uses.
fn host_folder(case: &Case<'_>) -> (std::path::PathBuf, String) {
    let folder = case.node.dir.join(&case.name);
    fs::create_dir(&folder).expect("a folder of ours");
    let volume = format!(
        "  volumes: [{{name: v, hostPath: {{path: {}, type: Directory}}}}]\n",
        folder.display()
    );
    (folder, volume)
}

fn host_mode(case: &Case<'_>) {
    let (folder, volume) = host_folder(case);
    fs::set_permissions(folder, fs::Permissions::from_mode(0o1777)).expect("it is ours");
    assert_eq!(case.output_of(&volume, MOUNT, "stat -c %a /v"), ["1777"]);
}

fn host_written(case: &Case<'_>) {
    let (folder, volume) = host_folder(case);
    fs::write(folder.join("from-host"), "1").expect("a file of ours");
    let pod = case.run(&volume, &format!("{SLEEP}{MOUNT}"));
    assert_eq!(case.sh(&pod, "cat /v/from-host; echo 2 > /v/from-pod"), "1");
    assert_eq!(fs::read_to_string(folder.join("from-pod")).expect("written"), "2\n");
}

fn host_sub_path(case: &Case<'_>) {
    let (folder, volume) = host_folder(case);
    let main = format!(
        "{SLEEP}    volumeMounts:\n    - {{name: v, mountPath: /v}}\n    \
         - {{name: v, mountPath: /part, subPath: sub-path}}\n"
    );
    let pod = case.run(&volume, &main);
    assert_eq!(case.sh(&pod, "echo 1 > /part/f; cat /v/sub-path/f").trim(), "1");
    assert_eq!(fs::read_to_string(folder.join("sub-path/f")).expect("written"), "1\n");
    case.take("pod");
    case.node.wait_gone(&pod);
    assert!(folder.join("sub-path/f").exists(), "what is the node's stays");
}

fn with_expression(name: &str) -> String {
    format!(
        "    env: [{{name: POD_NAME, value: {}}}]\n    volumeMounts:\n    \
         - {{name: v, mountPath: /logs, subPathExpr: $(POD_NAME)}}\n    \
         - {{name: v, mountPath: /v}}\n",
        quoted(name)
    )
}

fn expanded(case: &Case<'_>) {
    let script = "test -d /v/foo && echo yes > /logs/f && cat /v/foo/f";
    let output = case.output_of(empty_dir(false), &with_expression("foo"), script);
    assert_eq!(output, ["yes"]);
}

/// A pod whose sub-path comes from its annotation; it keeps its uid.
fn put_annotated(case: &Case<'_>, path: &str) {
    let main = format!(
        "{SLEEP}    env:\n    - name: PART\n      \
         valueFrom: {{fieldRef: {{fieldPath: \"metadata.annotations['part']\"}}}}\n    \
         volumeMounts:\n    - {{name: v, mountPath: /part, subPathExpr: $(PART)}}\n    \
         - {{name: v, mountPath: /v}}\n"
    );
    let text = manifest(&case.name, &format!("{QUICK_END}{}", empty_dir(false)), &main);
    let metadata = format!(
        "metadata:\n  uid: {}-fixed\n  annotations: {{part: {}}}\n",
        case.name,
        quoted(path)
    );
    case.put("pod", &text.replace("metadata:\n", &metadata));
}

fn mended(case: &Case<'_>) {
    put_annotated(case, "/absolute");
    case.wait("its container cannot be made", |pod| {
        pod.0["status"]["containerStatuses"][0]["state"]["waiting"]["reason"]
            == "CreateContainerConfigError"
    });
    put_annotated(case, "mypath");
    let pod = case.node.wait_running(&case.name);
    case.sh(&pod, "echo 1 > /part/f && cat /v/mypath/f");
}

fn written(case: &Case<'_>) {
    put_annotated(case, "mypath/foo");
    let pod = case.node.wait_running(&case.name);
    case.sh(&pod, "echo 1 > /part/test.log");
    assert_eq!(case.sh(&pod, "cat /v/mypath/foo/test.log").trim(), "1");
    // What the annotation says later does not move what is mounted.
    put_annotated(case, "mynewpath");
    until("the new annotation is shown to root", || {
        let pod = case.node.site.pod_as_root(&case.name)?;
        let annotations = &pod.0["metadata"]["annotations"];
        if annotations["part"] == "mynewpath" { Ok(()) } else { Err(annotations.to_string()) }
    });
    assert_eq!(case.sh(&pod, "cat /part/test.log").trim(), "1");
    case.take("pod");
    case.node.wait_gone(&pod);
}

fn never_starts(case: &Case<'_>, name: &str, why: &str) {
    case.put_pod(empty_dir(false), &format!("{SLEEP}{}", with_expression(name)));
    let pod = case.wait("its container cannot be made", |pod| {
        pod.0["status"]["containerStatuses"][0]["state"]["waiting"]["reason"]
            == "CreateContainerConfigError"
    });
    let waiting = &pod.0["status"]["containerStatuses"][0]["state"]["waiting"];
    assert!(waiting["message"].as_str().unwrap_or_default().contains(why), "{waiting}");
    assert_eq!(pod.phase(), "Pending");
}

fn back_steps(case: &Case<'_>) {
    never_starts(case, "..", "must not contain '..'");
}

fn absolute_path(case: &Case<'_>) {
    never_starts(case, "/tmp", "must not be an absolute path");
}
