//! A disk and its file system under power cuts: data that was written and not synced is on it in
//! part, sector by sector, in any order; data that was synced is on it.

use std::collections::BTreeMap;

use crate::chance::Chance;

/// The unit that a disk writes atomically.
const SECTOR: usize = 512;

/// Identifies a file while it is open, even after its name is gone.
pub type Inode = usize;

/// The disk refuses an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The power is off, or the disk failed.
    Failed,
    /// The disk is full.
    Full,
}

/// The faults of the disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Writes that fail for lack of room, percent.
    pub full_percent: u64,
    /// Syncs that fail, percent; the data is lost in part, and the file looks as if it were not, as
    /// on Linux.
    pub sync_percent: u64,
    /// Syncs are acknowledged and not done.
    pub lies: bool,
}

/// The disk.
pub struct FaultyDisk {
    chance: Chance,
    files: Vec<File>,
    /// As the running program sees them.
    names: BTreeMap<String, Inode>,
    durable_names: BTreeMap<String, Inode>,
    /// Not yet durable, in order: a name and its new meaning.
    renamed: Vec<(String, Option<Inode>)>,
    pub faults: Faults,
    /// Operations until the power cut.
    pub left: u64,
    dead: bool,
}

#[derive(Default)]
struct File {
    now: Vec<u8>,
    durable: Vec<u8>,
    waiting: Vec<Op>,
}

enum Op {
    /// Within one sector.
    Write {
        at: usize,
        bytes: Vec<u8>,
    },
    Truncate(usize),
}

impl Op {
    /// `junk`: the content where nothing was written.
    fn apply(&self, to: &mut Vec<u8>, junk: u8) {
        match self {
            Self::Write { at, bytes } => {
                let end = at + bytes.len();
                if to.len() < end {
                    to.resize(end, junk);
                }
                to[*at..end].copy_from_slice(bytes);
            }
            Self::Truncate(len) if to.len() > *len => to.truncate(*len),
            Self::Truncate(_) => {}
        }
    }
}

impl FaultyDisk {
    /// Empty.
    pub fn new(seed: u64) -> Self {
        Self {
            chance: Chance::new(seed),
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            renamed: Vec::new(),
            faults: Faults::default(),
            left: u64::MAX,
            dead: false,
        }
    }

    /// The power is off.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Random bits for the program that uses the disk.
    pub fn bits(&mut self) -> u64 {
        self.chance.bits()
    }

    fn operate(&mut self, what: std::fmt::Arguments<'_>) -> Result<(), Refusal> {
        crate::trace(what);
        if self.dead {
            return Err(Refusal::Failed);
        }
        self.left -= 1;
        self.dead = self.left == 0;
        Ok(())
    }

    fn alive(&self) -> Result<(), Refusal> {
        if self.dead { Err(Refusal::Failed) } else { Ok(()) }
    }

    /// The file of that name.
    pub fn find(&self, name: &str) -> Option<Inode> {
        self.names.get(name).copied().filter(|_| !self.dead)
    }

    /// A new file. Its name is durable after the next sync of names.
    pub fn create(&mut self, name: &str) -> Result<Inode, Refusal> {
        let inode = self.files.len();
        self.operate(format_args!("{inode}: create {name}"))?;
        self.files.push(File::default());
        self.names.insert(name.to_owned(), inode);
        self.renamed.push((name.to_owned(), Some(inode)));
        self.alive().map(|()| inode)
    }

    /// Removes the name.
    pub fn delete(&mut self, name: &str) -> Result<(), Refusal> {
        self.operate(format_args!("delete {name}"))?;
        if self.names.remove(name).is_some() {
            self.renamed.push((name.to_owned(), None));
        }
        self.alive()
    }

    /// Reads existing data; 0 beyond the end.
    pub fn read(&self, file: Inode, at: usize, into: &mut [u8]) -> Result<usize, Refusal> {
        self.alive()?;
        let now = &self.files[file].now;
        let there = now.get(at..).unwrap_or_default();
        let len = there.len().min(into.len());
        into[..len].copy_from_slice(&there[..len]);
        into[len..].fill(0);
        Ok(len)
    }

    pub fn len(&self, file: Inode) -> Result<usize, Refusal> {
        self.alive().map(|()| self.files[file].now.len())
    }

