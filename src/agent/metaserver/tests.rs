//! What clients get, and what the cloud is asked for.

use super::objects::name_of;
use super::*;
use crate::limits::{
    METASERVER_ANSWER_MS, METASERVER_GRACE_MS, METASERVER_LIST_PAGES_MAX, METASERVER_OBJECTS_MAX,
    METASERVER_REQUESTS_MAX, METASERVER_RETRY_MS, METASERVER_SAVE_ROWS_MAX, METASERVER_WATCH_MS,
    METASERVER_WINDOW,
};
use crate::model::application::Application;
use crate::model::metaserver::{Answer, Form, Page, Recency, Source, WatchEvent, Write};
use crate::model::selector::LabelSelector;

/// A MetaServer with a clock.
struct Bench {
    core: MetaServer,
    now: Now,
    rng: Rng,
    last_client: u64,
}

fn gvr(resource: &str) -> Gvr {
    Gvr::new("", "v1", resource)
}

fn item(name: &str, version: u64) -> Arc<Item> {
    labelled(name, version, &[])
}

fn labelled(name: &str, version: u64, labels: &[(&str, &str)]) -> Arc<Item> {
    let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    Arc::new(Item {
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: "a".into(),
        name: name.into(),
        uid: format!("uid-{name}").into(),
        version,
        labels,
        node: "".into(),
        phase: "".into(),
        created: "".into(),
        digest: version,
        text: format!("{name}@{version}").into(),
    })
}

fn maps() -> Scope {
    Scope::all(gvr("configmaps"))
}

fn watch(scope: &Scope, version: u64) -> Watch {
    Watch {
        scope: scope.clone(),
        version,
        timeout_s: Some(3_600),
        bookmarks: true,
        initial_events: false,
        form: Form::Whole,
    }
}

impl Bench {
    fn new() -> Self {
        let core = MetaServer::new(MetaServerSettings::default(), "edge-1", 12 << 20);
        let now = Now { boot: Instant(1_000), wall: None };
        Self { core, now, rng: Rng::new(7), last_client: 0 }
    }

    fn up() -> Self {
        let mut bench = Self::new();
        bench.core.link_up();
        bench
    }

    fn open(&mut self, call: Call) -> ClientId {
        self.last_client += 1;
        let id = ClientId(self.last_client);
        self.core.opened(self.now, id, call);
        id
    }

    fn list(&mut self, recency: Recency) -> ClientId {
        self.open(Call::List { scope: maps(), recency, form: Form::Whole })
    }

    fn get(&mut self, name: &str) -> ClientId {
        let served = self.core.settings.find(&gvr("configmaps")).expect("it is served").clone();
        let (namespace, name) = ("a".into(), name.into());
        self.open(Call::Get { served, namespace, name, form: Form::Whole })
    }

    /// What the clients get, in short.
    fn step(&mut self) -> Vec<(u64, String)> {
        let mut out = Out::default();
        self.core.step(self.now, &mut self.rng, &mut out, |_| None);
        if let Some(at) = self.core.wake_at() {
            assert!(at > Instant(0), "a reply was left");
        }
        let reply = |action| match action {
            Action::MetaServer(id, reply) => Some((id.0, short(&reply))),
            _ => None,
        };
        out.actions.into_iter().filter_map(reply).collect()
    }

    fn pass(&mut self, ms: u64) {
        self.now.boot = self.now.boot.plus_ms(ms);
    }

    fn request(&mut self) -> Option<(u64, Application)> {
        let is_due = self.core.has_request();
        let request = self.core.next_request();
        assert!(is_due || request.is_none(), "{request:?} was not announced");
        request
    }

    /// The cloud answers one list, which must be the next request.
    fn answer_list(&mut self, items: &[Arc<Item>], version: u64) {
        let (number, request) = self.request().expect("a list is requested");
        assert_eq!((request.verb, &*request.key), ("list", "/core/v1/configmaps/null/null"));
        let page = Page { items: items.to_vec(), version, next: None };
        self.core.answered(self.now, number, Answer::Page(page));
    }

