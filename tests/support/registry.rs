//! A registry: `edged images serve` in a process of its own and, where wanted, a proxy before it
//! that requires a login, delays answers, and counts parallel requests.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use edged::model::base64;

use super::agent::binary;
use super::containerd::run;
use super::port::free_port;
use super::wait::until;
use super::{guard, http, top};

/// Serves archives.
pub struct Registry {
    /// Its address.
    pub address: SocketAddr,
    child: Child,
}

impl Registry {
    /// Serves all archives and layouts in a folder.
    pub fn start(folder: &Path) -> Registry {
        let address: SocketAddr = (Ipv4Addr::LOCALHOST, free_port()).into();
        let mut command = Command::new(binary());
        command.args(["images", "serve", "--listen", &address.to_string()]).arg(folder);
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = quiet.spawn().expect("the binary was built beside this test");
        guard::keep(guard::Left::Process(child.id()));
        until("the registry answers", || {
            http::get(address, "/v2/").map(|_| ()).map_err(|error| error.to_string())
        });
        Registry { address, child }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        guard::gone(&guard::Left::Process(self.child.id()));
    }
}

/// A proxy before a registry.
pub struct Gate {
    /// Its address.
    pub address: SocketAddr,
    tally: Arc<Tally>,
}

/// The images that are requested at the same time.
#[derive(Debug, Default)]
struct Tally {
    open: Mutex<BTreeMap<String, usize>>,
    most: Mutex<usize>,
}

impl Gate {
    /// Accepts this user and password (`None`: everybody), each request after a delay.
    pub fn before(registry: SocketAddr, user: Option<(&str, &str)>, delay: Duration) -> Gate {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let word = user.map(|(name, word)| {
            format!("Basic {}", base64::encode(format!("{name}:{word}").as_bytes()))
        });
        let tally = Arc::new(Tally::default());
        let counts = tally.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (word, tally) = (word.clone(), counts.clone());
                std::thread::spawn(move || {
                    let _ = serve(stream, registry, word.as_deref(), delay, &tally);
                });
            }
        });
        Gate { address, tally }
    }

    /// The most images that were requested at the same time.
    pub fn most_at_once(&self) -> usize {
        *self.tally.most.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tally {
    fn count(&self, name: &str, come: bool) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(name.to_owned()).or_default();
        *count = if come { *count + 1 } else { *count - 1 };
        let now = open.values().filter(|count| **count > 0).count();
        let mut most = self.most.lock().unwrap_or_else(PoisonError::into_inner);
        *most = (*most).max(now);
    }
}

fn serve(
    mut stream: TcpStream,
    registry: SocketAddr,
    word: Option<&str>,
    delay: Duration,
    tally: &Tally,
) -> io::Result<()> {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            return Ok(());
        }
        head.extend_from_slice(&buffer[..count]);
        // TLS, which containerd 2.x tries first: it must not wait for an answer.
        if head[0] == 0x16 {
            return stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let header = |name: &str| {
        head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    if word.is_some() && header("authorization").as_deref() != word {
        let refusal = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"support\"\r\n\
                       Content-Length: 0\r\nConnection: close\r\n\r\n";
        return stream.write_all(refusal.as_bytes());
    }
    let first = head.lines().next().unwrap_or_default();
    let target = first.split(' ').nth(1).unwrap_or_default();
    let name = target.trim_start_matches("/v2/").split("/manifests/").next().unwrap_or_default();
    let name = name.split("/blobs/").next().unwrap_or_default();
    tally.count(name, true);
    std::thread::sleep(delay);
    let range = header("range").map_or(String::new(), |range| format!("Range: {range}\r\n"));
    let request = format!("{first}\r\nHost: {registry}\r\n{range}Connection: close\r\n\r\n");
    let mut answer = Vec::new();
    let done = TcpStream::connect(registry).and_then(|mut behind| {
        behind.write_all(request.as_bytes())?;
        behind.read_to_end(&mut answer)
    });
    // Who has its answer may request the next image before this thread goes on.
    tally.count(name, false);
    done.and_then(|_| stream.write_all(&answer))
}

/// A folder with one archive: the demo image under another name, with this entry point and these
/// arguments (JSON lists).
pub fn archive(dir: &Path, name: &str, entrypoint: &str, cmd: &str) -> PathBuf {
    let list = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("a JSON list");
    archive_with(dir, name, &|config| {
        config["Entrypoint"] = list(entrypoint);
        config["Cmd"] = list(cmd);
    })
}

/// A folder with one archive: the demo image under another name, with a changed configuration.
pub fn archive_with(dir: &Path, name: &str, change: &dyn Fn(&mut serde_json::Value)) -> PathBuf {
    let work = dir.join(format!("make-{name}"));
    fs::create_dir_all(&work).expect("a folder of ours");
    let base = top().join("target/images/edged-demo-1.tar");
    run(Command::new("tar")
        .arg("--extract")
        .arg("--file")
        .arg(&base)
        .arg("--directory")
        .arg(&work));
    let rewrite = |file: &str, change: &dyn Fn(&mut serde_json::Value)| {
        let path = work.join(file);
        let text = fs::read_to_string(&path).expect("it was extracted");
        let mut value = serde_json::from_str(&text).expect("JSON");
        change(&mut value);
        fs::write(&path, value.to_string()).expect("a file of ours");
    };
    rewrite("config.json", &|config| change(&mut config["config"]));
    rewrite("manifest.json", &|manifest| {
        manifest[0]["RepoTags"] = serde_json::json!([format!("localhost/{name}:1")]);
    });
    let folder = dir.join(format!("images-{name}"));
    fs::create_dir_all(&folder).expect("a folder of ours");
    let to = folder.join(format!("{name}.tar"));
    run(Command::new("tar")
        .arg("--create")
        .arg("--file")
        .arg(to)
        .arg("--directory")
        .arg(&work)
        .arg("."));
    folder
}
