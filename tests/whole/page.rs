//! The page for a browser, in a real one: the agent's and the controller's.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::time::Duration;

use serde_json::{Value, json};

use crate::World;
use crate::support::agent::{Agent, NODE, Pod, Site, manifest};
use crate::support::browser::{Browser, Key};
use crate::support::controller::{Cloud, pod};
use crate::support::wait::{always, until};

crate::tests![
    the_page_shows_what_the_agent_says_and_follows_it,
    a_log_is_read_by_the_keyboard_alone_and_follows,
    the_controllers_page_shows_its_nodes_to_who_has_the_token,
];

/// Runs a script and loads an image where it becomes elements.
const HOSTILE: &str = "<img src=x onerror=hit=1><script>hit=1</script><b>";
const TOKEN: &str = "0123456789abcdef0123";
const WIDE: (u32, u32) = (1200, 900);

fn serving(site: &Site) -> Agent<'_> {
    let agent = site.start();
    agent.wait_listening();
    site.wait_trouble("nothing", Value::is_null);
    agent
}

fn browse(world: &World, name: &str, url: &str) -> Browser {
    let mut browser = Browser::open(&world.folder(&format!("browser-{name}")), url, WIDE.0, WIDE.1);
    browser.wait("the page is there", "!!document.getElementById('state')");
    browser
}

/// A pod whose container runs this in a shell.
fn shell(name: &str, spec: &str, script: &str) -> String {
    let command = format!("    command: [sh, -c, {script:?}]\n");
    let spec = format!("  hostNetwork: true\n  terminationGracePeriodSeconds: 1\n{spec}");
    manifest(name, &spec, &command)
}

/// The rows of a table: the texts of their cells.
fn rows(browser: &mut Browser, table: &str) -> Vec<Vec<String>> {
    let cells = "(row) => [...row.children].map((cell) => cell.innerText)";
    let rows =
        browser.value(&format!("[...document.querySelectorAll('#{table} tr')].map({cells})"));
    serde_json::from_value(rows).expect("lists of texts")
}

/// Waits until the page shows the pods as the agent does.
fn wait_same(browser: &mut Browser, site: &Site) {
    until("the page shows what /pods has", || {
        let wanted = site.pods()?.iter().flat_map(shown).collect::<Vec<_>>();
        let rows = rows(browser, "pods");
        let is = |row: &[String], wanted: &[String]| {
            row.len() >= wanted.len() && row.iter().zip(wanted).all(|(row, it)| row.contains(it))
        };
        let same = rows.len() == wanted.len() && rows.iter().zip(&wanted).all(|(r, w)| is(r, w));
        if same { Ok(()) } else { Err(format!("{rows:#?}\nexpected {wanted:#?}")) }
    });
}

/// What is to be seen of a pod: a row of its own, and one for each container.
fn shown(pod: &Pod) -> Vec<Vec<String>> {
    let mut rows = vec![vec![format!("{}/{}\n{}", pod.namespace(), pod.name(), pod.phase())]];
    for container in pod.0["spec"]["containers"].as_array().into_iter().flatten() {
        let name = container["name"].as_str().expect("a name");
        let state = &pod.container(name)["state"];
        let state = match (&state["running"], &state["waiting"], &state["terminated"]) {
            (Value::Object(_), ..) => "Running".to_owned(),
            (_, waiting @ Value::Object(_), _) => {
                waiting["reason"].as_str().expect("a reason").to_owned()
            }
            (.., ended) => format!(
                "{}, exit code {}\n{}",
                ended["reason"].as_str().unwrap_or_default(),
                ended["exitCode"],
                ended["message"].as_str().unwrap_or_default().trim(),
            ),
        };
        let image = container["image"].as_str().expect("an image");
        rows.push(vec![name.into(), state, pod.restarts(name).to_string(), image.into()]);
    }
    rows
}