    /// A watch that the cloud serves; its first objects are known.
    fn live(&mut self, items: &[Arc<Item>], version: u64) -> ClientId {
        let id = self.open(Call::Watch(watch(&maps(), 0)));
        assert_eq!(self.step(), []);
        self.answer_list(items, version);
        assert_eq!(self.core.watches().collect::<Vec<_>>(), [&Arc::new(maps())]);
        self.core.registered(self.now, true, |_| Registration::Taken);
        self.answer_list(items, version);
        id
    }
}

fn short(reply: &Reply) -> String {
    let names = |items: &[Arc<Item>]| {
        let names: Vec<&str> = items.iter().map(|item| &*item.text).collect();
        names.join(" ")
    };
    let source = |source: &Source| match source {
        Source::Cloud => "",
        Source::Store => " (store)",
    };
    match reply {
        Reply::Object { item, source: of, .. } => format!("{}{}", item.text, source(of)),
        Reply::List { items, version, source: of, .. } => {
            format!("[{}] at {version}{}", names(items), source(of))
        }
        Reply::Remote(code, body) => format!("{code} {body}"),
        Reply::Done => "done".to_owned(),
        Reply::Messages(messages) => format!("{messages:?}"),
        #[cfg(feature = "streams")]
        Reply::Stream(request) => format!("{request:?}"),
        Reply::Failure(failure) => format!("{} {}", failure.code, failure.reason),
        Reply::Watching(it) => {
            let bookmark = it.bookmark.as_ref().map_or(0, |(_, version)| *version);
            format!("watch -[{}] +[{}] {bookmark}", names(&it.gone), names(&it.items))
        }
        Reply::Event(event) => match event {
            WatchEvent::Added(_, item) => format!("+{}", item.text),
            WatchEvent::Modified(_, item) => format!("~{}", item.text),
            WatchEvent::Deleted(_, item) => format!("-{}", item.text),
            WatchEvent::Bookmark(_, version, _) => format!("bookmark {version}"),
        },
        Reply::End => "end".to_owned(),
    }
}

fn replies(of: &[(u64, &str)]) -> Vec<(u64, String)> {
    of.iter().map(|(id, text)| (*id, (*text).to_owned())).collect()
}

#[test]
fn a_list_is_the_clouds_and_its_failure_is_passed_on() {
    let mut bench = Bench::up();
    bench.list(Recency::Latest);
    assert_eq!(bench.step(), []);
    bench.answer_list(&[item("x", 5), item("y", 6)], 9);
    assert_eq!(bench.step(), replies(&[(1, "[x@5 y@6] at 9")]));
    assert!(bench.request().is_none(), "nobody watches");
    bench.list(Recency::Latest);
    assert_eq!(bench.step(), []);
    let (number, _) = bench.request().expect("asked again");
    bench.core.answered(bench.now, number, Answer::Refused(403, "{forbidden}".into()));
    assert_eq!(bench.step(), replies(&[(2, "403 {forbidden}")]));
}

#[test]
fn a_list_of_many_pages_is_given_out_whole() {
    let mut bench = Bench::up();
    bench.list(Recency::Latest);
    bench.step();
    let (number, first) = bench.request().expect("the first page");
    let is_first = |request: &Application| {
        matches!(&request.options, crate::model::application::Options::List { page, .. }
            if page.is_empty())
    };
    assert!(is_first(&first));
    let page = Page { items: vec![item("x", 5)], version: 9, next: Some("t".into()) };
    bench.core.answered(bench.now, number, Answer::Page(page));
    assert_eq!(bench.step(), []);
    let (number, second) = bench.request().expect("the second page");
    assert!(!is_first(&second));
    // A token that is too old begins the list anew.
    bench.core.answered(bench.now, number, Answer::Refused(410, "{}".into()));
    bench.answer_list(&[item("y", 8)], 10);
    assert_eq!(bench.step(), replies(&[(1, "[y@8] at 10")]));
}

