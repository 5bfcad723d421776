//! Upgrades of edged itself by a job of the cloud: the program comes out of an image, and
//! `edged-run` tries it.
//!
//! `edged-run` names itself and the folder of its slots in the environment (`EDGED_KEEPER`,
//! `EDGED_HOME`); without them nothing is done. The program and its signature are taken out of the
//! image's layers as the runtime keeps them, by path, into `HOME/job`; no container is made and
//! nothing of the image is run. `edged-run verify` checks the signature, and `edged-run upgrade`
//! checks that of its own copy once more.
//!
//! **If we crash here:** the files in `HOME/job` are made anew by the next upgrade, and removed
//! once nothing is tried. `edged-run` ends with this process, and what it has not finished it
//! removes at its next start.

mod layer;
mod store;

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::sys::statvfs::statvfs;
use ring::digest::{Context, SHA256};

use crate::limits::{NODE_JOB_REASON_BYTES_MAX, UPGRADE_STATE_BYTES_MAX};
use crate::model::job::{JobError, Slots, Trial, UpgradeReply, UpgradeStep};
use crate::wire::oci::digest_text;

/// The program's name in the root directory of the image, and in the folder that it is taken to.
const PROGRAM: &str = "edged";
/// Its signature by the release key.
const SIGNATURE: &str = "edged.sig";

/// Does a step.
pub(super) fn run(step: &UpgradeStep) -> Result<UpgradeReply, JobError> {
    done(step).map_err(|Failure(why)| JobError::Failed(why))
}

/// Why a step failed, for the report.
#[derive(Debug, PartialEq, Eq)]
struct Failure(String);

fn done(step: &UpgradeStep) -> Result<UpgradeReply, Failure> {
    let keeper = Keeper::of_environment()?;
    match step {
        UpgradeStep::Look => keeper.look().map(UpgradeReply::Slots),
        UpgradeStep::Take { image_fs, image, digests } => {
            let program = keeper.take(Path::new(&**image_fs), image, digests)?;
            Ok(UpgradeReply::Taken { program })
        }
        UpgradeStep::Try { program } => {
            keeper.begin_trial(program)?;
            Ok(UpgradeReply::Begun)
        }
        UpgradeStep::Restart => {
            keeper.call(&["restart".as_ref()])?;
            Ok(UpgradeReply::Begun)
        }
    }
}

/// The `edged-run` that has started this edged.
struct Keeper {
    program: PathBuf,
    /// The folder of its slots.
    home: PathBuf,
}

