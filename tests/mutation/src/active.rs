//! Which mutant is active. The tool copies this file into the mutated tree as `src/mutation.rs`.
//!
//! `MUTANT` selects it: a number, nothing, `each:FILE` to write into FILE which mutants each test
//! reaches (a line for each thread: libtest gives each test a thread of its name), or `all:FILE` to
//! write into FILE which ones the whole program reaches.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

const UNKNOWN: u32 = u32::MAX;
const EACH: u32 = u32::MAX - 1;
const ALL: u32 = u32::MAX - 2;
const IDS_MAX: usize = 1 << 16;

static ACTIVE: AtomicU32 = AtomicU32::new(UNKNOWN);
static REACHED: [AtomicBool; IDS_MAX] = [const { AtomicBool::new(false) }; IDS_MAX];

thread_local! {
    static SEEN: RefCell<Seen> = RefCell::new(Seen::new());
}

/// Whether this mutant is the active one.
#[inline(always)]
pub fn active(id: u32) -> bool {
    let now = ACTIVE.load(Ordering::Relaxed);
    if now >= ALL { special(now, id) } else { now == id }
}

#[cold]
#[inline(never)]
fn special(now: u32, id: u32) -> bool {
    match now {
        UNKNOWN => {
            let told = std::env::var("MUTANT").unwrap_or_default();
            let which = match told.split_once(':') {
                Some(("each", _)) => EACH,
                Some(("all", _)) => ALL,
                _ => told.parse().unwrap_or(0),
            };
            ACTIVE.store(which, Ordering::Relaxed);
            active(id)
        }
        EACH => {
            // A drop at a test's end may run after its thread's memory is gone.
            let _ = SEEN.try_with(|seen| seen.borrow_mut().note(id));
            false
        }
        _ => {
            let reached = &REACHED[id as usize];
            if !reached.load(Ordering::Relaxed) && !reached.swap(true, Ordering::Relaxed) {
                append(&format!("{id}\n"));
            }
            false
        }
    }
}

fn append(line: &str) {
    let told = std::env::var("MUTANT").unwrap();
    let path = told.split_once(':').unwrap().1;
    let mut file: File = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(line.as_bytes()).unwrap();
}

struct Seen {
    name: String,
    since: Instant,
    ids: Vec<bool>,
}

impl Seen {
    fn new() -> Self {
        let name = std::thread::current().name().unwrap_or_default().to_owned();
        Self { name, since: Instant::now(), ids: Vec::new() }
    }

    fn note(&mut self, id: u32) {
        let at = id as usize;
        if self.ids.len() <= at {
            self.ids.resize(at + 1, false);
        }
        self.ids[at] = true;
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        let ms = self.since.elapsed().as_millis();
        let mut line = format!("{}\t{ms}\t", self.name);
        for (id, _) in self.ids.iter().enumerate().filter(|(_, seen)| **seen) {
            line.push_str(&format!("{id},"));
        }
        line.push('\n');
        append(&line);
    }
}