#[test]
fn a_list_that_came_while_another_was_under_way_is_a_new_one() {
    let mut bench = Bench::up();
    bench.list(Recency::Latest);
    bench.step();
    let (number, _) = bench.request().expect("a list");
    bench.list(Recency::Latest);
    assert_eq!(bench.step(), []);
    assert!(bench.request().is_none(), "one after the other");
    let page = Page { items: vec![item("x", 5)], version: 9, next: None };
    bench.core.answered(bench.now, number, Answer::Page(page));
    assert_eq!(bench.step(), replies(&[(1, "[x@5] at 9")]));
    bench.answer_list(&[item("x", 11)], 12);
    assert_eq!(bench.step(), replies(&[(2, "[x@11] at 12")]));
}

#[test]
fn without_a_cloud_the_store_answers_and_says_so() {
    let mut bench = Bench::new();
    let stored = StoredItem { item: item("x", 5), has_row: true };
    bench.core.load(&[stored]);
    bench.list(Recency::Latest);
    bench.get("x");
    bench.get("none");
    bench.open(Call::Watch(watch(&maps(), 5)));
    let want = [
        (1, "[x@5] at 5 (store)"),
        (2, "x@5 (store)"),
        (3, "503 ServiceUnavailable"),
        (4, "watch -[] +[] 0"),
    ];
    assert_eq!(bench.step(), replies(&want));
    assert_eq!(bench.core.overview().from_store, 2);
}

#[test]
fn a_cloud_without_dynamic_controller_is_found_once() {
    let mut bench = Bench::up();
    bench.get("x");
    assert_eq!(bench.step(), []);
    let (number, _) = bench.request().expect("the cloud is asked");
    bench.pass(METASERVER_ANSWER_MS);
    bench.core.unanswered(bench.now, number, true);
    assert_eq!(bench.step(), replies(&[(1, "503 ServiceUnavailable")]));
    let trouble = bench.core.overview().trouble.expect("it is said");
    assert!(trouble.contains("dynamic controller"), "{trouble}");
    // At once, without a question.
    bench.list(Recency::Latest);
    assert_eq!(bench.step(), replies(&[(2, "[] at 1 (store)")]));
    assert!(bench.request().is_none());
    bench.pass(METASERVER_RETRY_MS);
    bench.list(Recency::Latest);
    assert_eq!(bench.step(), []);
    bench.answer_list(&[item("x", 5)], 9);
    assert_eq!(bench.step(), replies(&[(3, "[x@5] at 9")]));
    assert_eq!(bench.core.overview().trouble, None);
}

#[test]
fn a_watch_shows_what_there_is_and_then_each_change() {
    let mut bench = Bench::up();
    bench.live(&[item("x", 5)], 9);
    assert_eq!(bench.step(), replies(&[(1, "watch -[] +[x@5] 0")]));
    bench.core.pushed(bench.now, &item("x", 12));
    bench.core.pushed(bench.now, &item("y", 13));
    bench.core.pushed(bench.now, &item("x", 11));
    bench.core.removed(bench.now, "configmap", ("a", "x"), "uid-x", 14);
    // Too late: it is deleted.
    bench.core.pushed(bench.now, &item("x", 13));
    assert_eq!(bench.step(), replies(&[(1, "~x@12"), (1, "+y@13"), (1, "-x@12")]));
    bench.pass(METASERVER_BOOKMARK_MS);
    assert_eq!(bench.step(), replies(&[(1, "bookmark 14")]));
    bench.pass(3_600_000);
    assert_eq!(bench.step(), replies(&[(1, "end")]));
}

#[test]
fn watches_of_one_scope_share_the_clouds_watch() {
    let mut bench = Bench::up();
    bench.live(&[item("x", 5)], 9);
    bench.step();
    for _ in 0..3 {
        bench.open(Call::Watch(watch(&maps(), 9)));
    }
    assert_eq!(bench.step().len(), 3);
    assert!(bench.request().is_none());
    assert_eq!(bench.core.watches().count(), 1);
    // A list that may be of before is answered without the cloud.
    bench.list(Recency::Any);
    assert_eq!(bench.step(), replies(&[(5, "[x@5] at 9")]));
    for id in 1..=5 {
        bench.core.closed(ClientId(id));
    }
    bench.step();
    bench.pass(METASERVER_GRACE_MS - 1);
    bench.step();
    assert_eq!(bench.core.watches().count(), 1, "a client may come back");
    bench.pass(1);
    bench.step();
    assert_eq!(bench.core.watches().count(), 0);
}

