//! Pulls from registries that answer as they like.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use super::super::*;
use super::support::{Image, Place, Tar, gzip, settings};
use crate::limits::{
    LAYER_SPARE_BYTES, REGISTRY_ANSWER_BYTES_MAX, REGISTRY_FOLDERS_TRIES_MAX,
    REGISTRY_PROGRESS_BYTES, REGISTRY_REDIRECTS_MAX, REGISTRY_TRIES_MAX,
};
use crate::model::base64;

/// A request: its first line, its headers with names in lower case, its body.
#[derive(Clone, Debug)]
struct Request {
    line: String,
    headers: Vec<(String, String)>,
    body: String,
}

impl Request {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| &**value)
    }

    fn is(&self, part: &str) -> bool {
        self.line.contains(part)
    }
}

/// A server on loopback. It lives as long as the test program.
struct Server {
    address: SocketAddr,
    log: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// `answer` gets each request, and how many came before it.
    fn new(answer: impl Fn(&Request, usize) -> Vec<u8> + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("an address");
        let log: Arc<Mutex<Vec<Request>>> = Arc::default();
        let requests = Arc::clone(&log);
        #[expect(clippy::disallowed_methods, reason = "the other end lives beside the test")]
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let Some(request) = request(&mut stream) else { continue };
                let number = {
                    let mut log = requests.lock().expect("no test panics with it");
                    log.push(request.clone());
                    log.len() - 1
                };
                // The client may have hung up.
                let _ = stream.write_all(&answer(&request, number));
            }
        });
        Self { address, log }
    }

    fn image(&self) -> String {
        format!("{}/team/app:1", self.address)
    }

    /// The first lines of all requests, and what they asked for.
    fn lines(&self) -> Vec<String> {
        let log = self.log.lock().expect("no test panics with it");
        let line = |request: &Request| {
            let target = request.line.split(' ').nth(1).unwrap_or_default();
            let range = request.header("range").map_or(String::new(), |it| format!(" {it}"));
            format!("{target}{range}")
        };
        log.iter().map(line).collect()
    }
}

fn request(stream: &mut TcpStream) -> Option<Request> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).expect("it is text");
    let mut lines = head.lines().map(str::to_owned);
    let line = lines.next()?;
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| {
            let (name, value) = line.split_once(": ")?;
            Some((name.to_lowercase(), value.to_owned()))
        })
        .collect();
    let mut request = Request { line, headers, body: String::new() };
    let length = request.header("content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    request.body = String::from_utf8(body).expect("it is text");
    Some(request)
}

fn answer(status: u16, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        write!(head, "{name}: {value}\r\n").expect("a string");
    }
    [head.as_bytes(), b"Connection: close\r\n\r\n", body].concat()
}

/// What a registry with this image answers.
fn serve(image: &Image, request: &Request) -> Vec<u8> {
    if request.is("/v2/team/app/manifests/1 ")
        || request.is(&format!("/v2/team/app/manifests/{} ", sha256(&image.manifest)))
    {
        return answer(200, &[], &image.manifest);
    }
    let is_it =
        |(digest, _): &&(String, Vec<u8>)| request.is(&format!("/v2/team/app/blobs/{digest} "));
    if let Some((_, bytes)) = image.blobs.iter().find(is_it) {
        return answer(200, &[], bytes);
    }
    let error = r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#;
    answer(404, &[], error.as_bytes())
}

/// One layer of half a megabyte that does not shrink.
fn image() -> Image {
    let mut state = 1_u32;
    let mut noise = vec![0; 500_000];
    for byte in &mut noise {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (state >> 24) as u8;
    }
    let tar = Tar::default().file("noise", &noise).end();
    Image::of(&[(tar.clone(), gzip(&tar))])
}

fn pulled(place: &Place, name: &str, auth: Option<&RegistryAuth>) -> Result<ImageRecord, JobFault> {
    pulled_by(&place.settings(), name, auth)
}

