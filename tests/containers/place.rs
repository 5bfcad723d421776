//! Folders, an image and a server of the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use edged::io::builtin::container;
use edged::io::builtin::layout::{Layout, Settings};
use edged::io::builtin::monitors::Monitors;
use edged::model::cri::{ContainerConfig, Namespaces, Network, SandboxConfig};
use edged::model::runtime::{
    BootId, ContainerFolder, ContainerId, ContainerPhase, ContainerRecord, DiffId, ImageConfig,
    ImageId, ImageRecord, JobFault, JobReply, MonitorFact, MonitorStart, Process, SandboxId,
    SandboxPhase, SandboxRecord,
};
use edged::runtime::event::Event;
use mio::{Events, Poll, Token};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::wait::{WaitPidFlag, waitpid};

use crate::program;

pub const CRUN: &str = "/usr/bin/crun";
pub const RUNC: &str = "/usr/sbin/runc";

/// The children of a process are those of all its threads: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Runs a test in a thread with a mount namespace of its own.
pub fn in_namespace(test: impl FnOnce() + Send) {
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let body = || {
        // SAFETY: the call changes only what this thread sees.
        #[expect(unsafe_code, reason = "nix has it in a feature that the program does not need")]
        let done = unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_FS) };
        assert_eq!(done, 0, "needs root: {}", std::io::Error::last_os_error());
        let none = None::<&str>;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).expect("private");
        let _ = umount2("/sys/fs/cgroup/unified", MntFlags::MNT_DETACH);
        test();
    };
    std::thread::scope(|scope| {
        let done = scope.spawn(body).join();
        if let Err(why) = done {
            std::panic::resume_unwind(why);
        }
    });
}

pub fn id(letter: char) -> ContainerId {
    let process = format!("{:08x}", std::process::id());
    ContainerId((letter.to_string().repeat(56) + &process).into())
}

pub struct Place {
    pub top: PathBuf,
    pub settings: Settings,
    pub image: ImageRecord,
    pub monitors: Monitors,
    pub events: Vec<Event>,
    /// The next container that is started has an open standard input.
    pub stdin: bool,
    sandbox: SandboxRecord,
    poll: Poll,
}

impl Place {
    /// A busybox in two layers, on a tmpfs.
    pub fn new(name: &str, oci: &str) -> Self {
        nix::sys::prctl::set_child_subreaper(true).expect("it may");
        let top = std::env::temp_dir().join(format!("edged-ct-{name}-{}", std::process::id()));
        let _ = umount2(&top, MntFlags::MNT_DETACH);
        fs::create_dir_all(&top).expect("a folder");
        let none = None::<&str>;
        mount(Some("tmpfs"), &top, Some("tmpfs"), MsFlags::empty(), none).expect("a tmpfs");
        for folder in ["run", "data/tmp", "log"] {
            fs::create_dir_all(top.join(folder)).expect("folders");
        }
        let settings = Settings {
            layout: Layout::new(top.join("run"), top.join("data")),
            oci: oci.into(),
            handlers: Vec::new(),
            cni_conf_dir: PathBuf::new(),
            cni_bin_dir: PathBuf::new(),
            registries: edged::model::builtin::Registries::default(),
        };
        let layers: Vec<DiffId> =
            ["1", "2"].map(|digit| DiffId(format!("sha256:{}", digit.repeat(64)).into())).into();
        make_layers(&settings.layout, &layers);
        let sandbox = sandbox(&settings.layout);
        let poll = Poll::new().expect("a poll");
        let monitors = server(&settings, &poll);
        let image = ImageRecord {
            id: ImageId("sha256:".into()),
            tags: Vec::new(),
            digests: Vec::new(),
            layers,
            size: 1,
            pinned: false,
            config: ImageConfig {
                env: vec!["PATH=/bin".into()],
                cmd: vec!["sh".into()],
                ..ImageConfig::default()
            },
        };
        Self { top, settings, image, monitors, events: Vec::new(), stdin: false, sandbox, poll }
    }

    /// DATA on an overlay, which overlayfs does not take for what it writes.
    pub fn data_on_overlay(&mut self) {
        let data = self.top.join("data");
        for folder in ["upper", "work", "layers"] {
            fs::create_dir(self.top.join(folder)).expect("a folder");
        }
        let none = None::<&str>;
        let (layers, aside) = (data.join("layers"), self.top.join("layers"));
        mount(Some(&layers), &aside, none, MsFlags::MS_BIND, none).expect("a bind");
        let options = format!(
            "lowerdir={},upperdir={top}/upper,workdir={top}/work",
            data.display(),
            top = self.top.display()
        );
        let kind = Some("overlay");
        mount(kind, &data, kind, MsFlags::empty(), Some(&*options)).expect("an overlay");
        // Otherwise their whiteouts would be this overlay's.
        mount(Some(&aside), &layers, none, MsFlags::MS_BIND, none).expect("a bind");
    }