/// However long ago it was begun, and whatever was looked at before it ended.
#[test]
fn a_scope_lasts_as_long_as_its_watch_and_some_time_beyond() {
    let mut bench = Bench::up();
    let id = bench.live(&[item("x", 5)], 9);
    bench.step();
    for _ in 0..2 {
        bench.pass(METASERVER_GRACE_MS);
        bench.step();
        assert_eq!(bench.core.watches().count(), 1, "it is used");
    }
    bench.pass(METASERVER_GRACE_MS - 1);
    bench.core.closed(id);
    bench.step();
    bench.pass(METASERVER_GRACE_MS - 1);
    bench.step();
    assert_eq!(bench.core.watches().count(), 1, "a client may come back");
    bench.pass(1);
    assert!(bench.core.wake_at() <= Some(bench.now.boot));
    bench.step();
    assert_eq!(bench.core.watches().count(), 0);
}

/// A program that goes on from what the process before gave it.
#[test]
fn a_watch_of_before_the_start_lists_again() {
    let stored = || [StoredItem { item: item("x", 5), has_row: true }];
    let mut bench = Bench::new();
    bench.core.load(&stored());
    // More may have been given out than was stored.
    for (version, want) in [(5, "410 Expired"), (9, "410 Expired")] {
        let id = bench.open(Call::Watch(watch(&maps(), version)));
        assert_eq!(bench.step(), replies(&[(id.0, want)]), "{version}");
        bench.pass(METASERVER_GRACE_MS);
        bench.step();
    }
    bench.list(Recency::Any);
    assert_eq!(bench.step(), replies(&[(3, "[x@5] at 5 (store)")]));
    for (version, want) in [(5, "watch -[] +[] 0"), (6, "410 Expired")] {
        let id = bench.open(Call::Watch(watch(&maps(), version)));
        assert_eq!(bench.step(), replies(&[(id.0, want)]), "{version}");
    }
    // With a link as well: what was deleted before the cloud was listed is not known.
    let mut bench = Bench::up();
    bench.core.load(&stored());
    bench.live(&[item("x", 5)], 20);
    bench.step();
    for (version, want) in [(19, "410 Expired"), (20, "watch -[] +[] 0"), (21, "410 Expired")] {
        let id = bench.open(Call::Watch(watch(&maps(), version)));
        assert_eq!(bench.step(), replies(&[(id.0, want)]), "{version}");
    }
}

/// Messages are sent again, and come in another order than the changes were made.
#[test]
fn a_watch_goes_on_with_what_came_late() {
    let mut bench = Bench::up();
    bench.live(&[item("x", 5)], 9);
    assert_eq!(bench.step(), replies(&[(1, "watch -[] +[x@5] 0")]));
    bench.core.pushed(bench.now, &item("y", 20));
    assert_eq!(bench.step(), replies(&[(1, "+y@20")]));
    bench.core.pushed(bench.now, &item("z", 15));
    bench.core.removed(bench.now, "configmap", ("a", "x"), "uid-x", 16);
    assert_eq!(bench.step(), replies(&[(1, "+z@15"), (1, "-x@5")]));
    for (version, want) in [(20, "watch -[x@5] +[z@15] 0"), (22, "watch -[x@5] +[] 0")] {
        let id = bench.open(Call::Watch(watch(&maps(), version)));
        assert_eq!(bench.step(), replies(&[(id.0, want)]), "{version}");
    }
    bench.core.pushed(bench.now, &item("y", 21));
    let want = [(1, "~y@21"), (2, "~y@21"), (3, "~y@21")];
    assert_eq!(bench.step(), replies(&want));
    let id = bench.open(Call::Watch(watch(&maps(), 21)));
    assert_eq!(bench.step(), replies(&[(id.0, "watch -[x@5] +[y@21] 0")]));
}