fn pulled_by(
    settings: &Settings,
    name: &str,
    auth: Option<&RegistryAuth>,
) -> Result<ImageRecord, JobFault> {
    match pull(settings, name, auth)? {
        JobReply::Image(record) => Ok(*record),
        other => panic!("got {other:?}"),
    }
}

#[test]
fn an_image_is_pulled_once() {
    let (place, image) = (Place::new(), image());
    let digest = sha256(&image.manifest);
    let (config, layer) = (image.blobs[0].0.clone(), image.blobs[1].0.clone());
    let id = image.diff_ids[0].clone();
    let server = Server::new(move |request, _| serve(&image, request));
    let name = server.image();
    let record = pulled(&place, &name, None).expect("an image");
    let repository = format!("{}/team/app", server.address);
    assert_eq!(record.tags, [format!("{repository}:1").into()]);
    assert_eq!(record.digests, [format!("{repository}@{digest}").into()]);
    assert_eq!((&*record.id.0, &*record.layers[0].0), (&*config, &*id));
    assert_eq!(fs::metadata(place.layer(&id).join("noise")).expect("it is there").len(), 500_000);
    assert_eq!(place.names("tmp"), [""; 0]);
    let blob = |digest: &str| format!("/v2/team/app/blobs/{digest}");
    let top = "/v2/team/app/manifests/1".to_owned();
    assert_eq!(server.lines(), [top.clone(), blob(&config), blob(&layer)]);
    assert_eq!(pulled(&place, &name, None), Ok(record.clone()));
    assert_eq!(server.lines()[3..], [top, blob(&config)], "the layer is there");
    // By its digest it has no tag.
    let by_digest = format!("{repository}:1@{digest}");
    let want = ImageRecord { tags: Vec::new(), ..record };
    assert_eq!(pulled(&place, &by_digest, None), Ok(want));
}

