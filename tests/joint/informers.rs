//! Informers at MetaServer, as client-go's: each lists, watches from the version of the list, and
//! goes on from the last version when its watch ends. In the end it has what the API server has.

use std::collections::BTreeMap;
use std::sync::Arc;

use edged::agent::event::Event;
use edged::controller::SyncStore;
use edged::controller::time::Rng;
use edged::model::application::{Gvr, Item, Scope};
use edged::model::metaserver::{Call, Caller, ClientId, Form, Recency, Reply, Watch, WatchEvent};
use serde_json::{Value, json};

use crate::joint::Joint;
use crate::stories::EACH;
use crate::worlds::{self, Fault};

const TURNS: u64 = 60;

fn slices() -> Gvr {
    Gvr::new("discovery.k8s.io", "v1", "endpointslices")
}

fn slice(name: &str, address: u64) -> Value {
    json!({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"name": name, "namespace": "n"}, "endpoints": [address]})
}

/// By name, the address.
type Objects = BTreeMap<String, Value>;

#[derive(Default)]
struct Informer {
    objects: Objects,
    /// From which it watches; 0: it has to list first.
    version: u64,
    /// Its request or watch.
    open: Option<ClientId>,
    last: u64,
    /// Events so far.
    events: usize,
}

impl Informer {
    fn asks(&mut self, joint: &mut Joint) {
        if self.open.is_some() {
            return;
        }
        self.last += 1;
        let (id, form) = (ClientId(self.last), Form::Whole);
        let scope = Scope::all(slices());
        let call = if self.version == 0 {
            Call::List { scope, recency: Recency::Latest, form }
        } else {
            let (version, timeout_s, bookmarks) = (self.version, Some(600), true);
            Call::Watch(Watch { scope, version, timeout_s, bookmarks, initial_events: false, form })
        };
        self.open = Some(id);
        let event = Event::MetaServerOpened(id, Box::new(call), Caller::Local);
        joint.node.harness.deliver(event);
        joint.node.settle();
    }

    fn put(&mut self, item: &Item) {
        let object: Value = serde_json::from_str(&item.text).expect("JSON");
        self.objects.insert(item.name.to_string(), object["endpoints"][0].clone());
        self.version = self.version.max(item.version);
    }

    fn takes(&mut self, reply: Reply) {
        let puts = |this: &mut Self, items: &[Arc<Item>]| items.iter().for_each(|it| this.put(it));
        match reply {
            Reply::List { items, version, .. } => {
                self.objects.clear();
                puts(self, &items);
                (self.version, self.open) = (version, None);
            }
            Reply::Watching(beginning) => {
                for item in &beginning.gone {
                    self.objects.remove(&*item.name);
                }
                puts(self, &beginning.items);
            }
            Reply::Event(WatchEvent::Added(_, item) | WatchEvent::Modified(_, item)) => {
                self.events += 1;
                self.put(&item);
            }
            Reply::Event(WatchEvent::Deleted(_, item)) => {
                self.events += 1;
                self.objects.remove(&*item.name);
                self.version = self.version.max(item.version);
            }
            Reply::Event(WatchEvent::Bookmark(_, version, _)) => {
                self.version = self.version.max(version);
            }
            Reply::Failure(failure) if failure.code == 410 => {
                (self.version, self.open) = (0, None);
            }
            Reply::End | Reply::Failure(_) | Reply::Remote(..) => self.open = None,
            other => panic!("an informer gets {other:?}"),
        }
    }

    /// Time passes, and it does what it does.
    fn pass(&mut self, joint: &mut Joint, ms: u64) {
        let mut left = ms;
        loop {
            self.asks(joint);
            let step = left.min(2_000);
            joint.pass(step);
            for (id, reply) in std::mem::take(&mut joint.node.replies) {
                if self.open == Some(id) {
                    self.takes(reply);
                }
            }
            left -= step;
            if left == 0 {
                return;
            }
        }
    }
}

/// What the API server has.
fn truth(joint: &Joint) -> Objects {
    let of = slices();
    let all = joint.world.any.of(&of);
    all.map(|((_, name), object)| (name.clone(), object["endpoints"][0].clone())).collect()
}

#[test]
fn an_informer_gets_each_change_by_its_watch() {
    for sync in EACH {
        let (mut joint, mut informer) = (Joint::new(sync, 1), Informer::default());
        joint.world.any.apply(&slices(), slice("a", 1));
        informer.pass(&mut joint, 10_000);
        assert_eq!(informer.objects, truth(&joint));
        assert_eq!(informer.events, 0, "it was in the list");
        for address in 2..5 {
            joint.world.any.apply(&slices(), slice("a", address));
            informer.pass(&mut joint, 2_000);
            assert_eq!(informer.objects, truth(&joint));
        }
        joint.world.any.remove(&slices(), "n", "a");
        informer.pass(&mut joint, 2_000);
        assert!(informer.objects.is_empty());
        assert_eq!(informer.events, 4);
    }
}

#[test]
fn whatever_happens_an_informer_ends_up_with_what_the_api_server_has() {
    worlds::each_seed(|seed| {
        let mut rng = Rng::new(seed);
        let sync = if rng.below(2) == 0 { SyncStore::Table } else { SyncStore::Objects };
        let (mut joint, mut informer) = (Joint::new(sync, seed), Informer::default());
        for turn in 0..TURNS {
            let name = format!("s{}", rng.below(4));
            match rng.below(14) {
                0..=4 => drop(joint.world.any.apply(&slices(), slice(&name, turn))),
                5..=7 => joint.world.any.remove(&slices(), "n", &name),
                8..=10 => {
                    let fault = Fault::draw(&mut rng);
                    fault.befall(&mut joint, &mut rng);
                    if matches!(fault, Fault::Agent | Fault::Stop | Fault::Store) {
                        informer.open = None;
                    }
                }
                11 => joint.world.any.compacted = joint.world.any.version,
                12 => {
                    // The program is started anew.
                    if let Some(id) = informer.open.take() {
                        joint.node.harness.deliver(Event::MetaServerClosed(id));
                        joint.node.settle();
                    }
                    informer.objects.clear();
                    informer.version = 0;
                }
                _ => {}
            }
            let most = if rng.below(8) == 0 { 900_000 } else { 8_000 };
            let ms = 1 + rng.below(most);
            informer.pass(&mut joint, ms);
            joint.is_reachable |= rng.below(4) == 0;
        }
        joint.is_reachable = true;
        informer.pass(&mut joint, 900_000);
        assert_eq!(informer.objects, truth(&joint), "SEED={seed}; the node:\n{}", joint.log());
    });
}