fn the_page_shows_what_the_agent_says_and_follows_it(world: &World) {
    let site = world.site("page-shows");
    let agent = serving(&site);
    site.put("runs.yaml", &shell("runs", "", "exec sleep 100000"));
    let ends = format!("echo '{HOSTILE}' >/dev/termination-log; exit 3");
    site.put("ends.yaml", &shell("ends", "  restartPolicy: Never\n", &ends));
    let long = format!("localhost/{}", "long-".repeat(24));
    let waits = shell("waits", "", "true").replace("localhost/edged-demo:1", &format!("{long}:1"));
    site.put("waits.yaml", &waits);
    site.wait_running("runs");
    site.wait("ends", "Failed", |pod| pod.phase() == "Failed");
    let mut browser = browse(world, "shows", &format!("http://{}/", site.api));
    wait_same(&mut browser, &site);
    assert_eq!(browser.text("document.querySelector('h1').innerText"), NODE);
    let facts = browser.text("document.getElementById('facts').innerText");
    let ready = format!("✓ ready\n{} ", crate::support::containerd::kind().name());
    for text in [&*ready, "3 wanted, 1 running", "none is configured", "all read"] {
        assert!(facts.contains(text), "{text} in {facts}");
    }
    assert!(rows(&mut browser, "events").iter().any(|row| row[2] == "Started"));
    assert!(rows(&mut browser, "images").iter().any(|row| row[0].contains(&long)));
    // The texts of pods stay texts.
    assert!(browser.text("document.body.innerText").contains(HOSTILE));
    assert_eq!(browser.value("document.querySelectorAll('img, b, body script').length"), 0);
    assert_eq!(browser.value("typeof hit"), "undefined");
    // A telephone.
    browser.resize(360, 640);
    assert_eq!(browser.value("innerWidth"), 360);
    assert_eq!(browser.value("document.documentElement.scrollWidth"), 360);
    browser.resize(WIDE.0, WIDE.1);
    site.take("runs.yaml");
    site.put("more.yaml", &shell("more", "", "exec sleep 100000"));
    site.wait_running("more");
    wait_same(&mut browser, &site);
    nobody_looks(&mut browser);
    agent.kill();
    let state = "document.getElementById('state').innerText";
    browser.wait("it says that the agent is away", "document.body.classList.contains('old')");
    let told = browser.text(state);
    assert!(told.starts_with("▲ No answer, since ") && told.ends_with("from then"), "{told}");
    assert!(!rows(&mut browser, "pods").is_empty(), "what was known stays");
    let _agent = serving(&site);
    browser.wait("it says that the agent is back", &format!("{state} === 'Up to date'"));
    wait_same(&mut browser, &site);
    assert_eq!(browser.complaints, [Value::Null; 0]);
}

/// A page that is not visible asks nothing.
fn nobody_looks(browser: &mut Browser) {
    let hide = |is: bool| {
        format!(
            "Object.defineProperty(document, 'hidden', {{value: {is}, configurable: true}}); \
             document.dispatchEvent(new Event('visibilitychange'))"
        )
    };
    let asked = "performance.getEntriesByType('resource').length";
    browser.value(&hide(true));
    browser.wait("the last request is answered", "!isBusy");
    let before = browser.value(asked);
    always(Duration::from_secs(3), "it asks nothing", || {
        let now = browser.value(asked);
        if now == before { Ok(()) } else { Err(format!("{before} and then {now} requests")) }
    });
    browser.value(&hide(false));
    browser.wait("it asks again", &format!("{asked} > {before}"));
}