/// A list of some labels does not have it, because it has others now.
#[test]
fn what_has_left_a_selection_is_not_deleted() {
    let mut bench = Bench::up();
    bench.live(&[labelled("x", 5, &[("tier", "a")])], 9);
    assert_eq!(bench.step(), replies(&[(1, "watch -[] +[x@5] 0")]));
    let labels = LabelSelector::parse("tier=a").expect("a selector");
    let scope = Scope { labels, ..maps() };
    let id = bench.open(Call::List { scope, recency: Recency::Latest, form: Form::Whole });
    assert_eq!(bench.step(), []);
    let (number, _) = bench.request().expect("a list");
    let page = Page { items: Vec::new(), version: 12, next: None };
    bench.core.answered(bench.now, number, Answer::Page(page));
    assert_eq!(bench.step(), replies(&[(1, "-x@5"), (id.0, "[] at 12")]));
    // What it was does not come back, what it is does.
    bench.core.pushed(bench.now, &labelled("x", 5, &[("tier", "a")]));
    assert_eq!(bench.step(), []);
    bench.core.pushed(bench.now, &labelled("x", 11, &[("tier", "b")]));
    assert_eq!(bench.step(), replies(&[(1, "+x@11")]));
}

#[test]
fn a_watch_goes_on_after_its_version_or_its_client_lists_again() {
    let mut bench = Bench::up();
    bench.live(&[item("x", 5), item("y", 6)], 9);
    bench.step();
    bench.core.removed(bench.now, "configmap", ("a", "x"), "", 0);
    bench.core.pushed(bench.now, &item("y", 20));
    bench.step();
    for (version, want) in [
        (8, "410 Expired"),
        (9, "watch -[x@5] +[y@20] 0"),
        (10, "watch -[x@5] +[y@20] 0"),
        (19, "watch -[] +[y@20] 0"),
        (20, "watch -[] +[] 0"),
    ] {
        let id = bench.open(Call::Watch(watch(&maps(), version)));
        assert_eq!(bench.step(), replies(&[(id.0, want)]), "{version}");
    }
    // Only so many deletions are remembered.
    for n in 0..METASERVER_WINDOW as u64 {
        bench.core.pushed(bench.now, &item("z", 100 + 2 * n));
        bench.core.removed(bench.now, "configmap", ("a", "z"), "", 101 + 2 * n);
    }
    bench.step();
    let id = bench.open(Call::Watch(watch(&maps(), 9)));
    assert_eq!(bench.step(), replies(&[(id.0, "410 Expired")]));
}

#[test]
fn a_deletion_of_what_was_never_held_is_not_lost_for_an_older_watch() {
    let mut bench = Bench::up();
    bench.live(&[item("x", 5)], 9);
    bench.step();
    let name = ("a", "never-held");
    bench.core.removed(bench.now, "configmap", name, "uid-never-held", 12);
    let watch_from = |bench: &mut Bench, version| {
        let id = bench.open(Call::Watch(watch(&maps(), version)));
        (id, bench.step())
    };
    let (id, got) = watch_from(&mut bench, 9);
    assert_eq!(got, replies(&[(id.0, "410 Expired")]), "its client may have that object");
    // Once is enough: the same deletion comes again, and the client's new list is not older.
    bench.core.removed(bench.now, "configmap", name, "uid-never-held", 12);
    bench.list(Recency::Any);
    assert_eq!(bench.step().pop().expect("a list").1, "[x@5] at 12");
    let (id, got) = watch_from(&mut bench, 12);
    assert_eq!(got, replies(&[(id.0, "watch -[] +[] 0")]));
    // A cloud that deletes by name alone, and what was held: that is told as before.
    bench.core.removed(bench.now, "configmap", ("a", "x"), "", 0);
    assert!(bench.step().iter().all(|(_, text)| text == "-x@5"));
    bench.core.removed(bench.now, "configmap", ("a", "x"), "uid-x", 0);
    let (id, got) = watch_from(&mut bench, 12);
    assert_eq!(got, replies(&[(id.0, "watch -[x@5] +[] 0")]), "its second deletion is no news");
    bench.core.removed(bench.now, "configmap", ("a", "other"), "", 0);
    let (id, got) = watch_from(&mut bench, 12);
    assert_eq!(got, replies(&[(id.0, "410 Expired")]));
}

