//! The store in the event loop: read before the first turn, written at the end of a turn.

use std::io;
use std::path::Path;

use super::crashes::Crashes;
use super::{Disk, Vfs};
use crate::agent::event::Event;
use crate::agent::time::Instant;
use crate::config::Config;
use crate::io::clock;
use crate::io::log::Limit;
use crate::limits::{Budget, START_CRASHES_MAX, STORE_COMMIT_MS_MAX};
#[cfg(debug_assertions)]
use crate::model::meta::Saved;
use crate::model::meta::{Change, Revision};

/// The open store, if there is a cloud.
#[derive(Debug)]
pub struct Store {
    disk: Option<Disk>,
    /// At most one save: the core sends the next one after this is answered.
    pending: Option<(Revision, Vec<Change>)>,
    limit: Limit,
    /// `None`: there is no store that could be the cause.
    crashes: Option<Crashes>,
}

impl Store {
    /// Opens the store if a cloud is configured, and reports its content. Fails if another
    /// agent uses it.
    pub fn open(config: &Config, budget: &Budget, events: &mut Vec<Event>) -> io::Result<Self> {
        let has_store = config.cloud.is_configured();
        let crashes = has_store.then(|| Crashes::watch(Path::new(&config.root)));
        Self::open_after(crashes, config, budget, events)
    }

    fn open_after(
        crashes: Option<Crashes>,
        config: &Config,
        budget: &Budget,
        events: &mut Vec<Event>,
    ) -> io::Result<Self> {
        let mut store = Self { disk: None, pending: None, limit: Limit::default(), crashes };
        if config.cloud.is_configured() {
            let ground = Vfs::with_memory(budget.meta_bytes_max);
            let path = Path::new(&config.cloud.store);
            let opened = match store.crashes.as_ref().filter(|crashes| crashes.are_too_many()) {
                Some(crashes) => {
                    let why = format!("{START_CRASHES_MAX} starts of edged in a row have crashed");
                    Disk::set_aside(ground, path, &why).inspect(|_| crashes.forget())
                }
                None => Disk::open_on(ground, path),
            };
            let opened = opened.map_err(|refused| io::Error::other(refused.to_string()));
            #[cfg(feature = "metaserver")]
            let opened = opened.map(|(disk, mut saved)| {
                if let Some(settings) = config.metaserver.settings() {
                    saved.items = disk.items(&saved.rows, settings, budget.meta_bytes_max / 3);
                }
                (disk, saved)
            });
            let (disk, saved) = opened?;
            #[cfg(debug_assertions)]
            fail_on(&saved);
            events.push(Event::Loaded(Box::new(saved)));
            store.disk = Some(disk);
        }
        Ok(store)
    }

    /// Saves the changes at the end of this turn.
    pub fn save(&mut self, revision: Revision, changes: Vec<Change>) {
        assert!(self.pending.is_none(), "{revision:?} before the previous save was answered");
        self.pending = Some((revision, changes));
    }

    /// Writes the pending save.
    pub fn commit(&mut self, now: Instant, events: &mut Vec<Event>) {
        if let Some(crashes) = &mut self.crashes {
            crashes.tick(now);
        }
        let Some((revision, changes)) = self.pending.take() else { return };
        let disk = self.disk.as_mut().expect("only an agent with a cloud saves");
        let begun = clock::boot();
        events.push(disk.save(revision, &changes));
        let took_ms = clock::boot().since_ms(begun);
        if let Some(line) = self.slow_commit_line(now, took_ms, changes.len()) {
            log::warn!("{line}");
        }
    }

    /// The log line of a commit that took too long.
    fn slow_commit_line(&mut self, now: Instant, took_ms: u64, changes: usize) -> Option<String> {
        let repeats = (took_ms > STORE_COMMIT_MS_MAX).then(|| self.limit.pass(now)).flatten()?;
        Some(format!("the store took {took_ms} ms for {changes} changes; repeats={repeats}"))
    }

    /// Closes the store as EdgeCore does.
    pub fn close(&mut self) {
        if let Some(disk) = self.disk.take() {
            disk.close();
        }
    }
}

/// A row that trips an assertion, for tests of what follows: `EDGED_TEST_FAILS_ON` names its key.
#[cfg(debug_assertions)]
fn fail_on(saved: &Saved) {
    let Ok(key) = std::env::var("EDGED_TEST_FAILS_ON") else { return };
    assert!(saved.rows.iter().all(|row| *row.key != *key), "{key} is stored");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::overlay;
    use crate::model::meta::Row;

    fn open(config: &Config, events: &mut Vec<Event>) -> io::Result<Store> {
        Store::open_after(None, config, &Budget::FULL, events)
    }

    #[test]
    fn a_commit_that_took_long_is_told_and_not_each_time() {
        let mut store = Store { disk: None, pending: None, limit: Limit::default(), crashes: None };
        let mut line_after = |took_ms| store.slow_commit_line(Instant(1), took_ms, 3);
        assert_eq!(line_after(STORE_COMMIT_MS_MAX), None);
        let long_ms = STORE_COMMIT_MS_MAX + 1;
        let line = format!("the store took {long_ms} ms for 3 changes; repeats=0");
        assert_eq!((line_after(long_ms), line_after(long_ms)), (Some(line), None));
    }

    #[test]
    fn it_is_there_where_a_cloud_is() {
        let mut events = Vec::new();
        let mut config = Config::default();
        let mut store = Store::open(&config, &Budget::FULL, &mut events).expect("there is none");
        assert!(store.crashes.is_none(), "without a store no crash is counted");
        store.commit(Instant(1), &mut events);
        assert!(events.is_empty());
        store.close();

        let name = format!("edged-hands-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let text = format!(
            "database: {{dataSource: {}/s.db}}\n\
             modules: {{edgeHub: {{httpServer: 'https://c:1'}}}}\n",
            folder.display()
        );
        overlay(&mut config, text.as_bytes()).expect(&text);
        let mut store = open(&config, &mut events).expect("nobody has it");
        assert!(open(&config, &mut Vec::new()).is_err());
        let row = Row { key: "a/pod/a".into(), kind: "pod".into(), value: "{}".into() };
        store.save(Revision(3), vec![Change::Put(row)]);
        store.commit(Instant(1), &mut events);
        store.close();
        let mut store = open(&config, &mut events).expect("it was closed");
        let [Event::Loaded(first), Event::Saved(Revision(3)), Event::Loaded(then)] = &events[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!((first.rows.len(), then.rows.len()), (0, 1));
        store.close();
        std::fs::remove_dir_all(&folder).expect("it was made");
    }
}