fn a_log_is_read_by_the_keyboard_alone_and_follows(world: &World) {
    let site = world.site("page-log");
    let _agent = serving(&site);
    site.put("talks.yaml", &shell("talks", "", "echo first; exec sleep 100000"));
    let pod = site.wait_running("talks");
    let mut browser = browse(world, "log", &format!("http://{}/", site.api));
    browser.wait("the pod is shown", "!!document.querySelector('[data-log]')");
    let opener = format!("log-of default/talks-{NODE}/main");
    browser.tab_to(&opener);
    browser.press(Key::Enter);
    browser.wait("it asks for the token", "document.getElementById('ask').open");
    let why = browser.text("document.getElementById('ask-why').innerText");
    assert!(why.contains(&site.root.join("edged.token").display().to_string()), "{why}");
    fs::write(site.root.join("edged.token"), TOKEN).expect("written");
    browser.wait("the field has the focus", "document.activeElement.id === 'token'");
    browser.type_text("0123456789abcdefXXXX");
    browser.press(Key::Enter);
    browser.wait("it asks again", "document.getElementById('token').value === ''");
    browser.wait("it asks again", "document.activeElement.id === 'token'");
    browser.type_text(TOKEN);
    browser.press(Key::Enter);
    let log = "document.getElementById('log-text').textContent";
    browser.wait("the log is shown", &format!("{log} === 'first\\n'"));
    let path = site.log_file(&pod, "main", 0);
    let mut file = OpenOptions::new().append(true).open(path).expect("it was made");
    writeln!(file, "2026-01-01T00:00:00.000000000Z stdout F {HOSTILE}").expect("written");
    browser
        .wait("what is written is shown", &format!("{log}.endsWith({:?})", format!("{HOSTILE}\n")));
    assert_eq!(browser.value("document.querySelectorAll('#log img, #log b').length"), 0);
    assert_eq!(browser.value("typeof hit"), "undefined");
    browser.resize(360, 640);
    assert_eq!(browser.value("document.documentElement.scrollWidth"), 360);
    browser.resize(WIDE.0, WIDE.1);
    assert!(!browser.text("location.href").contains(TOKEN));
    browser.tab_to("log-close");
    browser.press(Key::Enter);
    browser.wait("it is closed", "!document.getElementById('log').open");
    assert_eq!(browser.text("document.activeElement.id"), opener, "the focus is where it was");
    assert_eq!(browser.complaints, [Value::Null; 0]);
}

fn the_controllers_page_shows_its_nodes_to_who_has_the_token(world: &World) {
    let cloud = Cloud::new(world.folder("page-cloud"));
    let _controller = cloud.start();
    let mut site = world.site("page-node");
    cloud.welcome(&mut site, cloud.hub);
    cloud.welcome_tunnel(&site);
    let config = site.config.as_ref().expect("it was welcomed");
    let text = fs::read_to_string(config).expect("a file of ours");
    let text = text.replace("  edged:\n", "  edged:\n    reportEvent: true\n");
    fs::write(config, text).expect("a file of ours");
    let token = cloud.socket().with_file_name("api.token");
    let mut talks = pod("talks", NODE, "localhost/edged-demo:1");
    talks["spec"]["containers"][0]["command"] =
        json!(["sh", "-c", format!("echo '{HOSTILE}'; exec sleep 100000")]);
    cloud.put("talks.json", &talks);
    let agent = site.start();
    cloud.wait_phase("talks", "Running");
    let mut browser = browse(world, "cloud", &format!("http://{}/", cloud.api));
    browser.wait("it asks for the token", "document.getElementById('ask').open");
    let why = browser.text("document.getElementById('ask-why').innerText");
    assert!(why.contains(&token.display().to_string()), "{why}");
    fs::write(&token, TOKEN).expect("written");
    browser.wait("the field has the focus", "document.activeElement.id === 'token'");
    browser.type_text(TOKEN);
    browser.press(Key::Enter);
    let first = "document.querySelector('#node-rows tr')?.innerText";
    for text in ["ready", "none", "connected", "with a stream tunnel", "s ago\\t1"] {
        browser.wait("the node is shown", &format!("!!{first}?.includes('{text}')"));
    }
    browser.wait("its pod is shown", "!!document.querySelector('[data-log]')");
    let pods = rows(&mut browser, "pods");
    assert!(pods[0][0].starts_with("default/talks\nRunning"), "{pods:?}");
    assert!(pods[1][1].contains("Running"), "{pods:?}");
    let events = "document.getElementById('events').innerText";
    browser.wait("its events are shown", &format!("{events}.includes('Started')"));
    browser.tab_to("log-of default/talks/main");
    browser.press(Key::Enter);
    let log = "document.getElementById('log-text').textContent";
    browser.wait(
        "its log came through the tunnel",
        &format!("{log} === {:?}", format!("{HOSTILE}\n")),
    );
    browser.tab_to("log-close");
    browser.press(Key::Enter);
    agent.kill();
    browser.wait("the node is away", &format!("!!{first}?.includes('not connected')"));
    assert_eq!(browser.complaints, [Value::Null; 0]);
}
