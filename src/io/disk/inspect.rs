//! Inspects a store for `edged check`: read only, without a lock, without changes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::unistd::{AccessFlags, access};

use super::{Trouble, Vfs, check, left_log, quarantine, rows};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// Absolute.
    pub path: PathBuf,
    /// The permissions of the file; `None`: it is absent.
    pub mode: Option<u32>,
    pub state: State,
    /// Damaged stores that were moved aside, the oldest first.
    pub aside: Vec<PathBuf>,
}

/// The condition of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    Absent,
    /// An agent has it open, which has checked it itself.
    InUse,
    /// The number of rows, all of them intact; also 0 if it has not been used yet.
    Sound(usize),
    /// Its content is invalid.
    Damaged(String),
    /// It cannot be read, or its folder cannot be written to.
    Unusable(String),
}

/// Inspects the store at this absolute path.
pub fn inspect(path: &Path) -> Inspection {
    let mode = fs::metadata(path).ok().map(|about| about.permissions().mode() & 0o777);
    Inspection { path: path.to_owned(), mode, state: state(path), aside: quarantine::all(path) }
}

fn state(path: &Path) -> State {
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return unwritable(path).unwrap_or(State::Absent);
        }
        Err(error) => return State::Unusable(error.to_string()),
        Ok(file) => match is_locked(&file) {
            Ok(true) => return State::InUse,
            Ok(false) => {
                if let Some(unusable) = unwritable(path) {
                    return unusable;
                }
            }
            Err(why) => return State::Unusable(why.to_string()),
        },
    }
    let looked = || -> Result<usize, Trouble> {
        let mut conn = Vfs::connect_read_only(path, left_log(path))?;
        if !rows::are_there(&conn)? {
            return Ok(0);
        }
        check::sound(&mut conn)?;
        let count: i64 = conn.query_row("SELECT count(*) FROM meta", [], |row| row.get(0))?;
        Ok(count as usize)
    };
    match looked() {
        Ok(rows) => State::Sound(rows),
        Err(Trouble::Locked) => State::InUse,
        Err(Trouble::Damaged(why)) => State::Damaged(why),
        Err(Trouble::Failed(why)) => State::Unusable(why.to_string()),
    }
}

/// Why the file, or the folder for the file and its log, cannot be written to.
fn unwritable(path: &Path) -> Option<State> {
    let folder = path.ancestors().skip(1).find(|path| path.is_dir());
    let mut places = path.exists().then_some(path).into_iter().chain(folder);
    let why = places.find_map(|place| access(place, AccessFlags::W_OK).err())?;
    Some(State::Unusable(why.to_string()))
}

/// Whether another process holds one of SQLite's locks on the file.
fn is_locked(file: &File) -> nix::Result<bool> {
    let mut lock = libc::flock {
        l_type: libc::F_WRLCK as _,
        l_whence: libc::SEEK_SET as _,
        l_start: LOCKS_AT as _,
        l_len: LOCKS as _,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_GETLK(&mut lock))?;
    Ok(lock.l_type != libc::F_UNLCK as libc::c_short)
}

/// Where SQLite's file format has its locks (`PENDING_BYTE`), and their number of bytes.
const LOCKS_AT: i64 = 0x4000_0000;
const LOCKS: i64 = 512;
