//! A browser without a screen: Debian's chromium, driven by its DevTools protocol over a pipe.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use serde_json::{Value, json};

use super::guard;
use super::wait::{BOUND, until};

/// One page in a browser of its own. Dropping it ends the browser.
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    last_id: u64,
    /// Of the page; empty until it is there.
    session: String,
    /// What the page should not have done: errors of its scripts, and what its policy has refused.
    pub complaints: Vec<Value>,
}

impl Browser {
    /// Opens the page in a window of this size. The folder is for the browser's files.
    pub fn open(folder: &Path, url: &str, width: u32, height: u32) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        assert!(
            std::env::split_paths(&path).any(|dir| dir.join(PROGRAM).is_file()),
            "{PROGRAM} is not on PATH: `make setup` installs Debian's package {PROGRAM}"
        );
        std::fs::create_dir_all(folder).expect("a folder below one of ours");
        // It reads from descriptor 3 and writes to descriptor 4. As root it has no sandbox.
        let script = "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null";
        let mut command = Command::new("sh");
        command
            .args(["-c", script, "sh", PROGRAM, "--headless", "--no-sandbox", "--disable-gpu"])
            .args(["--remote-debugging-pipe", "--no-first-run", "--disable-dev-shm-usage"])
            .arg(format!("--user-data-dir={}", folder.display()))
            .arg("about:blank")
            .env("HOME", folder);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("a shell is here");
        guard::keep(guard::Left::Process(child.id()));
        let to = child.stdin.take().expect("it is piped");
        let from = messages(child.stdout.take().expect("it is piped"));
        let (session, complaints) = (String::new(), Vec::new());
        let mut browser = Self { child, to, from, last_id: 0, session, complaints };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attached = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", &attached);
        browser.session.push_str(attached["sessionId"].as_str().expect("a session"));
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.call(domain, &json!({}));
        }
        browser.resize(width, height);
        browser.call("Page.navigate", &json!({"url": url}));
        browser
    }

    /// The window is a screen of this size, with touch where it is a small one.
    pub fn resize(&mut self, width: u32, height: u32) {
        let screen = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", &screen);
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let what = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let got = self.call("Runtime.evaluate", &what);
        assert!(got["exceptionDetails"].is_null(), "{expression}: {got}");
        got["result"]["value"].clone()
    }

    /// The same, of a text.
    pub fn text(&mut self, expression: &str) -> String {
        self.value(expression).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until an expression is true; `shown` is for the message.
    pub fn wait(&mut self, what: &str, expression: &str) {
        until(what, || match self.value(expression) {
            Value::Bool(true) => Ok(()),
            other => Err(format!("{expression} is {other}\n{}", self.text(SHOWN))),
        });
    }

    /// Presses a key and lets it go.
    pub fn press(&mut self, key: Key) {
        let (name, code, text) = match key {
            Key::Tab => ("Tab", 9, ""),
            Key::Enter => ("Enter", 13, "\r"),
        };
        let mut event = json!({
            "type": "keyDown", "key": name, "code": name, "windowsVirtualKeyCode": code,
        });
        if !text.is_empty() {
            event["text"] = text.into();
        }
        self.call("Input.dispatchKeyEvent", &event);
        event["type"] = "keyUp".into();
        self.call("Input.dispatchKeyEvent", &event);
    }

    /// Goes on with the Tab key until the focus is on the element with this id.
    pub fn tab_to(&mut self, id: &str) {
        for _ in 0..TABS_MAX {
            if self.text("document.activeElement.id") == id {
                return;
            }
            self.press(Key::Tab);
        }
        panic!("{TABS_MAX} times Tab do not lead to {id:?}");
    }

    /// Types a text where the focus is.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", &json!({"text": text}));
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": params});
        if !self.session.is_empty() {
            message["sessionId"] = self.session.as_str().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("the browser reads");
        loop {
            let answer = self.from.recv_timeout(BOUND);
            let answer = answer.unwrap_or_else(|error| panic!("{method}: no answer: {error}"));
            if answer["id"] == self.last_id {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.note(answer);
        }
    }

    fn note(&mut self, event: Value) {
        let entry = &event["params"]["entry"];
        // A request without an answer is reported as well, from the source «network».
        let is_refused = event["method"] == "Log.entryAdded" && entry["source"] != "network";
        if is_refused || event["method"] == "Runtime.exceptionThrown" {
            self.complaints.push(event);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        guard::gone(&guard::Left::Process(self.child.id()));
    }
}

/// A key of the keyboard.
#[derive(Clone, Copy, Debug)]
pub enum Key {
    Tab,
    Enter,
}

/// The messages of the browser, each ended by a zero byte.
fn messages(from: impl std::io::Read + Send + 'static) -> Receiver<Value> {
    let (to, messages) = channel();
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        loop {
            let mut bytes = Vec::new();
            if !matches!(from.read_until(0, &mut bytes), Ok(1..)) {
                return;
            }
            bytes.pop();
            let message = serde_json::from_slice(&bytes).expect("JSON");
            if to.send(message).is_err() {
                return;
            }
        }
    });
    messages
}

const PROGRAM: &str = "chromium";
const TABS_MAX: usize = 200;
/// All that a person sees.
const SHOWN: &str = "document.body ? document.body.innerText : ''";