impl Keeper {
    fn of_environment() -> Result<Self, Failure> {
        let path = |name: &str| {
            std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute())
        };
        match (path("EDGED_KEEPER"), path("EDGED_HOME")) {
            (Some(program), Some(home)) => Ok(Self { program, home }),
            _ => Err(Failure(
                "edged was not started by an edged-run that tries a new edged and goes back by \
                 itself: see docs/gateway.md"
                    .to_owned(),
            )),
        }
    }

    /// The folder that program and signature are taken to.
    fn folder(&self) -> PathBuf {
        self.home.join("job")
    }

    fn look(&self) -> Result<Slots, Failure> {
        let own = Path::new("/proc/self/exe");
        let running = fs::metadata(own).map_err(|error| failed("stat", own, &error))?;
        let state = |name: &str| state(&self.home.join(name));
        let (current, tried, left) = (state("current")?, state("trial")?, state("left")?);
        let is_tried = matches!(tried.split_whitespace().next(), Some(slot) if slot == current);
        // Of a slot that is not the current one nothing is started: power failed under an upgrade.
        let trial = match fs::metadata(self.home.join(&current).join(PROGRAM)) {
            Ok(next) if is_tried && (next.dev(), next.ino()) == (running.dev(), running.ino()) => {
                Trial::Running
            }
            Ok(_) if is_tried => Trial::Next,
            Ok(_) | Err(_) => Trial::None,
        };
        Ok(Slots {
            program: digest(own)?,
            program_bytes: running.len(),
            free_bytes: free_bytes(&self.home)?,
            trial,
            left: left.into(),
        })
    }

    /// Returns the digest of the program.
    fn take(
        &self,
        image_fs: &Path,
        image: &str,
        digests: &[Box<str>],
    ) -> Result<Box<str>, Failure> {
        let folder = self.folder();
        // Before the first upgrade there are no slots.
        fs::create_dir_all(&self.home).map_err(|error| failed("mkdir", &self.home, &error))?;
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(failed("remove", &folder, &error));
            }
            _ => {}
        }
        let made = DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| failed("mkdir", &folder, &error))?;
        store::take(image_fs, image, digests, &folder)?;
        for name in [PROGRAM, SIGNATURE] {
            if !folder.join(name).exists() {
                return Err(Failure(format!("got an image without /{name}, expected it")));
            }
        }
        let program = folder.join(PROGRAM);
        self.call(&["verify".as_ref(), program.as_ref()])?;
        digest(&program)
    }

    fn begin_trial(&self, program: &str) -> Result<(), Failure> {
        let path = self.folder().join(PROGRAM);
        let got = digest(&path)?;
        if *got != *program {
            let path = path.display();
            return Err(Failure(format!("{path}: got the digest {got}, expected {program}")));
        }
        let begun = self.call(&["upgrade".as_ref(), "--connected".as_ref(), path.as_ref()]);
        // Its slot has it, or it was refused: it takes as much flash as the program.
        let _ = fs::remove_dir_all(self.folder());
        begun
    }

    /// Runs it with these arguments; fails with its last line if it fails.
    fn call(&self, arguments: &[&OsStr]) -> Result<(), Failure> {
        let failed = |error: io::Error| failed("run", &self.program, &error);
        let mut command = Command::new(&self.program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        // SAFETY: prctl is a system call, and nothing else is done.
        #[expect(
            unsafe_code,
            reason = "an upgrade must not go on after the row says that it failed"
        )]
        unsafe {
            command.pre_exec(|| set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from));
        }
        let mut child = command.spawn().map_err(failed)?;
        let mut said = Vec::new();
        let from = child.stderr.take().expect("it is a pipe");
        from.take(4 * NODE_JOB_REASON_BYTES_MAX as u64).read_to_end(&mut said).map_err(failed)?;
        let status = child.wait().map_err(failed)?;
        if status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&said);
        let line = said.lines().last().unwrap_or_default();
        let why = line.strip_prefix("edged-run: ").unwrap_or(line);
        Err(Failure(if why.is_empty() { format!("edged-run: {status}") } else { why.to_owned() }))
    }
}

/// A file of `edged-run`; absent is empty.
fn state(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let opened = File::open(path);
    match opened.and_then(|file| file.take(UPGRADE_STATE_BYTES_MAX).read_to_string(&mut text)) {
        Ok(_) => Ok(text.trim().to_owned()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(failed("read", path, &error)),
    }
}

#[allow(clippy::unnecessary_cast, reason = "these have 32 bits on some machines, 64 on others")]
fn free_bytes(home: &Path) -> Result<u64, Failure> {
    // Before the first upgrade there is no such folder.
    let there = home.ancestors().find(|path| path.exists()).unwrap_or(home);
    let stat = statvfs(there).map_err(|errno| failed("statvfs", there, &errno.into()))?;
    Ok((stat.blocks_available() as u64).saturating_mul(stat.fragment_size() as u64))
}

fn digest(path: &Path) -> Result<Box<str>, Failure> {
    let failed = |error: io::Error| failed("read", path, &error);
    let mut file = File::open(path).map_err(failed)?;
    let (mut context, mut buffer) = (Context::new(&SHA256), vec![0; 64 << 10]);
    loop {
        match file.read(&mut buffer).map_err(failed)? {
            0 => return Ok(digest_text(context.finish().as_ref()).into()),
            count => context.update(&buffer[..count]),
        }
    }
}

fn failed(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure(format!("{what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests;
