//! Reads the log of one instance of a container, from a wanted line on, through rotations.
//!
//! ```text
//!  Seeking ─▶ Reading ──end of file──▶ next file ─▶ Reading
//!                 │                        (rotated: the old one was read to its end)
//!                 └──end of file, follow──▶ waits for a change ─▶ Reading
//! ```
//!
//! Files are opened without following links: a pod with `/var/log/pods` as a volume could otherwise
//! show any file of the node.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::model::error::{Error, Input, Peer, System};
use crate::model::stream::{LogFile, LogOptions, Since};
use crate::wire::log::follow::{Formatter, More};

#[derive(Debug)]
pub(super) struct LogReader {
    /// The folder with the logs of all instances.
    dir: PathBuf,
    /// `0.log`
    name: String,
    file: File,
    inode: u64,
    seeking: Option<Seeking>,
    /// Files to be read after this one, the last first.
    next: Vec<(File, u64)>,
    formatter: Formatter,
    follow: bool,
    /// The container may still write.
    runs: bool,
    /// The container has ended, and the file was read to its end since.
    is_last_look: bool,
    /// The last read filled the buffer.
    is_behind: bool,
}

/// Looks for the beginning of the last lines, from the end of a file backwards.
#[derive(Debug)]
struct Seeking {
    wanted: u64,
    /// Ends of lines found so far.
    found: u64,
    /// What is before this offset was not looked at.
    before: u64,
    size: u64,
    /// The last line has no end.
    is_open: bool,
    /// The newest rotated log was looked at as well.
    is_rotated: bool,
}

/// What a turn has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is more to do now.
    More,
    /// Nothing until the folder changes.
    Wait,
    /// The log is complete.
    Done,
}

impl LogReader {
    /// `now_s`: wall clock, seconds since 1970.
    pub(super) fn open(
        pod_logs: &Path,
        log: &LogFile,
        options: &LogOptions,
        runs: bool,
        now_s: i64,
    ) -> Result<Self, Error> {
        let dir = folder(pod_logs, log)?;
        let name = format!("{}.log", log.attempt);
        let path = dir.join(&name);
        let (file, inode) = open(&path).map_err(|error| {
            let what = "failed to try resolving symlinks in path";
            System::at(format_args!("{what} {:?}", path.display()), error)
        })?;
        let since = options.since.map(|since| match since {
            Since::Seconds(seconds) => {
                now_s.saturating_sub(i64::try_from(seconds).unwrap_or(i64::MAX))
            }
            Since::Time(time) => time.0,
        });
        let since_ns = since.map(|seconds| seconds.saturating_mul(1_000_000_000));
        let seeking = options.tail.map(|wanted| Seeking::new(&file, wanted)).transpose();
        Ok(Self {
            dir,
            name,
            seeking: seeking.map_err(|error| System::at(path.display(), error))?,
            file,
            inode,
            next: Vec::new(),
            formatter: Formatter::new(options.timestamps, since_ns, options.limit_bytes),
            follow: options.follow,
            runs,
            is_last_look: false,
            is_behind: false,
        })
    }

    /// The folder whose changes matter to a log that is followed.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Whether there is probably more in the file.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// The container writes no more.
    pub(super) fn end(&mut self) {
        self.runs = false;
    }