#[test]
fn a_list_and_its_watch_leave_no_gap() {
    let mut bench = Bench::up();
    bench.list(Recency::Latest);
    bench.step();
    bench.answer_list(&[item("x", 5), item("y", 6)], 9);
    bench.step();
    // Before the watch reaches the cloud, one is deleted and one is made.
    bench.open(Call::Watch(watch(&maps(), 9)));
    assert_eq!(bench.step(), []);
    // The list was an answer: the cloud serves these.
    assert!(bench.request().is_none());
    bench.core.registered(bench.now, true, |_| Registration::Taken);
    bench.answer_list(&[item("y", 6), item("z", 11)], 12);
    assert_eq!(bench.step(), replies(&[(2, "watch -[x@5] +[z@11] 0")]));
}

#[test]
fn initial_events_end_with_their_bookmark() {
    let mut bench = Bench::up();
    bench.live(&[item("x", 5)], 9);
    bench.step();
    let initial = Watch { initial_events: true, ..watch(&maps(), 0) };
    bench.open(Call::Watch(initial));
    assert_eq!(bench.step(), replies(&[(2, "watch -[] +[x@5] 9")]));
}

#[test]
fn an_object_that_leaves_the_selection_is_deleted_there() {
    let mut bench = Bench::up();
    bench.live(&[labelled("x", 5, &[("k", "v")])], 9);
    bench.step();
    let chosen = Scope { labels: LabelSelector::parse("k=v").expect("a selector"), ..maps() };
    bench.core.link_down();
    let id = bench.open(Call::Watch(watch(&chosen, 0)));
    assert_eq!(bench.step(), replies(&[(id.0, "watch -[] +[x@5] 0")]));
    bench.core.pushed(bench.now, &item("x", 10));
    assert_eq!(bench.step(), replies(&[(1, "~x@10"), (2, "-x@10")]));
    bench.core.pushed(bench.now, &labelled("x", 11, &[("k", "v")]));
    assert_eq!(bench.step(), replies(&[(1, "~x@11"), (2, "+x@11")]));
}

#[test]
fn a_resource_that_the_cloud_does_not_have_is_never_watched_there() {
    let mut bench = Bench::up();
    bench.open(Call::Watch(watch(&maps(), 0)));
    assert_eq!(bench.step(), []);
    let (number, probe) = bench.request().expect("the cloud is asked first");
    assert_eq!(probe.verb, "list");
    assert_eq!(bench.core.watches().count(), 0);
    bench.core.answered(bench.now, number, Answer::Refused(404, "{none}".into()));
    assert_eq!(bench.step(), replies(&[(1, "404 {none}")]));
    assert_eq!(bench.core.watches().count(), 0);
    bench.open(Call::Watch(watch(&maps(), 0)));
    assert_eq!(bench.step(), replies(&[(2, "404 {none}")]), "at once");
    bench.pass(METASERVER_RETRY_MS);
    let id = bench.open(Call::Watch(watch(&maps(), 0)));
    let _ = bench.step();
    let _ = id;
    assert!(bench.core.scopes.values().all(|it| !it.wants_watch()));
}

#[test]
fn the_link_comes_back_and_open_watches_get_what_was_missed() {
    let mut bench = Bench::up();
    bench.live(&[item("x", 5), item("y", 6)], 9);
    bench.step();
    bench.core.link_down();
    assert_eq!(bench.step(), []);
    bench.core.link_up();
    assert_eq!(bench.step(), []);
    bench.answer_list(&[item("y", 6)], 20);
    bench.core.registered(bench.now, true, |_| Registration::Taken);
    bench.answer_list(&[item("y", 19), item("z", 18)], 21);
    let mut got = bench.step();
    got.sort();
    assert_eq!(got, replies(&[(1, "+z@18"), (1, "-x@5"), (1, "~y@19")]));
}

