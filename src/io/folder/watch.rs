//! Watches one folder through inotify, or its parent while the folder is absent.
//!
//! This is a hint only: the regular scan finds whatever is missed here. If inotify is not available
//! (all its instances are in use), only that scan remains, and the log says so once.

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The file was closed after a write, renamed here, renamed away or removed.
    Complete(OsString),
    /// A file with this name appeared; a regular file is not complete yet.
    Created(OsString),
    /// The folder appeared or disappeared.
    Gone,
    /// The kernel's queue overflowed.
    Lost,
}

#[derive(Debug)]
pub(super) struct Watch {
    inotify: Option<Inotify>,
    on: Option<On>,
}

/// The watched folder: the manifest folder or, while it is absent, its parent; device and inode.
#[derive(Debug)]
struct On {
    descriptor: WatchDescriptor,
    identity: (u64, u64),
    parent: bool,
}

impl Watch {
    pub(super) fn open(registry: &Registry, token: Token) -> Self {
        let opened = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)
            .map_err(std::io::Error::from)
            .and_then(|inotify| {
                let fd = inotify.as_fd().as_raw_fd();
                registry.register(&mut SourceFd(&fd), token, Interest::READABLE)?;
                Ok(inotify)
            });
        if let Err(error) = &opened {
            log::warn!("no inotify ({error}): changes of manifests are noticed after up to 20 s");
        }
        Self { inotify: opened.ok(), on: None }
    }

    /// As if inotify were not available.
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self { inotify: None, on: None }
    }

    /// Watches `path`, or its parent until there is a folder at `path`. Cheap if nothing
    /// changed since the last call.
    pub(super) fn follow(&mut self, path: &Path) {
        let Some(inotify) = &self.inotify else { return };
        let identity = |path: &Path| {
            fs::metadata(path)
                .ok()
                .filter(fs::Metadata::is_dir)
                .map(|meta| (meta.dev(), meta.ino()))
        };
        let (target, identity, parent) = match (identity(path), path.parent()) {
            (Some(found), _) => (path, found, false),
            (None, Some(parent)) => match identity(parent) {
                Some(found) => (parent, found, true),
                None => return self.forget(),
            },
            (None, None) => return self.forget(),
        };
        if self.on.as_ref().is_some_and(|on| on.identity == identity && on.parent == parent) {
            return;
        }
        if let Some(on) = self.on.take() {
            // Fails if the kernel removed the watch together with the folder.
            let _ = inotify.rm_watch(on.descriptor);
        }
        match inotify.add_watch(target, if parent { of_parent() } else { of_folder() }) {
            Ok(descriptor) => self.on = Some(On { descriptor, identity, parent }),
            Err(error) => log::debug!("path={} not watched: {error}", target.display()),
        }
    }

    /// Watches nothing until the next [`Watch::follow`].
    pub(super) fn forget(&mut self) {
        if let (Some(inotify), Some(on)) = (&self.inotify, self.on.take()) {
            let _ = inotify.rm_watch(on.descriptor);
        }
    }

    /// All events since the last call.
    pub(super) fn read(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        // Edge-triggered: read until there is no more. Each read takes all pending events, so a
        // second read seldom finds any, and the kernel's queue bounds their number.
        while let Some(Ok(events)) = self.inotify.as_ref().map(Inotify::read_events) {
            for event in events {
                self.translate(event, &mut changes);
            }
        }
        changes
    }

    fn translate(&mut self, event: InotifyEvent, changes: &mut Vec<Change>) {
        let is = |flags: AddWatchFlags| event.mask.intersects(flags);
        if is(AddWatchFlags::IN_Q_OVERFLOW) {
            changes.push(Change::Lost);
            return;
        }
        let Some(on) = self.on.as_ref().filter(|on| on.descriptor == event.wd) else { return };
        if is(AddWatchFlags::IN_IGNORED) {
            self.on = None;
            changes.push(Change::Gone);
        } else if on.parent || is(AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF) {
            changes.push(Change::Gone);
        } else if let Some(name) = event.name {
            let created = is(AddWatchFlags::IN_CREATE);
            changes.push(if created { Change::Created(name) } else { Change::Complete(name) });
        }
    }
}

fn of_folder() -> AddWatchFlags {
    AddWatchFlags::IN_CLOSE_WRITE
        | AddWatchFlags::IN_MOVED_TO
        | AddWatchFlags::IN_MOVED_FROM
        | AddWatchFlags::IN_DELETE
        | AddWatchFlags::IN_CREATE
        | AddWatchFlags::IN_DELETE_SELF
        | AddWatchFlags::IN_MOVE_SELF
        | AddWatchFlags::IN_ONLYDIR
}

fn of_parent() -> AddWatchFlags {
    AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ONLYDIR
}
