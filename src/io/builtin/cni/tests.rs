//! Chains of plugins that are scripts and write down how they were called.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::json;

use super::*;
use crate::io::builtin::layout::Layout;
use crate::io::test_folder::TestFolder;
use crate::limits::CNI_PLUGINS_MAX;
use crate::model::cri::{PodRef, SandboxConfig, SandboxId};
use crate::model::runtime::BootId;

/// Writes its name, the command, the namespace and its input to `calls`; answers with what stands
/// in the file of its own name and the command's, and fails if that begins with a code.
const SCRIPT: &str = r#"#!/bin/sh
me=$(basename "$0")
input=$(cat)
echo "$me $CNI_COMMAND $CNI_CONTAINERID $CNI_NETNS $CNI_IFNAME $CNI_ARGS $input" >> TOP/calls
answer=$(cat "TOP/$me.$CNI_COMMAND" 2>/dev/null)
echo "$answer"
case $answer in *'"code"'*) exit 1 ;; esac
"#;

/// Folders of one test.
struct Place {
    top: TestFolder,
    settings: Settings,
}

impl Place {
    fn new(name: &str, plugins: &[&str]) -> Self {
        let top = TestFolder::new(name);
        let (conf, bin) = (top.join("conf"), top.join("bin"));
        for folder in [&conf, &bin] {
            fs::create_dir_all(folder).expect("a folder of ours");
        }
        for plugin in plugins {
            let path = bin.join(plugin);
            let script = SCRIPT.replace("TOP", &top.to_string_lossy());
            fs::write(&path, script).expect("a file of ours");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
        }
        let settings = Settings {
            layout: Layout::new(top.join("run"), top.join("data")),
            oci: PathBuf::new(),
            handlers: Vec::new(),
            cni_conf_dir: conf,
            cni_bin_dir: bin,
            registries: crate::model::builtin::Registries::default(),
        };
        Self { top, settings }
    }

    fn write(&self, file: &str, text: &str) -> &Self {
        self.top.write(file, text);
        self
    }

    /// The first two words of each call.
    fn calls(&self) -> String {
        let text = self.log();
        let words = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
        text.lines().map(words).collect::<Vec<_>>().join(", ")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.top.join("calls")).unwrap_or_default()
    }
}

fn record(phase: SandboxPhase) -> SandboxRecord {
    SandboxRecord {
        id: SandboxId("b".repeat(64).into()),
        config: SandboxConfig {
            pod: PodRef { name: "web".into(), namespace: "default".into(), uid: "u".into() },
            ..SandboxConfig::default()
        },
        phase,
        created_at: 0,
        ips: Vec::new(),
        boot: BootId::default(),
        program: "".into(),
    }
}

const CHAIN: &str = r#"{"cniVersion":"1.0.0","name":"pods","plugins":[
    {"type":"first","own":1},{"type":"second"}]}"#;
const RESULT: &str = r#"{"cniVersion":"1.0.0","ips":[{"address":"10.9.0.7/24"}]}"#;

fn place(name: &str) -> Place {
    let place = Place::new(&format!("cni-{name}"), &["first", "second"]);
    place.write("conf/10-pods.conflist", CHAIN);
    place.write("first.ADD", RESULT).write("second.ADD", RESULT);
    place
}

#[test]
fn a_chain_goes_forth_and_comes_back() {
    let place = place("chain");
    let (settings, making) = (&place.settings, record(SandboxPhase::Making));
    let netns = Path::new("/run/ns");
    assert_eq!(attach(settings, &making, netns), Ok(vec!["10.9.0.7".into()]));
    let log = place.log();
    let [first, second] = &log.lines().collect::<Vec<_>>()[..] else { panic!("{log}") };
    let id = &making.id;
    let head = format!("first ADD {id} /run/ns eth0 IgnoreUnknown=1;K8S_POD_NAMESPACE=default;");
    assert!(first.starts_with(&head), "{first}");
    assert!(first.contains("\"own\":1") && !first.contains("prevResult"), "{first}");
    assert!(second.contains("\"prevResult\":{\"cniVersion\""), "{second}");
    assert_eq!(kept_ids(settings), [id.to_string()]);

    // The network may be another one by then, and the namespace gone.
    fs::remove_file(place.top.join("conf/10-pods.conflist")).expect("ours");
    assert_eq!(detach(settings, &record(SandboxPhase::Stopping), None), Ok(()));
    assert_eq!(place.calls(), "first ADD, second ADD, second DEL, first DEL");
    let log = place.log();
    let last = log.lines().last().expect("four calls");
    assert!(last.starts_with(&format!("first DEL {id}  eth0 ")), "no namespace: {last}");
    assert!(last.contains("\"prevResult\""), "{last}");
    assert_eq!(kept_ids(settings), [""; 0]);
    // Again nothing is there to be undone.
    assert_eq!(detach(settings, &record(SandboxPhase::Stopping), None), Ok(()));
    assert_eq!(place.log().lines().count(), 4);
}