#[test]
fn rows_are_written_later_and_only_for_a_change_of_meaning() {
    let mut bench = Bench::up();
    bench.live(&[item("x", 5), item("y", 6)], 9);
    bench.step();
    let at = bench.core.save_at().expect("there is something to save");
    assert!(at > bench.now.boot);
    assert_eq!(bench.core.begin_save(bench.now).len(), 2);
    bench.core.end_save(bench.now, false);
    assert_eq!(bench.core.begin_save(bench.now).len(), 2, "a failed save is tried again");
    bench.core.end_save(bench.now, true);
    assert_eq!((bench.core.overview().rows, bench.core.save_at()), (2, None));
    let same = Item { digest: 5, ..(*item("x", 30)).clone() };
    bench.core.pushed(bench.now, &Arc::new(same));
    bench.core.removed(bench.now, "configmap", ("a", "y"), "", 31);
    let at = bench.core.save_at().expect("there is something to save");
    assert_eq!(at, bench.now.boot.plus_ms(METASERVER_SAVE_MS));
    let gone = vec![RowChange::Delete("/core/v1/configmaps/a/y".into())];
    assert_eq!(bench.core.begin_save(bench.now), gone);
    bench.core.end_save(bench.now, true);
    assert_eq!(bench.core.overview().rows, 1);
}

#[test]
fn pods_are_of_this_node_and_never_asked_for() {
    let mut bench = Bench::up();
    let pod = Arc::new(Item { kind: "Pod".into(), ..(*item("p", 5)).clone() });
    bench.core.pushed(bench.now, &pod);
    let scope = Scope::all(gvr("pods"));
    let recency = Recency::Latest;
    bench.open(Call::List { scope: scope.clone(), recency, form: Form::Whole });
    bench.open(Call::Watch(watch(&scope, 5)));
    assert_eq!(bench.step(), replies(&[(1, "[p@5] at 5"), (2, "watch -[] +[] 0")]));
    assert!(bench.request().is_none());
    assert_eq!(bench.core.watches().count(), 0);
    assert_eq!(bench.core.begin_save(bench.now), [], "the table of the cloud's objects has them");
}

#[test]
fn pods_are_the_stores_while_there_is_no_link() {
    let mut bench = Bench::up();
    let pod = Arc::new(Item { kind: "Pod".into(), ..(*item("p", 5)).clone() });
    bench.core.pushed(bench.now, &pod);
    let ask = |bench: &mut Bench| {
        let (scope, recency) = (Scope::all(gvr("pods")), Recency::Latest);
        bench.open(Call::List { scope, recency, form: Form::Whole });
        for name in ["p", "q"] {
            let served = bench.core.settings.find(&gvr("pods")).expect("it is served").clone();
            let (namespace, name) = ("a".into(), name.into());
            bench.open(Call::Get { served, namespace, name, form: Form::Whole });
        }
        bench.step()
    };
    let here = [(1, "[p@5] at 5"), (2, "p@5"), (3, "404 NotFound")];
    assert_eq!(ask(&mut bench), replies(&here));
    bench.core.link_down();
    let stored = [(4, "[p@5] at 5 (store)"), (5, "p@5 (store)"), (6, "404 NotFound")];
    assert_eq!(ask(&mut bench), replies(&stored));
}

#[test]
fn more_objects_than_are_kept_are_refused() {
    let mut bench = Bench::up();
    bench.list(Recency::Latest);
    bench.step();
    let (number, _) = bench.request().expect("a list");
    let items: Vec<Arc<Item>> =
        (0..=METASERVER_OBJECTS_MAX).map(|n| item(&format!("x{n}"), 5)).collect();
    let page = Page { items, version: 9, next: None };
    bench.core.answered(bench.now, number, Answer::Page(page));
    assert_eq!(bench.step(), replies(&[(1, "500 InternalError")]));
    assert!(bench.core.overview().objects <= METASERVER_OBJECTS_MAX);
    assert!(bench.core.overview().trouble.is_some());
    bench.pass(METASERVER_GRACE_MS);
    bench.step();
    // There is room again for what is asked for.
    bench.list(Recency::Latest);
    bench.step();
    bench.answer_list(&[item("y", 6)], 10);
    bench.step();
    let name = name_of(&item("y", 6));
    assert!(bench.core.objects.get(&gvr("configmaps"), &name).is_some());
}