    pub fn write(&mut self, file: Inode, at: usize, bytes: &[u8]) -> Result<(), Refusal> {
        self.operate(format_args!("{file}: write {at} {}", bytes.len()))?;
        if self.chance.percent(self.faults.full_percent) {
            crate::trace(format_args!("no room"));
            return Err(Refusal::Full);
        }
        let file = &mut self.files[file];
        let mut done = 0;
        while done < bytes.len() {
            let from = at + done;
            let len = (SECTOR - from % SECTOR).min(bytes.len() - done);
            let op = Op::Write { at: from, bytes: bytes[done..done + len].to_vec() };
            op.apply(&mut file.now, 0);
            file.waiting.push(op);
            done += len;
        }
        self.alive()
    }

    /// Writes the content of a file again, and syncs it and its name.
    pub fn rewrite(&mut self, name: &str) -> Result<(), Refusal> {
        let Some(file) = self.find(name) else { return self.alive() };
        let content = self.files[file].now.clone();
        self.write(file, 0, &content)?;
        self.sync(file, true)
    }

    pub fn truncate(&mut self, file: Inode, len: usize) -> Result<(), Refusal> {
        self.operate(format_args!("{file}: truncate {len}"))?;
        let op = Op::Truncate(len);
        let file = &mut self.files[file];
        op.apply(&mut file.now, 0);
        file.waiting.push(op);
        self.alive()
    }

    /// Makes a file durable, and all names with it if the program syncs the folder as well.
    pub fn sync(&mut self, file: Inode, names: bool) -> Result<(), Refusal> {
        self.operate(format_args!("{file}: sync, names {names}"))?;
        self.alive()?;
        if self.faults.lies {
            return Ok(());
        }
        if self.chance.percent(self.faults.sync_percent) {
            crate::trace(format_args!("{file}: the sync fails"));
            lose(&mut self.files[file], &mut self.chance);
            return Err(Refusal::Failed);
        }
        let file = &mut self.files[file];
        for op in file.waiting.drain(..) {
            op.apply(&mut file.durable, 0);
        }
        if names {
            self.sync_names();
        }
        Ok(())
    }

    /// Makes all names durable.
    pub fn sync_names(&mut self) {
        if !self.faults.lies {
            self.durable_names = self.names.clone();
            self.renamed.clear();
        }
    }

    /// The program is killed: the files stay as it saw them.
    pub fn kill(&mut self) {
        self.dead = true;
    }

    /// The program starts again on the remaining files.
    pub fn revive(&mut self) {
        crate::trace(format_args!("== start"));
        self.dead = false;
        self.left = u64::MAX;
    }

    /// The machine starts again with what the power cut left.
    pub fn reboot(&mut self) {
        crate::trace(format_args!("== the power was cut"));
        let chance = &mut self.chance;
        for file in &mut self.files {
            lose(file, chance);
            file.now = file.durable.clone();
        }
        // A journaling file system loses the last changes, others lose any.
        let kept = chance.below(self.renamed.len() as u64 + 1) as usize;
        let journals = chance.percent(70);
        for (at, (name, inode)) in self.renamed.drain(..).enumerate() {
            let keep = if journals { at < kept } else { chance.percent(50) };
            match inode {
                Some(inode) if keep => drop(self.durable_names.insert(name, inode)),
                None if keep => drop(self.durable_names.remove(&name)),
                Some(_) | None => {}
            }
        }
        self.names = self.durable_names.clone();
        let named: Vec<Inode> = self.names.values().copied().collect();
        for (inode, file) in self.files.iter_mut().enumerate() {
            if !named.contains(&inode) {
                *file = File::default();
            }
        }
        self.revive();
    }
}

/// Of the pending writes some reach the disk: none, all, the first ones, or any.
fn lose(file: &mut File, chance: &mut Chance) {
    let way = chance.below(4);
    let first = chance.below(file.waiting.len() as u64 + 1) as usize;
    let junk = if chance.percent(50) { 0 } else { 0xa7 };
    for (at, op) in file.waiting.drain(..).enumerate() {
        let keep = match way {
            0 => false,
            1 => true,
            2 => at < first,
            _ => chance.percent(50),
        };
        if keep {
            op.apply(&mut file.durable, junk);
        }
    }
}