#[test]
fn a_failure_tells_the_plugins_words_and_leaves_what_undoes_it() {
    let place = place("failure");
    place.write("second.ADD", r#"{"code":11,"msg":"no room","details":"all taken"}"#);
    let (settings, making) = (&place.settings, record(SandboxPhase::Making));
    let expected = format!(
        "failed to setup network for sandbox \"{}\": plugin type=\"second\" failed (add): no \
         room: all taken",
        making.id
    );
    let netns = Path::new("/run/ns");
    assert_eq!(attach(settings, &making, netns), Err(JobFault::Failed(expected)));
    // What fails in DEL does not keep the others from it, and is kept to be tried again.
    place.write("second.DEL", r#"{"code":7,"msg":"busy"}"#);
    let failed = detach(settings, &making, Some(netns)).expect_err("one fails");
    assert!(matches!(failed, JobFault::Failed(why) if why.ends_with("failed (del): busy")));
    assert_eq!(place.calls(), "first ADD, second ADD, second DEL, first DEL");
    place.write("second.DEL", "");
    assert_eq!(detach(settings, &making, Some(netns)), Ok(()));
    assert_eq!(kept_ids(settings), [""; 0]);

    for (result, why) in [
        ("{}", "network pods gave no address to eth0"),
        ("nonsense", "second: not readable: expected ident at line 1 column 2"),
    ] {
        place.write("second.ADD", result);
        let failed = attach(settings, &making, netns).expect_err(result);
        assert!(matches!(&failed, JobFault::Failed(text) if text.ends_with(why)), "{failed:?}");
    }
}

#[test]
fn what_a_power_cut_took_is_undone_by_the_present_network() {
    let place = place("lost");
    let settings = &place.settings;
    assert_eq!(detach(settings, &record(SandboxPhase::NotReady), None), Ok(()));
    assert_eq!(place.calls(), "", "it was undone already");
    assert_eq!(detach(settings, &record(SandboxPhase::Ready), None), Ok(()));
    assert_eq!(place.calls(), "second DEL, first DEL");
    // A torn file as well.
    files::make_dir(&settings.layout.data().join("cni")).expect("ours");
    place.write(&format!("data/cni/{}", "b".repeat(64)), "{\"netw");
    assert_eq!(detach(settings, &record(SandboxPhase::NotReady), Some(Path::new("/x"))), Ok(()));
    assert_eq!(place.log().lines().count(), 4);
    assert_eq!(kept_ids(settings), [""; 0]);
}

#[test]
fn what_is_kept_is_undone_whatever_the_record_says() {
    let place = place("kept");
    let (settings, ended) = (&place.settings, record(SandboxPhase::NotReady));
    attach(settings, &ended, Path::new("/run/ns")).expect("both succeed");
    place.write("first.DEL", r#"{"code":7,"msg":"busy"}"#);
    assert!(detach(settings, &ended, None).is_err(), "an address would be lost");
    place.write("first.DEL", "");
    assert_eq!(detach(settings, &ended, None), Ok(()));
    assert_eq!(place.log().matches(" DEL ").count(), 4);
}

#[test]
fn the_first_network_by_name_counts_but_loopback() {
    let place = Place::new("cni-choice", &["first"]);
    let settings = &place.settings;
    let named = |file: &str, name: &str, kind: &str| {
        let text = json!({"name": name, "type": kind}).to_string();
        place.write(&format!("conf/{file}"), &text);
    };
    let reason = || readiness(settings).expect_err("it is not ready");
    let message = reason().1;
    assert!(message.starts_with("cni: no network: no *.conflist, *.conf or *.json in /"));
    named("00-lo.conf", "lo", "loopback");
    named("05-other.yaml", "other", "first");
    assert_eq!(reason().1, message, "these are none");
    named("20-b.conf", "b", "first");
    named("10-a.json", "a", "first");
    assert_eq!(network(settings).expect("two").name(), "a");
    assert_eq!(readiness(settings), Ok(()));
    named("01-c.conflist", "c", "absent");
    let (word, why) = reason();
    assert_eq!(&*word, "NetworkPluginNotReady");
    let bin = settings.cni_bin_dir.display();
    let expected = format!("network c needs the plugin {bin}/absent: No such file or directory");
    assert_eq!(&*why, &*format!("cni: {expected}"));
    place.write("conf/01-c.conflist", "{");
    let path = settings.cni_conf_dir.join("01-c.conflist");
    let begin = format!("cni: {}: EOF while parsing", path.display());
    assert!(reason().1.starts_with(&begin), "{}", reason().1);
    fs::remove_dir_all(&settings.cni_conf_dir).expect("ours");
    assert_eq!(reason().1, message, "the folder may be missing");
}

#[test]
fn a_sandbox_waits_for_its_plugins_within_a_bound() {
    // The longest chain in seconds: a person is told the plugin that was killed.
    assert_eq!(CNI_PLUGIN_MS * CNI_PLUGINS_MAX as u64 / 1_000, 960);
}