    /// Appends a bounded amount of output. `buffer` is for the file's bytes.
    pub(super) fn read(&mut self, buffer: &mut [u8], out: &mut Vec<u8>) -> Result<Step, Error> {
        if self.seeking.is_some() {
            self.seek(buffer)?;
            return Ok(Step::More);
        }
        let count = loop {
            match self.file.read(&mut buffer[..]) {
                Ok(count) => break count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    let file = self.dir.join(&self.name);
                    return Err(System::at(file.display(), error).into());
                }
            }
        };
        self.is_behind = count == buffer.len();
        if count == 0 {
            return Ok(self.at_end());
        }
        self.is_last_look = false;
        // The output is hardly ever longer than the file: what doubles would take twice as much.
        out.reserve_exact(count + FRAME_BYTES);
        match self.formatter.take(&buffer[..count], out) {
            Ok(More::Yes) => Ok(Step::More),
            Ok(More::No) => Ok(Step::Done),
            Err(why) => Err(Peer::new(why.to_string()).into()),
        }
    }

    fn at_end(&mut self) -> Step {
        if let Some((file, inode)) = self.next.pop() {
            (self.file, self.inode) = (file, inode);
            self.formatter.next_file();
            return Step::More;
        }
        if !self.follow {
            return Step::Done;
        }
        // Between the rename of a rotation and the new file there is none.
        if let Ok((file, inode)) = open(&self.dir.join(&self.name))
            && inode != self.inode
        {
            // What was written to the old one until now comes first.
            self.next.push((file, inode));
            return Step::More;
        }
        match (self.runs, self.is_last_look) {
            (true, _) => Step::Wait,
            (false, true) => Step::Done,
            (false, false) => {
                self.is_last_look = true;
                Step::More
            }
        }
    }

    fn seek(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let Some(seeking) = &mut self.seeking else { return Ok(()) };
        let Some(start) = seeking.step(&self.file, buffer)? else { return Ok(()) };
        let missing = seeking.missing();
        if missing > 0
            && !seeking.is_rotated
            && let Some((older, inode)) = newest_rotated(&self.dir, &self.name)
        {
            let current = std::mem::replace(&mut self.file, older);
            self.next.push((current, std::mem::replace(&mut self.inode, inode)));
            let wanted = Seeking::new(&self.file, missing)?;
            self.seeking = Some(Seeking { is_rotated: true, ..wanted });
            return Ok(());
        }
        self.file.seek(SeekFrom::Start(start))?;
        self.seeking = None;
        Ok(())
    }
}

impl Seeking {
    fn new(file: &File, wanted: u64) -> io::Result<Self> {
        let size = file.metadata()?.len();
        let mut last = [b'\n'];
        if size > 0 {
            file.read_exact_at(&mut last, size - 1)?;
        }
        let is_open = last != [b'\n'];
        Ok(Self { wanted, found: 0, before: size, size, is_open, is_rotated: false })
    }

    /// Looks at one more block. Returns where to begin once that is known.
    fn step(&mut self, file: &File, buffer: &mut [u8]) -> io::Result<Option<u64>> {
        if self.wanted == 0 {
            return Ok(Some(self.size));
        }
        if self.before == 0 {
            return Ok(Some(0));
        }
        // The end of the line before the first one that is wanted.
        let needed = if self.is_open { self.wanted } else { self.wanted.saturating_add(1) };
        let length = self.before.min(buffer.len() as u64);
        let from = self.before - length;
        let block = &mut buffer[..usize::try_from(length).expect("no more than the buffer")];
        file.read_exact_at(block, from)?;
        for (at, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            self.found += 1;
            if self.found == needed {
                return Ok(Some(from + at as u64 + 1));
            }
        }
        self.before = from;
        Ok((from == 0).then_some(0))
    }

    /// How many of the wanted lines are not in this file.
    fn missing(&self) -> u64 {
        self.wanted.saturating_sub(self.found + u64::from(self.is_open))
    }
}

/// More than what stands around the text of a chunk.
const FRAME_BYTES: usize = 32;

/// `<pod logs>/<namespace>_<name>_<uid>/<container>`
fn folder(pod_logs: &Path, log: &LogFile) -> Result<PathBuf, Error> {
    let pod = &log.pod;
    let pod_dir = format!("{}_{}_{}", pod.namespace, pod.name, pod.uid);
    for part in [&*pod_dir, &*log.container] {
        if part.is_empty() || part.contains('/') || part == "." || part == ".." {
            let got = format_args!("the name {part:?}");
            return Err(Input::new(got, "the name of a folder").into());
        }
    }
    Ok(pod_logs.join(pod_dir).join(&*log.container))
}

/// The file and its inode.
fn open(path: &Path) -> io::Result<(File, u64)> {
    // A pipe in its place must not block.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    Ok((file, about.ino()))
}

