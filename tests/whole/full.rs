//! The disk, or RUN, has no room for a while: the built-in runtime refuses what it cannot do, and
//! says why. What it has acknowledged stays, also when its server is killed and starts again
//! meanwhile; once there is room, everything goes on, and nothing is left.
//!
//! Each round leaves one page more than the one before, until a whole start has enough: so the room
//! ends once at each of its writes.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use edged::wire::cri::container::{
    Container, ContainerState, ContainerStatusRequest, RemoveContainerRequest,
    StartContainerRequest, StopContainerRequest,
};
use edged::wire::cri::sandbox::{
    PodSandbox, PodSandboxState, RemovePodSandboxRequest, StopPodSandboxRequest,
};
use nix::mount::{MsFlags, mount};

use crate::World;
use crate::fail_points::{CODE, Course, Network, With};

crate::tests!(
    a_disk_without_room_refuses_with_words_and_loses_nothing,
    a_run_folder_without_room_refuses_with_words_and_loses_nothing,
);

fn a_disk_without_room_refuses_with_words_and_loses_nothing(world: &World) {
    rounds(world, "dd", "data");
}

fn a_run_folder_without_room_refuses_with_words_and_loses_nothing(world: &World) {
    rounds(world, "dr", "rt");
}

/// More than a start takes.
const PAGES_MAX: usize = 64;
/// Of a folder: images are unpacked in one of them.
const BYTES: usize = 32 << 20;

fn rounds(world: &World, name: &str, folder: &str) {
    let small = Small::mount(world.folder(name).join("c").join(folder));
    let mut course = Course::new(world, name, With::Nothing, Network::Host);
    for pages in 0..PAGES_MAX {
        small.fill(pages);
        let refused = start(&mut course);
        end(&mut course, refused.is_none());
        small.free();
        clear(&mut course);
        course.run();
        println!("{folder}, {pages} pages: {refused:?}");
        if refused.is_none() {
            assert!(pages > 0, "a start needs room");
            return;
        }
    }
    panic!("a start needs more than {PAGES_MAX} pages");
}

/// A file system in memory, which can be filled.
struct Small(PathBuf);

impl Small {
    fn mount(folder: PathBuf) -> Self {
        fs::create_dir_all(&folder).expect("a folder of ours");
        let options = format!("mode=0700,size={BYTES}");
        let flags = MsFlags::empty();
        mount(Some("full"), &folder, Some("tmpfs"), flags, Some(&*options)).expect("root may");
        Self(folder)
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Leaves room for so many pages.
    fn fill(&self, pages: usize) {
        let mut options = OpenOptions::new();
        let mut file = options.create(true).append(true).open(self.ballast()).expect("ours");
        let page = [7; PAGE];
        while file.write_all(&page).is_ok() {}
        let length = file.metadata().expect("ours").len();
        let whole = length / PAGE as u64 * PAGE as u64;
        file.set_len(whole - (pages * PAGE) as u64).expect("it is longer");
    }

    fn free(&self) {
        fs::remove_file(self.ballast()).expect("ours");
    }
}

const PAGE: usize = 4_096;

/// Starts a container where there is little room. What was refused, and why; what was not stays
/// when the server is killed.
fn start(course: &mut Course) -> Option<String> {
    let mut acknowledged = Acknowledged::default();
    let refused = (|| {
        let sandbox = course.run_sandbox()?;
        acknowledged.sandbox = Some(sandbox.clone());
        let container_id = course.create(&sandbox)?;
        acknowledged.container = Some((container_id.clone(), ContainerState::Created));
        course.call(&StartContainerRequest { container_id: container_id.clone() })?;
        acknowledged.container = Some((container_id, ContainerState::Running));
        Some(())
    })()
    .is_none()
    .then(|| course.refusal.clone());
    if let Some(why) = &refused {
        assert!(says_full(why), "it does not say that there is no room: {why}");
    }
    acknowledged.check(course);
    course.runtime.restart();
    acknowledged.check(course);
    refused
}

/// Whether it says ENOSPC, in the words of Linux or of an OCI runtime.
fn says_full(why: &str) -> bool {
    why.to_lowercase().contains("no space left on device")
}

#[derive(Default)]
struct Acknowledged {
    sandbox: Option<String>,
    container: Option<(String, ContainerState)>,
}

impl Acknowledged {
    fn check(&self, course: &mut Course) {
        let (sandboxes, containers) = course.lists().expect("lists need no room");
        if let Some(id) = &self.sandbox {
            let state = sandboxes.iter().find(|one| one.id == *id).map(PodSandbox::state);
            assert_eq!(state, Some(PodSandboxState::Ready), "{sandboxes:?}");
        }
        if let Some((id, expected)) = &self.container {
            let state = containers.iter().find(|one| one.id == *id).map(Container::state);
            // One whose start was refused has ended, or may be started again.
            let is_it = state == Some(*expected)
                || *expected == ContainerState::Created && state == Some(ContainerState::Exited);
            assert!(is_it, "expected {expected:?}: {containers:?}");
        }
    }
}

/// Stops and removes everything while there is no room. What cannot be done is refused with words.
fn end(course: &mut Course, runs: bool) {
    let (sandboxes, containers) = course.lists().expect("lists need no room");
    for container_id in containers.into_iter().map(|one| one.id) {
        let stop = StopContainerRequest { container_id: container_id.clone(), timeout: 30 };
        may_lack_room(course, &stop);
        if runs {
            // Its end is known, whether or not it could be saved.
            check_code(course, &container_id);
            course.runtime.restart();
            check_code(course, &container_id);
        }
        may_lack_room(course, &RemoveContainerRequest { container_id });
    }
    for pod_sandbox_id in sandboxes.into_iter().map(|one| one.id) {
        may_lack_room(course, &StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() });
        may_lack_room(course, &RemovePodSandboxRequest { pod_sandbox_id });
    }
}

fn may_lack_room<R: edged::wire::cri::Request>(course: &mut Course, request: &R) {
    if course.call(request).is_none() {
        let why = &course.refusal;
        assert!(says_full(why), "it does not say that there is no room: {why}");
    }
}

fn check_code(course: &mut Course, id: &str) {
    let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
    let status = course.call(&request).and_then(|reply| reply.status).expect("a status");
    let expected = (ContainerState::Exited as i32, CODE);
    assert_eq!((status.state, status.exit_code), expected, "{status:?}");
}

/// Removes what could not be removed before.
fn clear(course: &mut Course) {
    let (_, containers) = course.lists().expect("there is room again");
    let first = containers.into_iter().next().map(|one| one.id).unwrap_or_default();
    course.remove(&first);
    course.until_nothing_is_left();
}