    pub fn try_make(
        &self,
        letter: char,
        change: impl FnOnce(&mut ContainerConfig),
    ) -> Result<JobReply, JobFault> {
        let mut config = ContainerConfig::default();
        change(&mut config);
        let record = ContainerRecord {
            id: id(letter),
            sandbox: self.sandbox.id.clone(),
            config,
            log: "".into(),
            image: self.image.id.clone(),
            layers: self.image.layers.clone(),
            stop_signal: 15,
            created_at: 0,
            phase: ContainerPhase::Created,
        };
        container::make(&self.settings, &self.sandbox, &record, &self.image)
    }

    pub fn make(&self, letter: char, change: impl FnOnce(&mut ContainerConfig)) -> ContainerId {
        assert_eq!(self.try_make(letter, change), Ok(JobReply::Done));
        id(letter)
    }

    pub fn shell(&self, letter: char, script: &str) -> ContainerId {
        self.make(letter, |config| {
            config.command = ["sh", "-c", script].map(str::to_owned).into();
        })
    }

    pub fn folder(&self, id: &ContainerId) -> ContainerFolder {
        let cgroup = self.sandbox.cgroup(id).into();
        ContainerFolder { id: id.clone(), cgroup, program: "".into() }
    }

    pub fn sandbox(&self) -> SandboxId {
        self.sandbox.id.clone()
    }

    pub fn log_path(&self, id: &ContainerId) -> String {
        format!("{}/log/{id}", self.top.display())
    }

    pub fn log(&self, id: &ContainerId) -> String {
        fs::read_to_string(self.log_path(id)).unwrap_or_default()
    }

    pub fn start(&mut self, id: &ContainerId) {
        self.begin(id, None);
    }

    pub fn adopt(&mut self, id: &ContainerId, process: &Process) {
        self.begin(id, Some(process.clone()));
    }

    fn begin(&mut self, id: &ContainerId, adopt: Option<Process>) {
        let spec = fs::read_to_string(self.settings.layout.container(id).join("config.json"));
        let start = MonitorStart {
            id: id.clone(),
            log: self.log_path(id).into(),
            stdin: self.stdin,
            tty: spec.expect("it was made").contains("\"terminal\":true"),
            cgroup: self.sandbox.cgroup(id).into(),
            program: "".into(),
            adopt,
        };
        self.monitors.start(&start, &mut self.events);
    }

    /// A process of this boot, with 0 as its start.
    pub fn process_of(pid: u32) -> Process {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("readable");
        Process { pid: pid as i32, start_time: 0, boot: BootId(boot.trim().into()) }
    }

    /// The next fact of a container, and what the server does meanwhile.
    pub fn fact(&mut self, id: &ContainerId) -> MonitorFact {
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            let is_it = |event: &Event| matches!(event, Event::Monitor(of, _) if of == id);
            if let Some(at) = self.events.iter().position(is_it) {
                let event = self.events.remove(at);
                return super::fact_of(event).expect("a fact").1;
            }
            assert!(Instant::now() < until, "no fact; the log: {}", self.log(id));
            self.turn();
        }
    }

    /// One turn of the server's loop.
    pub fn turn(&mut self) {
        let mut ready = Events::with_capacity(16);
        self.poll.poll(&mut ready, Some(Duration::from_millis(10))).expect("a poll");
        while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            let Some((pid, how)) = super::ended(status) else { break };
            self.monitors.child_ended(pid, how);
        }
        for event in &ready {
            self.monitors.ready(event.token(), &mut self.events);
        }
    }

    /// The server's process stays, and forgets everything.
    pub fn new_server(&mut self) {
        self.poll = Poll::new().expect("a poll");
        self.monitors = server(&self.settings, &self.poll);
        self.events.clear();
    }

    pub fn wait_for_lines(&mut self, id: &ContainerId, more: usize) {
        let lines = self.log(id).lines().count() + more;
        self.wait_until(|place| place.log(id).lines().count() >= lines);
    }

    pub fn wait_for_file(&mut self, id: &ContainerId, name: &str) {
        let path = self.settings.layout.container(id).join(name);
        self.wait_until(|_| path.exists());
    }

    pub fn wait_for_end(&mut self, process: &Process) {
        let path = format!("/proc/{}", process.pid);
        self.wait_until(|_| !Path::new(&path).exists());
    }

    fn wait_until(&mut self, mut holds: impl FnMut(&Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !holds(self) {
            assert!(Instant::now() < until, "it does not come");
            self.turn();
        }
    }

    fn monitor(&self, id: &ContainerId) -> Option<i32> {
        let folder = self.settings.layout.container(id).into_os_string().into_encoded_bytes();
        let mut pids = fs::read_dir("/proc")
            .expect("mounted")
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.find(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            words.get(1..3) == Some(&[b"monitor", &*folder])
        })
    }

    pub fn kill_monitor(&mut self, id: &ContainerId) {
        let pid = self.monitor(id).expect("it lives");
        let pid = nix::unistd::Pid::from_raw(pid);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("it lives");
    }

    /// Kilobytes of a monitor: its share of what it has, and what it has for itself.
    pub fn memory(&self, id: &ContainerId) -> (u64, u64) {
        let pid = self.monitor(id).expect("it lives");
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("root may");
        let of = |name: &str| -> u64 {
            let lines = text.lines().filter(|line| line.starts_with(name));
            lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
        };
        (of("Pss:"), of("Private_"))
    }

    /// Every line of the counter is there once.
    pub fn log_is_whole(&self, id: &ContainerId) {
        let log = self.log(id);
        let mut lines = log.lines().map(|line| line.splitn(4, ' ').nth(3).expect("a line"));
        let count = log.lines().count() - 1;
        for at in 1..=count {
            assert_eq!(lines.next(), Some(&*format!("line {at}")), "of {count}");
        }
        assert_eq!(lines.next(), Some("end"));
    }

    /// Nothing of a container is left.
    pub fn is_clean(&self) {
        let empty = |path: &str| {
            let path = self.top.join(path);
            let names: Vec<_> = fs::read_dir(&path)
                .map(|entries| entries.flatten().map(|entry| entry.file_name()).collect())
                .unwrap_or_default();
            assert!(names.is_empty(), "{}: {names:?}", path.display());
        };
        for folder in ["run/c", "run/oci", "data/c", "data/tmp"] {
            empty(folder);
        }
        let mounts = fs::read_to_string("/proc/self/mounts").expect("readable");
        assert!(!mounts.contains(&format!("{}/run/c/", self.top.display())), "{mounts}");
        let hierarchies = fs::read_dir("/sys/fs/cgroup").expect("mounted").flatten();
        for hierarchy in hierarchies.filter(|entry| entry.file_name() != "unified") {
            let cgroup = hierarchy.path().join(self.sandbox.config.cgroup_parent.trim_matches('/'));
            let left = fs::read_dir(cgroup).into_iter().flatten().flatten();
            let left = left.filter(|entry| entry.path().is_dir()).count();
            assert_eq!(left, 0, "{}", hierarchy.path().display());
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let containers = fs::read_dir(self.top.join("run/c")).into_iter().flatten().flatten();
        for entry in containers {
            let id = ContainerId(entry.file_name().to_string_lossy().into());
            let _ = container::end(&self.settings, &self.folder(&id));
        }
        while waitpid(None, Some(WaitPidFlag::WNOHANG)).is_ok_and(|s| s.pid().is_some()) {}
        for hierarchy in fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
            let parent = self.sandbox.config.cgroup_parent.trim_matches('/');
            let _ = fs::remove_dir(hierarchy.path().join(parent));
        }
        // crun writes into what only looks like a hierarchy.
        let parent = self.sandbox.config.cgroup_parent.trim_matches('/');
        let _ = fs::remove_dir_all(Path::new("/sys/fs/cgroup/unified").join(parent));
        let _ = umount2(&self.top, MntFlags::MNT_DETACH);
        let _ = fs::remove_dir(&self.top);
    }
}