/// The newest rotated log is not compressed: `0.log.20261121-194501`.
fn newest_rotated(dir: &Path, name: &str) -> Option<(File, u64)> {
    let prefix = format!("{name}.");
    let names =
        fs::read_dir(dir).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let rotated = names.filter(|it| {
        it.strip_prefix(&prefix)
            .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'))
    });
    open(&dir.join(rotated.max()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::job::LogDir;

    fn line(number: usize) -> String {
        format!("2026-11-25T10:00:00.5Z stdout F line {number}\n")
    }

    fn numbers(from: usize, to: usize) -> String {
        let lines: Vec<String> = (from..to).map(|number| format!("line {number}\n")).collect();
        lines.concat()
    }

    struct Place(PathBuf);

    impl Drop for Place {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).expect("it is ours");
        }
    }

    impl Place {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("edged-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&dir);
            fs::create_dir_all(dir.join("n_p_u/c")).expect("a folder");
            Self(dir)
        }

        fn write(&self, name: &str, lines: std::ops::Range<usize>) {
            let text: Vec<String> = lines.map(line).collect();
            fs::write(self.0.join("n_p_u/c").join(name), text.concat()).expect("written");
        }

        fn tail(&self, tail: Option<u64>, buffer: usize) -> String {
            let pod = LogDir { namespace: "n".into(), name: "p".into(), uid: "u".into() };
            let log = LogFile { pod, container: "c".into(), attempt: 3 };
            let options = LogOptions { tail, ..LogOptions::default() };
            let mut reader = LogReader::open(&self.0, &log, &options, false, 0).expect("a log");
            let (mut out, mut buffer) = (Vec::new(), vec![0; buffer]);
            while reader.read(&mut buffer, &mut out).expect("it is readable") != Step::Done {}
            String::from_utf8(out).expect("text")
        }
    }

    #[test]
    fn the_last_lines_are_found_wherever_a_block_ends() {
        let place = Place::new("tail");
        place.write("3.log", 0..100);
        for buffer in [1, 7, 39, 4_096, 1 << 20] {
            assert_eq!(place.tail(None, buffer), numbers(0, 100));
            for lines in [0, 1, 2, 50, 99, 100] {
                let want = numbers(100 - lines, 100);
                assert_eq!(place.tail(Some(lines as u64), buffer), want, "{lines} of {buffer}");
            }
            assert_eq!(place.tail(Some(u64::MAX), buffer), numbers(0, 100));
        }
    }

    #[test]
    fn a_line_without_an_end_counts() {
        let place = Place::new("open");
        place.write("3.log", 0..3);
        let path = place.0.join("n_p_u/c/3.log");
        let mut text = fs::read_to_string(&path).expect("read");
        text.push_str("2026-11-25T10:00:00.5Z stdout P open");
        fs::write(&path, text).expect("written");
        assert_eq!(place.tail(Some(1), 16), "open");
        assert_eq!(place.tail(Some(2), 16), "line 2\nopen");
        assert_eq!(place.tail(Some(9), 16), numbers(0, 3) + "open");
    }

    #[test]
    fn lines_that_were_just_rotated_are_shown_too() {
        let place = Place::new("rotated");
        place.write("3.log.20261125-090000", 0..20);
        place.write("3.log.20261125-100000", 20..40);
        place.write("3.log.20261125-080000.gz", 90..99);
        place.write("31.log.20261126-100000", 90..99);
        place.write("3.log", 40..42);
        assert_eq!(place.tail(Some(1), 64), numbers(41, 42));
        assert_eq!(place.tail(Some(5), 64), numbers(37, 42));
        assert_eq!(place.tail(Some(100), 64), numbers(20, 42), "one file back");
        assert_eq!(place.tail(None, 64), numbers(40, 42));
        place.write("3.log", 40..40);
        assert_eq!(place.tail(Some(3), 64), numbers(37, 40));
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for (name, container) in [("p", ".."), ("p", "a/b"), ("p", ""), ("../p", "c")] {
            let pod = LogDir { namespace: "n".into(), name: name.into(), uid: "u".into() };
            let log = LogFile { pod, container: container.into(), attempt: 0 };
            let error = folder(Path::new("/var/log/pods"), &log).expect_err(container);
            assert!(error.to_string().contains("expected the name of a folder"), "{error}");
        }
    }
}