#[test]
fn a_token_is_fetched_as_the_credentials_allow() {
    let image = image();
    let word = format!("Basic {}", base64::encode(b"user:word"));
    let server = Server::new(move |request, _| {
        let authorization = request.header("authorization");
        if request.is("POST /token ") {
            let want = "grant_type=refresh_token&client_id=edged&\
                        scope=repository%3Ateam%2Fapp%3Apull&service=a%20b&refresh_token=r%2B1";
            let good = request.body == want && authorization.is_none();
            return answer(if good { 200 } else { 400 }, &[], br#"{"access_token":"good"}"#);
        }
        if request.is("/token?scope=repository%3Ateam%2Fapp%3Apull&service=a%20b ") {
            return match authorization {
                Some(got) if got != word => {
                    let error = br#"{"errors":[{"code":"UNAUTHORIZED","message":"wrong word"}]}"#;
                    answer(401, &[], error)
                }
                Some(_) => answer(200, &[], br#"{"token":"good"}"#),
                None => answer(200, &[], br#"{"token":"anonymous"}"#),
            };
        }
        if authorization == Some("Bearer good") {
            return serve(&image, request);
        }
        let host = request.header("host").expect("a host");
        let challenge = format!(r#"Bearer realm="http://{host}/token",service="a b""#);
        answer(401, &[("WWW-Authenticate", &challenge)], b"")
    });
    let basic = |word: &str| RegistryAuth {
        basic: Some(("user".into(), word.into())),
        ..RegistryAuth::default()
    };
    let refresh = |token: &str| RegistryAuth {
        identity_token: Some(token.into()),
        ..RegistryAuth::default()
    };
    let ready = |token: &str| RegistryAuth {
        registry_token: Some(token.into()),
        ..RegistryAuth::default()
    };
    for (auth, good) in [
        (Some(basic("word")), true),
        (Some(basic("wrong")), false),
        (Some(refresh("r+1")), true),
        (Some(refresh("r2")), false),
        (Some(ready("good")), true),
        (None, false),
    ] {
        let place = Place::new();
        let got = pulled(&place, &server.image(), auth.as_ref());
        if good {
            assert!(got.is_ok(), "{auth:?}: {got:?}");
            continue;
        }
        let Err(JobFault::Denied(why)) = got else { panic!("{auth:?}: {got:?}") };
        let words = ["pull access denied", "authorization failed", "/team/app:1: "];
        assert!(words.into_iter().all(|word| why.contains(word)), "{why}");
        assert!(!why.contains("wrong:") && !why.contains("Basic "), "{why}");
    }
    let before = server.lines().len();
    pulled(&Place::new(), &server.image(), Some(&basic("word"))).expect("it may");
    let tokens = server.lines()[before..].iter().filter(|line| line.contains("/token")).count();
    assert_eq!(tokens, 1, "one for the pull");
}

#[test]
fn a_password_is_sent_where_it_is_asked_for() {
    let image = image();
    let server = Server::new(move |request, _| match request.header("authorization") {
        Some("Basic dXNlcjp3b3Jk") => serve(&image, request),
        _ => answer(401, &[("WWW-Authenticate", "Basic realm=\"x\"")], b""),
    });
    let auth =
        RegistryAuth { basic: Some(("user".into(), "word".into())), ..RegistryAuth::default() };
    assert!(pulled(&Place::new(), &server.image(), Some(&auth)).is_ok());
    let fault = pulled(&Place::new(), &server.image(), None).expect_err("it may not");
    assert!(format!("{fault:?}").contains("authorization failed: no basic auth"), "{fault:?}");
}

/// A registry that breaks the download of the layer as `broken` says: the answer to the request of
/// this number, counted for the layer alone.
fn flaky(
    image: Image,
    broken: impl Fn(&Request, &[u8], usize) -> Option<Vec<u8>> + Send + 'static,
) -> Server {
    let downloads = std::sync::atomic::AtomicUsize::new(0);
    Server::new(move |request, _| {
        let (digest, bytes) = &image.blobs[1];
        if !request.is(digest) {
            return serve(&image, request);
        }
        let number = downloads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        broken(request, bytes, number).unwrap_or_else(|| serve(&image, request))
    })
}

/// The rest that was asked for, cut off after so many bytes.
fn rest(request: &Request, bytes: &[u8], most: usize) -> Vec<u8> {
    let range = request.header("range").and_then(|range| range.strip_prefix("bytes="));
    let from = range.and_then(|range| range.strip_suffix('-')?.parse().ok());
    let rest: &[u8] = &bytes[from.unwrap_or(0)..];
    let content = format!("bytes {}-{}/{}", bytes.len() - rest.len(), bytes.len() - 1, bytes.len());
    let mut whole = match from {
        Some(_) => answer(206, &[("Content-Range", &content)], rest),
        None => answer(200, &[], rest),
    };
    whole.truncate(whole.len() - rest.len() + most.min(rest.len()));
    whole
}

#[test]
fn a_broken_download_goes_on() {
    let part = REGISTRY_PROGRESS_BYTES as usize;
    // More breaks than tries, each after some progress.
    let server = flaky(image(), move |request, bytes, _| Some(rest(request, bytes, part)));
    let place = Place::new();
    pulled(&place, &server.image(), None).expect("it goes on");
    let ranges: Vec<String> =
        server.lines().iter().filter_map(|it| Some(it.split_once(' ')?.1.to_owned())).collect();
    assert!(ranges.len() > REGISTRY_TRIES_MAX as usize, "{ranges:?}");
    assert_eq!(ranges[..2], [format!("bytes={part}-"), format!("bytes={}-", 2 * part)]);
}

#[test]
fn progress_gives_a_download_all_its_tries_again() {
    let part = REGISTRY_PROGRESS_BYTES as usize;
    let server = flaky(image(), move |request, bytes, number| match number % 2 {
        0 => Some(rest(request, bytes, part)),
        _ => Some(answer(503, &[("Retry-After", "0")], b"")),
    });
    pulled(&Place::new(), &server.image(), None).expect("it goes on");
    let failures = server.lines().len() / 2 - 1;
    assert!(failures > REGISTRY_TRIES_MAX as usize, "{:?}", server.lines());
}

#[test]
fn a_part_of_an_earlier_pull_is_used() {
    for (kept, wrong) in [(1_000, false), (0, false), (1_000, true), (1 << 20, false)] {
        let (place, image) = (Place::new(), image());
        let (digest, bytes) = image.blobs[1].clone();
        let mut part = bytes[..kept.min(bytes.len())].to_vec();
        part.resize(kept, 0);
        if wrong {
            part[0] ^= 1;
        }
        let path = place.0.join(format!("data/tmp/blob-{}.part", &digest[7..]));
        fs::write(&path, part).expect("a file of ours");
        let server = flaky(image, |request, bytes, _| Some(rest(request, bytes, usize::MAX)));
        let got = pulled(&place, &server.image(), None);
        assert_eq!(got.is_ok(), !wrong, "{got:?}");
        assert!(!path.exists(), "the next pull begins anew");
        let range =
            server.lines().last().and_then(|it| it.split_once(' ').map(|it| it.1.to_owned()));
        assert_eq!(range.as_deref(), (kept == 1_000).then_some("bytes=1000-"));
    }
}

#[test]
fn a_pull_goes_on_after_everything_was_killed() {
    const CHILD: &str = "EDGED_TEST_PULL";
    if let Ok(told) = std::env::var(CHILD) {
        let (place, name) = told.split_once(' ').expect("two words");
        let _ = pull(&settings(Path::new(place)), name, None);
        return;
    }
    let (place, image) = (Place::new(), image());
    let part = REGISTRY_PROGRESS_BYTES as usize;
    let (killed, waits) = std::sync::mpsc::channel::<()>();
    let server = flaky(image, move |request, bytes, number| match number {
        0 => Some(rest(request, bytes, part)),
        // Until the other end is killed.
        1 => waits.recv().ok().map(|()| answer(500, &[], b"")),
        _ => Some(rest(request, bytes, usize::MAX)),
    });
    let test = "io::builtin::images::tests::registry::a_pull_goes_on_after_everything_was_killed";
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test])
        .env(CHILD, format!("{} {}", place.0.display(), server.image()))
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("it starts");
    let range = format!(" bytes={part}-");
    while !server.lines().iter().any(|line| line.ends_with(&range)) {
        assert!(child.try_wait().expect("it is ours").is_none(), "{:?}", server.lines());
        #[expect(clippy::disallowed_methods, reason = "another process works meanwhile")]
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
    killed.send(()).expect("the server waits");
    fs::create_dir(place.0.join("data/tmp/layer-half")).expect("a folder of ours");
    empty_tmp(&place.settings()).expect("as the next server does");
    let [kept] = &place.names("tmp")[..] else { panic!("{:?}", place.names("tmp")) };
    assert!(kept.starts_with("blob-"), "{kept}");
    let before = server.lines().len();
    pulled(&place, &server.image(), None).expect("an image");
    assert!(server.lines()[before..].iter().any(|line| line.ends_with(&range)));
    assert_eq!(place.names("tmp"), [""; 0]);
    // One that nothing continues.
    fs::write(place.0.join("data/tmp").join(kept), "part").expect("a file of ours");
    assert_eq!(remove_layers(&place.settings(), &[], false), Ok(JobReply::Done));
    assert_eq!(place.names("tmp").len(), 1);
    assert_eq!(remove_layers(&place.settings(), &[], true), Ok(JobReply::Done));
    assert_eq!(place.names("tmp"), [""; 0]);
}

#[test]
fn pulls_of_a_shared_layer_at_the_same_time_do_not_disturb_each_other() {
    let part = REGISTRY_PROGRESS_BYTES as usize;
    let server = flaky(image(), move |request, bytes, _| Some(rest(request, bytes, part)));
    let place = Place::new();
    let id = image().diff_ids[0].clone();
    std::thread::scope(|scope| {
        let all: Vec<_> =
            (0..3).map(|_| scope.spawn(|| pulled(&place, &server.image(), None))).collect();
        for one in all {
            let record = one.join().expect("no panic").expect("an image");
            assert_eq!(*record.layers[0].0, *id);
        }
    });
    assert_eq!((place.names("layers").len(), place.names("tmp")), (1, vec![]));
}

#[test]
fn a_download_without_room_is_refused_before_it_begins() {
    let place = Place::new();
    let _small = super::Small::new(&place, LAYER_SPARE_BYTES + (256 << 10));
    let image = image();
    let blobs = format!("/blobs/{}", image.blobs[1].0);
    let server = Server::new(move |request, _| serve(&image, request));
    let fault = pulled(&place, &server.image(), None).expect_err("there is no room");
    let why = format!("{fault:?}");
    assert!(why.contains("no space left on device: got 50"), "{why}");
    assert!(!server.lines().iter().any(|line| line.contains(&blobs)), "{:?}", server.lines());
}

#[test]
fn a_server_without_ranges_sends_all_again() {
    for status in [200, 206, 416] {
        let server = flaky(image(), move |request, bytes, number| match (number, status) {
            (1, 200) => None,
            (0, _) => Some(rest(request, bytes, REGISTRY_PROGRESS_BYTES as usize)),
            (1, 206) => Some(answer(206, &[("Content-Range", "bytes 7-9/10")], b"abc")),
            (1, 416) => Some(answer(416, &[], b"")),
            _ => Some(rest(request, bytes, usize::MAX)),
        });
        pulled(&Place::new(), &server.image(), None).expect("it begins anew");
    }
}

#[test]
fn tries_have_an_end() {
    let image = image();
    let good = Server::new(move |request, number| match number {
        0..4 => answer(503, &[("Retry-After", "0")], b""),
        _ => serve(&image, request),
    });
    assert_eq!(REGISTRY_TRIES_MAX, 5);
    pulled(&Place::new(), &good.image(), None).expect("the fifth is good");
    let bad = Server::new(|_, _| answer(500, &[("Retry-After", "0")], b"<html>"));
    let fault = pulled(&Place::new(), &bad.image(), None).expect_err("none is good");
    assert!(matches!(&fault, JobFault::Failed(why) if why.contains("status 500")), "{fault:?}");
    assert_eq!(bad.lines().len(), REGISTRY_TRIES_MAX as usize);
}

#[test]
fn refusals_are_told_in_words_that_others_look_for() {
    let image = image();
    let server = Server::new(move |request, _| match request {
        it if it.is("/secret/") => {
            let error = br#"{"errors":[{"code":"DENIED","message":"requested access is denied"}]}"#;
            answer(403, &[], error)
        }
        it if it.is("/old/") => answer(200, &[], br#"{"schemaVersion":1,"fsLayers":[]}"#),
        it if it.is("/odd/") => answer(418, &[], b""),
        it if it.is("/strange/") => answer(401, &[("WWW-Authenticate", "Digest x")], b""),
        it => serve(&image, it),
    });
    let why = |path: &str| {
        let name = format!("{}/{path}", server.address);
        format!("{:?}", pulled(&Place::new(), &name, None).expect_err("it is refused"))
    };
    let not_found = why("team/app:2");
    assert!(not_found.starts_with("NotFound"), "{not_found}");
    assert!(not_found.contains("not found: manifest unknown"), "{not_found}");
    let denied = why("secret/app:1");
    assert!(denied.starts_with("Denied") && denied.contains("access is denied"), "{denied}");
    assert!(why("old/app:1").contains("schema 1, expected schema 2"));
    assert!(why("odd/app:1").contains("got status 418"));
    assert!(why("strange/app:1").starts_with("Denied"));
    assert!(why("App:1").starts_with("Invalid"));
    assert!(why(&format!("team/app@sha512:{}", "0".repeat(128))).contains("SHA-256"));
}

#[test]
fn redirects_lead_elsewhere_without_the_password() {
    let image = image();
    let layer = image.blobs[1].clone();
    let store = Server::new(move |request, _| match request.header("authorization") {
        None => answer(200, &[], &layer.1),
        Some(_) => answer(400, &[], b""),
    });
    let target = format!("http://{}/store?x=1", store.address);
    let server = Server::new(move |request, _| match request {
        it if it.header("authorization").is_none() => {
            answer(401, &[("WWW-Authenticate", "Basic realm=\"x\"")], b"")
        }
        it if it.is("/out/") => answer(302, &[("Location", "http://192.0.2.1/x")], b""),
        it if it.is("/other/") => answer(302, &[("Location", "ftp://127.0.0.1/x")], b""),
        it if it.is("/loop/") => answer(307, &[("Location", "/v2/loop/app/manifests/1")], b""),
        it if it.is("/moved/") => answer(301, &[("Location", "/v2/team/app/manifests/1")], b""),
        it if it.is(&image.blobs[1].0) => answer(307, &[("Location", &target)], b""),
        it => serve(&image, it),
    });
    let auth =
        RegistryAuth { basic: Some(("user".into(), "word".into())), ..RegistryAuth::default() };
    let place = Place::new();
    pulled(&place, &server.image(), Some(&auth)).expect("it is followed");
    assert_eq!(store.lines(), ["/store?x=1"]);
    let why = |path: &str| {
        let name = format!("{}/{path}/app:1", server.address);
        format!("{:?}", pulled(&place, &name, Some(&auth)).expect_err("it is not followed"))
    };
    assert!(
        why("out").contains("\"http://192.0.2.1/x\\\", expected a URL of HTTPS"),
        "{}",
        why("out")
    );
    assert!(why("other").contains("expected a URL of HTTPS"));
    let before = server.lines().len();
    assert!(why("loop").contains(&format!("more than {REGISTRY_REDIRECTS_MAX} redirects")));
    // The refusal without a password, and the password with each redirect.
    assert_eq!(server.lines().len() - before, REGISTRY_REDIRECTS_MAX + 2);
    let name = format!("{}/moved/app:1", server.address);
    let fault = pulled(&place, &name, Some(&auth)).expect_err("its blobs are moved as well");
    let text = format!("{fault:?}");
    assert!(text.contains("got JSON with the digest"), "the manifest was found: {text}");
}

#[test]
fn answers_have_bounds() {
    let place = Place::new();
    let large = vec![b' '; crate::limits::IMAGE_JSON_BYTES_MAX + 1];
    let server = Server::new(move |_, _| answer(200, &[], &large));
    let why = format!("{:?}", pulled(&place, &server.image(), None).expect_err("too large"));
    assert!(why.contains("got an answer of more than 4194304 bytes"), "{why}");
    let said = image();
    let bytes = crate::limits::IMAGE_JSON_BYTES_MAX + 1;
    let size = format!("\"size\":{}", said.blobs[0].1.len());
    let manifest = String::from_utf8(said.manifest.clone()).expect("JSON");
    let manifest = manifest.replacen(&size, &format!("\"size\":{bytes}"), 1).into_bytes();
    let server = Server::new(move |_, _| answer(200, &[], &manifest));
    let why = format!("{:?}", pulled(&place, &server.image(), None).expect_err("it says so"));
    assert!(why.contains("got 4194305 bytes of JSON, expected 4194304 at most"), "{why}");
    assert_eq!(server.lines().len(), 1, "it is not asked for");
    let token = vec![b' '; REGISTRY_ANSWER_BYTES_MAX as usize + 1];
    let server = Server::new(move |request, _| {
        if request.is("/token") {
            return answer(403, &[], &token);
        }
        let host = request.header("host").expect("a host");
        answer(401, &[("WWW-Authenticate", &format!("Bearer realm=http://{host}/token"))], b"")
    });
    let fault = pulled(&place, &server.image(), None).expect_err("it may not");
    assert!(matches!(fault, JobFault::Denied(_)), "{fault:?}");
    let said = format!("sha256:{}", "0".repeat(64));
    let one = image();
    let server =
        Server::new(move |_, _| answer(200, &[("Docker-Content-Digest", &said)], &one.manifest));
    let why = format!("{:?}", pulled(&place, &server.image(), None).expect_err("another digest"));
    assert!(why.contains("got a manifest with the digest"), "{why}");
    let server = flaky(image(), |_, bytes, _| Some(answer(200, &[], &[bytes, b"x"].concat())));
    let why = format!("{:?}", pulled(&place, &server.image(), None).expect_err("one byte more"));
    assert!(why.contains("got more than"), "{why}");
    let server = flaky(image(), |_, bytes, _| {
        let mut other = bytes.to_vec();
        other[1_000] ^= 1;
        Some(answer(200, &[], &other))
    });
    assert!(pulled(&place, &server.image(), None).is_err(), "another layer");
    assert_eq!(place.names("tmp").len(), 0, "{:?}", place.names("tmp"));
    assert_eq!(place.names("layers"), [""; 0]);
}

/// A registry that has the images of others: it answers whatever it is asked with `ns`.
fn mirror(image: Image, but: impl Fn(&Request) -> Option<Vec<u8>> + Send + 'static) -> Server {
    Server::new(move |request, _| {
        if let Some(other) = but(request) {
            return other;
        }
        // As the path of a registry without mirrors has it.
        let line = request.line.replace("?ns=registry.invalid%3A1 ", " ");
        serve(&image, &Request { line, ..request.clone() })
    })
}

fn with_mirrors(place: &Place, mirrors: &[String]) -> Settings {
    let mut settings = place.settings();
    settings.registries.mirrors = vec![("*".to_owned(), mirrors.to_vec())];
    settings
}

/// What is asked for by this name leaves no machine: RFC 2606.
const ELSEWHERE: &str = "registry.invalid:1/team/app:1";

#[test]
fn mirrors_are_asked_first_and_the_next_has_what_one_lacks() {
    let (place, image) = (Place::new(), image());
    let [config, layer] = [0, 1].map(|at| image.blobs[at].0.clone());
    let lacking = image.blobs[1].0.clone();
    let digest = sha256(&image.manifest);
    let copy =
        Image { manifest: image.manifest.clone(), blobs: image.blobs.clone(), diff_ids: vec![] };
    let broken = mirror(copy, move |request| {
        request.is(&lacking).then(|| answer(500, &[("Retry-After", "0")], b""))
    });
    let empty = Server::new(|_, _| answer(404, &[], b""));
    let whole = mirror(image, |_| None);
    let list = ["http://127.0.0.1:1".to_owned()]
        .into_iter()
        .chain([&empty, &broken, &whole].map(|server| format!("http://{}/", server.address)))
        .collect::<Vec<_>>();
    let auth = RegistryAuth {
        basic: Some(("user".into(), "word".into())),
        registry_token: Some("secret".into()),
        ..RegistryAuth::default()
    };
    let record =
        pulled_by(&with_mirrors(&place, &list), ELSEWHERE, Some(&auth)).expect("mirrors have it");
    assert_eq!(record.tags, [ELSEWHERE.into()]);
    assert_eq!(record.digests, [format!("registry.invalid:1/team/app@{digest}").into()]);
    let ns = "?ns=registry.invalid%3A1";
    let top = format!("/v2/team/app/manifests/1{ns}");
    let blob = |digest: &str| format!("/v2/team/app/blobs/{digest}{ns}");
    assert_eq!(empty.lines(), std::slice::from_ref(&top));
    // It has answered before, so that it is asked again.
    let again = vec![blob(&layer); REGISTRY_TRIES_MAX as usize];
    assert_eq!(broken.lines(), [vec![top, blob(&config)], again].concat());
    assert_eq!(whole.lines(), [blob(&layer)]);
    for server in [empty, broken, whole] {
        let log = server.log.lock().expect("no test panics with it");
        assert!(log.iter().all(|request| request.header("authorization").is_none()));
    }
}

#[test]
fn without_the_registry_it_is_said_why_its_mirrors_did_not_do() {
    let place = Place::new();
    let full = Server::new(|_, _| answer(503, &[], b""));
    let down = Server::new(|_, _| answer(502, &[("Retry-After", "0")], b""));
    let list = [format!("http://{}", full.address), "http://127.0.0.1:1".to_owned()];
    let fault =
        pulled_by(&with_mirrors(&place, &list), &down.image(), None).expect_err("nobody has it");
    let JobFault::Failed(why) = fault else { panic!("{fault:?}") };
    let first = why.find("status 502").expect("the registry's own failure");
    let mirrors = why.find(" (mirrors: http://").expect("and those before");
    assert!(first < mirrors && why.contains("status 503"), "{why}");
    assert!(why.contains("; http://127.0.0.1:1: cannot connect"), "{why}");
    assert_eq!(full.lines().len(), 1, "a mirror that does not answer is not waited for");
}

#[test]
fn a_mirror_may_have_a_path_and_stand_for_one_registry() {
    let place = Place::new();
    let [server, registry] = [(); 2].map(|()| Server::new(|_, _| answer(404, &[], b"")));
    let mut settings = with_mirrors(&place, &["http://127.0.0.1:1".to_owned()]);
    let mirror = vec![format!("http://{}/hub", server.address)];
    let domain = registry.address.to_string();
    settings.registries.mirrors = vec![(domain.clone(), mirror)];
    let fault = pulled_by(&settings, &registry.image(), None).expect_err("nobody has it");
    assert!(matches!(&fault, JobFault::NotFound(_)), "{fault:?}");
    assert!(!format!("{fault:?}").contains("mirrors"), "that it has none is no failure: {fault:?}");
    let ns = domain.replace(':', "%3A");
    assert_eq!(server.lines(), [format!("/v2/hub/team/app/manifests/1?ns={ns}")]);
    assert_eq!(registry.lines(), ["/v2/team/app/manifests/1"]);
}

#[test]
fn a_registry_that_is_its_own_mirror_is_asked_once() {
    let place = Place::new();
    let registry = Server::new(|_, _| answer(404, &[], b""));
    let settings = with_mirrors(&place, &[format!("http://{}", registry.address)]);
    let fault = pulled_by(&settings, &registry.image(), None).expect_err("it has none");
    assert!(matches!(&fault, JobFault::NotFound(_)), "{fault:?}");
    assert_eq!(registry.lines(), ["/v2/team/app/manifests/1"]);
}

#[test]
fn the_registry_of_image_folders_is_asked_first_and_waited_for() {
    let (place, image) = (Place::new(), image());
    let count = std::sync::atomic::AtomicU32::new(1);
    let folders = mirror(image, move |_| {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        (number < REGISTRY_FOLDERS_TRIES_MAX).then(|| answer(503, &[("Retry-After", "0")], b""))
    });
    let other = Server::new(|_, _| answer(404, &[], b""));
    let mut settings = with_mirrors(&place, &[format!("http://{}", other.address)]);
    settings.registries.image_folders = Some(folders.address.to_string());
    let record = pulled_by(&settings, ELSEWHERE, None).expect("the folders have it");
    assert_eq!(record.tags, [ELSEWHERE.into()]);
    assert_eq!(other.lines(), [""; 0]);
}