#[test]
fn writes_are_the_clouds_or_refused() {
    let write = || {
        let (key, options) = ("/core/v1/configmaps/a/x".into(), "{}".into());
        let (verb, subresource) = ("delete", Box::default());
        Call::Write(Box::new(Write {
            key,
            verb,
            options,
            body: None,
            subresource,
            is_of_status: false,
        }))
    };
    let mut bench = Bench::new();
    bench.open(write());
    assert_eq!(bench.step(), replies(&[(1, "503 ServiceUnavailable")]));
    bench.core.link_up();
    bench.open(write());
    assert_eq!(bench.step(), []);
    let (number, request) = bench.request().expect("it is sent");
    assert_eq!(request.verb, "delete");
    assert!(bench.request().is_none(), "once");
    bench.core.answered(bench.now, number, Answer::Done(Some("{done}".into())));
    assert_eq!(bench.step(), replies(&[(2, "200 {done}")]));
}

#[test]
fn selections_and_requests_have_bounds() {
    let mut bench = Bench::up();
    for n in 0..=METASERVER_SCOPES_MAX {
        let scope = Scope { namespace: format!("n{n}").into(), ..maps() };
        bench.open(Call::List { scope, recency: Recency::Latest, form: Form::Whole });
    }
    let too_many = METASERVER_SCOPES_MAX as u64 + 1;
    assert_eq!(bench.step(), replies(&[(too_many, "429 TooManyRequests")]));
    let sent = std::iter::from_fn(|| bench.request()).count();
    assert_eq!(sent, METASERVER_REQUESTS_MAX);
}

#[test]
fn a_list_without_end_is_refused() {
    let mut bench = Bench::up();
    bench.list(Recency::Latest);
    bench.step();
    for _ in 0..=METASERVER_LIST_PAGES_MAX {
        let (number, _) = bench.request().expect("the next page");
        let page = Page { items: Vec::new(), version: 9, next: Some("t".into()) };
        bench.core.answered(bench.now, number, Answer::Page(page));
    }
    assert_eq!(bench.step(), replies(&[(1, "500 InternalError")]));
    assert!(bench.request().is_none());
}

#[test]
fn the_bytes_of_objects_are_bounded() {
    let mut bench = Bench::new();
    let most = METASERVER_OBJECT_BYTES_MAX.min((12 << 20) / 3);
    let large = |name: &str| {
        let text = "x".repeat(most / 2).into();
        StoredItem { item: Arc::new(Item { text, ..(*item(name, 5)).clone() }), has_row: true }
    };
    bench.core.load(&[large("a"), large("b"), large("c")]);
    assert_eq!((bench.core.overview().objects, bench.core.overview().object_bytes), (2, most));
}

#[test]
fn a_save_has_some_rows_and_begins_soon() {
    let mut bench = Bench::up();
    let items: Vec<Arc<Item>> =
        (0..=METASERVER_SAVE_ROWS_MAX).map(|n| item(&format!("x{n}"), 5)).collect();
    bench.live(&items, 9);
    bench.step();
    let soon = bench.now.boot.plus_ms(METASERVER_SAVE_SOON_MS);
    assert_eq!(bench.core.save_at(), Some(soon));
    assert_eq!(bench.core.begin_save(bench.now).len(), METASERVER_SAVE_ROWS_MAX);
    bench.core.end_save(bench.now, true);
    assert!(bench.core.save_at().is_some(), "one more is left");
    assert_eq!(bench.core.begin_save(bench.now).len(), 1);
}

#[test]
fn a_watch_without_a_time_ends_by_chance_between_two_bounds() {
    let mut bench = Bench::new();
    let (least, most) = METASERVER_WATCH_MS;
    let endless = Watch { timeout_s: None, bookmarks: false, ..watch(&maps(), 0) };
    bench.open(Call::Watch(endless));
    bench.step();
    bench.pass(least - 1);
    assert_eq!(bench.step(), []);
    bench.pass(most - least + 1);
    assert_eq!(bench.step(), replies(&[(1, "end")]));
}