fn server(settings: &Settings, poll: &Poll) -> Monitors {
    let registry = poll.registry().try_clone().expect("a registry");
    Monitors::new(settings.clone(), registry, Token(0))
        .with_program(env!("CARGO_BIN_EXE_edged").into())
}

/// A pod on the machine's network.
fn sandbox(layout: &Layout) -> SandboxRecord {
    let namespaces = Namespaces {
        network: Network::Node,
        ipc: edged::model::cri::IpcNamespace::Node,
        ..Namespaces::default()
    };
    let cgroup_parent = format!("/edged-test-{}", std::process::id());
    let record = SandboxRecord {
        id: SandboxId("f".repeat(64).into()),
        config: SandboxConfig { namespaces, cgroup_parent, ..SandboxConfig::default() },
        phase: SandboxPhase::Ready,
        created_at: 0,
        ips: Vec::new(),
        boot: BootId::default(),
        program: "".into(),
    };
    let folder = layout.sandbox(&record.id);
    fs::create_dir_all(&folder).expect("a folder");
    for name in ["hostname", "hosts", "resolv.conf"] {
        fs::write(folder.join(name), "").expect("a file");
    }
    record
}

fn make_layers(layout: &Layout, layers: &[DiffId]) {
    let [lower, upper] = [&layers[0], &layers[1]].map(|layer| layout.layer(layer).join("fs"));
    for folder in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        fs::create_dir_all(lower.join(folder)).expect("folders");
    }
    let busybox = fs::read("/bin/busybox").expect("Debian's busybox-static");
    program::write(&lower.join("bin/busybox"), &busybox);
    let names = [
        "cat", "dd", "grep", "head", "id", "ls", "mount", "ps", "pwd", "sh", "sleep", "stty",
        "test", "touch", "true", "usleep", "wc",
    ];
    for name in names {
        std::os::unix::fs::symlink("busybox", lower.join("bin").join(name)).expect("a link");
    }
    fs::write(lower.join("etc/layer"), "lower\n").expect("a file");
    fs::write(lower.join("etc/gone"), "lower\n").expect("a file");
    fs::create_dir_all(upper.join("etc")).expect("folders");
    fs::write(upper.join("etc/layer"), "upper\n").expect("a file");
    let whiteout = upper.join("etc/gone");
    let kind = nix::sys::stat::SFlag::S_IFCHR;
    nix::sys::stat::mknod(&whiteout, kind, nix::sys::stat::Mode::empty(), 0).expect("root may");
}
